package semel_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	semel "github.com/semel-rs/semel/sdks/go"
)

// ask makes one call as a worker does.
func ask(t *testing.T, url string, body any, into any) {
	t.Helper()
	text, _ := json.Marshal(body)
	response := must[*http.Response](t)(http.Post(url, "application/json", bytes.NewReader(text)))
	defer func() { _ = response.Body.Close() }()
	answer, _ := io.ReadAll(response.Body)
	if response.StatusCode >= 300 {
		t.Fatalf("%d %s", response.StatusCode, answer)
	}
	if into != nil {
		if err := json.Unmarshal(answer, into); err != nil {
			t.Fatal(err)
		}
	}
}

// worked takes the one job of a kind, and ends it.
func worked(t *testing.T, base, kind, how string, outcome map[string]any) {
	t.Helper()
	var leased struct {
		Jobs []struct {
			JobID      string `json:"job_id"`
			LeaseToken string `json:"lease_token"`
		}
	}
	ask(t, base+"/mesh/lease", map[string]any{"worker": "w-1", "kinds": []string{kind}, "max_jobs": 100, "lease_ms": 60_000, "wait_ms": 5000}, &leased)
	if len(leased.Jobs) != 1 {
		t.Fatalf("%d jobs", len(leased.Jobs))
	}
	outcome["lease_token"] = leased.Jobs[0].LeaseToken
	ask(t, base+"/mesh/jobs/"+leased.Jobs[0].JobID+"/"+how, outcome, nil)
}

func TestJobs(t *testing.T) {
	base := jobsSidecar(t)
	queue := must[*semel.Queue](t)(semel.NewQueue(base, semel.Options{Retry: quick}))
	defer queue.Close()

	t.Run("a job submitted many times is enqueued once", func(t *testing.T) {
		kind := "kind-" + randomHex()
		submission := semel.Submission{Kind: kind, Params: map[string]int{"b": 1, "a": 2}, Key: semel.NewKey(), KeyTTL: 24 * time.Hour}
		var first *semel.Job
		for i := range 3 {
			job := must[*semel.Job](t)(queue.Submit(t.Context(), submission))
			if i == 0 {
				first = job
			}
			if job.ID != first.ID || job.RequestID != first.RequestID || job.Dedup != (i > 0) || job.Ended() {
				t.Error(job)
			}
		}
		other := submission
		other.Params = map[string]int{"a": 3}
		if _, err := queue.Submit(t.Context(), other); !errors.Is(err, semel.ErrConflict) {
			t.Error(err)
		}
		worked(t, base, kind, "complete", map[string]any{"result": map[string]string{"charge": "ch_1"}})
		var result struct{ Charge string }
		done := must[*semel.Job](t)(queue.Wait(t.Context(), first.ID))
		if err := done.Result(&result); err != nil || result.Charge != "ch_1" {
			t.Error(result, err)
		}
	})
	t.Run("a job that failed for good says so", func(t *testing.T) {
		kind := "kind-" + randomHex()
		job := must[*semel.Job](t)(queue.Submit(t.Context(), semel.Submission{Kind: kind}))
		worked(t, base, kind, "fail", map[string]any{"error": "no such customer", "retryable": false})
		done := must[*semel.Job](t)(queue.Wait(t.Context(), job.ID))
		failed, ok := errors.AsType[*semel.EffectFailedError](done.Result(nil))
		if !ok || string(failed.Answer) != `"no such customer"` {
			t.Error(done)
		}
	})
	t.Run("without a key each submission is a job of its own", func(t *testing.T) {
		submission := semel.Submission{Kind: "kind-" + randomHex(), Params: 1}
		one, two := must[*semel.Job](t)(queue.Submit(t.Context(), submission)), must[*semel.Job](t)(queue.Submit(t.Context(), submission))
		if one.ID == two.ID {
			t.Error("one job")
		}
	})
}
