package semel

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Transport is an http.RoundTripper that gives POST and PATCH requests one key for all attempts, and sends them again until
// there is an answer. Other methods pass unchanged, unless they have a key. The zero value is ready.
//
//	client := &http.Client{Transport: &semel.Transport{}}
//
// A request's key is that of its Idempotency-Key header, or of its context (WithKey), or a new one. The answer's body is
// read within the attempt, so that one that breaks off is asked for again; AnswerOf tells more about it.
//
// Besides answers there are errors, which http.Client wraps in a *url.Error: use errors.Is and errors.As for ErrConflict,
// ErrInDoubt, *ProblemError and *GaveUpError. Leave http.Client.Timeout at zero: it would end all attempts at once; a
// context or Retry.TotalTimeout bounds them.
type Transport struct {
	// Base sends each attempt; http.DefaultTransport if nil.
	Base http.RoundTripper
	// Retry says how often and how long to ask.
	Retry RetryPolicy
	// Budget bounds the retries; give several transports one to bound them together. Nil is one of the transport's own.
	Budget *RetryBudget

	own RetryBudget
}

// Client returns an http.Client that uses the transport and follows no redirect: a redirect is an answer, and following
// it would send the request to another place under a key of its own.
func (t *Transport) Client() *http.Client {
	return &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func (t *Transport) budget() *RetryBudget {
	if t.Budget != nil {
		return t.Budget
	}
	return &t.own
}

func (t *Transport) base() http.RoundTripper {
	if t.Base != nil {
		return t.Base
	}
	return http.DefaultTransport
}

// RoundTrip asks until there is an answer.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	key, err := keyOf(req)
	if err != nil {
		closeBody(req)
		return nil, err
	}
	if key == "" {
		if req.Method != http.MethodPost && req.Method != http.MethodPatch {
			return t.base().RoundTrip(req)
		}
		key = NewKey()
	}
	open, err := bodyOf(req)
	if err != nil {
		return nil, err
	}
	sent := req.Clone(req.Context())
	if len(req.Header.Values(KeyHeader)) == 0 {
		sent.Header.Set(KeyHeader, key)
	}
	_, maybeSent := req.Context().Value(maybeSentContext{}).(bool)
	course := newCourse(t.Retry, t.budget(), key, maybeSent)
	r, err := course.ask(req.Context(), func(ctx context.Context, _ int) (*reply, bool, error) {
		body, err := open()
		if err != nil {
			return nil, true, err
		}
		again := sent.Clone(ctx)
		again.Body = body
		return exchange(ctx, t.base(), again)
	})
	if err != nil {
		return nil, err
	}
	if r.status >= 400 && strings.HasPrefix(r.problem().code, "idempotency_") {
		return nil, r.problemError()
	}
	return answered(sent, r, key, course.attempts), nil
}

// answered is the answer as http.Client expects it, with what is known about it in its request's context.
func answered(sent *http.Request, r *reply, key string, attempts int) *http.Response {
	response := r.response
	response.Body = io.NopCloser(bytes.NewReader(r.body))
	response.ContentLength = int64(len(r.body))
	response.TransferEncoding = nil
	response.Request = sent.WithContext(context.WithValue(sent.Context(), answerContext{}, Answer{
		key: Secret(key), Attempts: attempts,
	}))
	return response
}

// maybeSentContext marks a request that another process may have sent.
type maybeSentContext struct{}

type answerContext struct{}

// Answer is what is known about an answer besides itself.
type Answer struct {
	// Attempts is how many it took.
	Attempts int
	// Replayed says whether an earlier request did it, and this is its answer.
	Replayed bool
	// OriginalTime is when it was first asked for, if this is a replay.
	OriginalTime string
	// BodyKept is false if it was done before and its body was too large to keep.
	BodyKept bool

	key Secret
}

// Key returns the key under which it was asked for. It isn't printed.
func (a Answer) Key() string { return string(a.key) }

// AnswerOf tells what is known about an answer that came by a Transport.
func AnswerOf(response *http.Response) Answer {
	var answer Answer
	if response.Request != nil {
		answer, _ = response.Request.Context().Value(answerContext{}).(Answer)
	}
	answer.Replayed = response.Header.Get("Idempotent-Replayed") == "true"
	answer.OriginalTime = response.Header.Get("X-Original-Request-Time")
	answer.BodyKept = response.Header.Get("Idempotent-Not-Kept") == ""
	return answer
}

// bodyOf returns a way to read the request's body for each attempt.
func bodyOf(req *http.Request) (func() (io.ReadCloser, error), error) {
	if req.Body == nil || req.Body == http.NoBody {
		return func() (io.ReadCloser, error) { return req.Body, nil }, nil
	}
	defer closeBody(req)
	if req.GetBody != nil {
		return req.GetBody, nil
	}
	body, err := readAll(req.Body, maxAnswerBytes, "a request's body without GetBody")
	if err != nil {
		return nil, err
	}
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }, nil
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

// Format prints everything but the key.
func (a Answer) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "{attempts: %d, replayed: %t, body kept: %t}", a.Attempts, a.Replayed, a.BodyKept)
}
