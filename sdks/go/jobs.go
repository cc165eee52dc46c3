package semel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/semel-rs/semel/sdks/go/api"
)

// The server waits at most this long for a job.
const maxJobWait = 30 * time.Second

// Queue submits jobs that are submitted many times and enqueued once, at a running `semel serve` with jobs.enabled.
type Queue struct {
	sidecar *Sidecar
}

// NewQueue returns the queue at a URL such as http://127.0.0.1:8080. The options' Terms don't count.
func NewQueue(base string, options Options) (*Queue, error) {
	sidecar, err := NewSidecar(base, options)
	if err != nil {
		return nil, err
	}
	return &Queue{sidecar}, nil
}

// Close closes idle connections.
func (q *Queue) Close() { q.sidecar.Close() }

// Submission is a job to enqueue. What is zero is the server's choice.
type Submission struct {
	// Kind is what workers lease it by.
	Kind string
	// Params is any JSON; the same key with other params is a conflict.
	Params any
	// Key makes submissions one job; without it each one is a new job, and its retries are still one.
	Key string
	// KeyTTL is how long the result is kept after the job's end.
	KeyTTL time.Duration
	// Scope is that of the key.
	Scope string
	// NodeID names the submitting process.
	NodeID string
	// Delay is the least time before its start.
	Delay time.Duration
	// Priority goes first if it is higher.
	Priority int
	// MaxAttempts is how often it is started at most.
	MaxAttempts int
}

// Job is a job, as it stood when it was asked for.
type Job struct {
	// ID is the same for every submission with this key, and on every start: pass it on as a key.
	ID string
	// RequestID is that of this submission.
	RequestID string
	// Status is "accepted", "in_progress", "completed" or "failed".
	Status string
	// Dedup says whether it was submitted before.
	Dedup bool

	view jobView
}

type jobView struct {
	JobID              string   `json:"job_id"`
	RequestID          string   `json:"request_id"`
	Status             string   `json:"status"`
	Dedup              *bool    `json:"dedup"`
	Result             api.JSON `json:"result"`
	ResultOmittedBytes *int64   `json:"result_omitted_bytes"`
	Error              api.JSON `json:"error"`
}

// Ended reports whether it is done, or failed for good.
func (j *Job) Ended() bool { return j.Status == "completed" || j.Status == "failed" }

// Result reads what the worker gave back; *EffectFailedError if it failed for good.
func (j *Job) Result(into any) error {
	switch {
	case j.Status == "failed":
		return &EffectFailedError{Answer: j.view.Error, Replayed: true}
	case j.Status != "completed":
		return errors.New("semel: the job has no result yet: " + j.Status)
	case j.view.ResultOmittedBytes != nil:
		return &AnswerNotKeptError{Size: *j.view.ResultOmittedBytes}
	case j.view.Result == nil:
		return nil
	}
	return json.Unmarshal(j.view.Result, into)
}

// Format prints nothing of the result.
func (j *Job) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "job %.8s, %s", j.ID, j.Status)
}

// Submit enqueues a job, or finds the one that its key stands for.
func (q *Queue) Submit(ctx context.Context, submission Submission) (*Job, error) {
	set(&submission.Key, NewKey())
	if err := CheckKey(submission.Key); err != nil {
		return nil, err
	}
	body := map[string]any{"kind": submission.Kind, "params": submission.Params, "idempotency_key": submission.Key}
	put(body, "idempotency_ttl_sec", int64(submission.KeyTTL.Seconds()))
	put(body, "scope", submission.Scope)
	put(body, "tenant", q.sidecar.options.Tenant)
	put(body, "delay_ms", submission.Delay.Milliseconds())
	put(body, "priority", submission.Priority)
	put(body, "max_attempts", submission.MaxAttempts)
	if submission.NodeID != "" {
		body["client"] = map[string]string{"node_id": submission.NodeID}
	}
	return q.ask(ctx, http.MethodPost, "mesh/submit_request", body)
}

func put[T comparable](body map[string]any, name string, value T) {
	var zero T
	if value != zero {
		body[name] = value
	}
}

// Wait returns the job once it has ended, or as it stands when the context ends or after a minute, whichever is first.
func (q *Queue) Wait(ctx context.Context, id string) (*Job, error) {
	deadline := time.Now().Add(time.Minute)
	if own, ok := ctx.Deadline(); ok && own.Before(deadline) {
		deadline = own
	}
	for {
		// The answer needs a moment too.
		left := min(max(0, time.Until(deadline)-100*time.Millisecond), maxJobWait).Milliseconds()
		job, err := q.ask(ctx, http.MethodGet, "mesh/jobs/"+url.PathEscape(id)+"?wait_ms="+strconv.FormatInt(left, 10), nil)
		if err != nil || job.Ended() || left == 0 {
			return job, err
		}
	}
}

func (q *Queue) ask(ctx context.Context, method, path string, body any) (*Job, error) {
	r, err := q.sidecar.send(ctx, method, path, body, 0)
	if err != nil {
		return nil, err
	}
	var view jobView
	if err := r.read(&view); err != nil {
		return nil, err
	}
	return &Job{view.JobID, view.RequestID, view.Status, view.Dedup == nil || *view.Dedup, view}, nil
}
