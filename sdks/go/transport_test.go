package semel_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	semel "github.com/semel-rs/semel/sdks/go"
)

func TestOneKeyForAllAttemptsAndAReplayForTheSecondCall(t *testing.T) {
	base, service := sharedSidecar(t)
	key := semel.NewKey()
	client := (&semel.Transport{Retry: quick}).Client()
	var answers []string
	for _, replayed := range []bool{false, true} {
		req := must[*http.Request](t)(http.NewRequestWithContext(
			semel.WithKey(t.Context(), key), http.MethodPost, base+"/charges", strings.NewReader(fmt.Sprintf(`{"order":%q}`, key)),
		))
		req.Header.Set("Content-Type", "application/json")
		response := must[*http.Response](t)(client.Do(req))
		body, _ := io.ReadAll(response.Body)
		answers = append(answers, string(body))
		answer := semel.AnswerOf(response)
		if response.StatusCode != 201 || answer.Replayed != replayed || answer.Key() != key || (answer.OriginalTime != "") != replayed {
			t.Errorf("%d %v", response.StatusCode, answer)
		}
		if req.Header.Get(semel.KeyHeader) != "" {
			t.Error("the caller's request was changed")
		}
	}
	if answers[0] != answers[1] || service.count(key) != 1 {
		t.Errorf("%v, %d effects", answers, service.count(key))
	}
}

func TestAConflictIsToldAndNotRetried(t *testing.T) {
	base, service := sharedSidecar(t)
	key := semel.NewKey()
	client := (&semel.Transport{Retry: quick}).Client()
	post := func(order string) error {
		ctx := semel.WithKey(t.Context(), key)
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, base+"/charges", strings.NewReader(fmt.Sprintf(`{"order":%q}`, order)))
		_, err := client.Do(req)
		return err
	}
	if err := post(key); err != nil {
		t.Fatal(err)
	}
	err := post("another")
	problem, ok := errors.AsType[*semel.ProblemError](err)
	if !ok || !errors.Is(err, semel.ErrConflict) || problem.Status != 422 || strings.Contains(err.Error(), key) {
		t.Error(err)
	}
	if service.count("another") != 0 {
		t.Error("it was done")
	}
}

func TestTheServicesOwnRefusalIsAnAnswer(t *testing.T) {
	base, service := sharedSidecar(t)
	key := semel.NewKey()
	client := (&semel.Transport{Retry: quick}).Client()
	for _, replayed := range []bool{false, true} {
		ctx := semel.WithKey(t.Context(), key)
		body := strings.NewReader(fmt.Sprintf(`{"order": %q, "status": 402}`, key))
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, base+"/charges", body)
		response := must[*http.Response](t)(client.Do(req))
		if response.StatusCode != 402 || semel.AnswerOf(response).Replayed != replayed {
			t.Error(response.StatusCode)
		}
	}
	if service.count(key) != 1 {
		t.Error(service.count(key))
	}
}

func TestNobodyThereIsKnownToHaveDoneNothing(t *testing.T) {
	policy := semel.RetryPolicy{MaxAttempts: 3, Base: time.Millisecond}
	client := (&semel.Transport{Retry: policy}).Client()
	_, _, err := charge(client, fmt.Sprintf("http://127.0.0.1:%d", freePort(t)), "a")
	gaveUp, ok := errors.AsType[*semel.GaveUpError](err)
	if !ok || gaveUp.Attempts != 3 || gaveUp.Unknown || gaveUp.Key() == "" {
		t.Error(err)
	}
}

// scripted is a server that answers by attempt, and keeps the keys it saw.
type scripted struct {
	*httptest.Server
	mu   sync.Mutex
	keys []string
}

func newScripted(t *testing.T, script func(w http.ResponseWriter, attempt int)) *scripted {
	t.Helper()
	s := &scripted{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		s.mu.Lock()
		s.keys = append(s.keys, r.Header.Get(semel.KeyHeader))
		attempt := len(s.keys)
		s.mu.Unlock()
		script(w, attempt)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *scripted) check(t *testing.T, attempts int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.keys) != attempts {
		t.Errorf("%d attempts, not %d", len(s.keys), attempts)
	}
	for _, key := range s.keys {
		if key == "" || key != s.keys[0] {
			t.Error("the key changed")
		}
	}
}

func problem(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

func TestInFlightIsAskedAgainAndDoesNotCount(t *testing.T) {
	server := newScripted(t, func(w http.ResponseWriter, attempt int) {
		if attempt < 12 {
			problem(w, 409, `{"code": "idempotency_in_flight", "retryable": true, "retryAfterMs": 1}`)
		} else {
			w.WriteHeader(201)
		}
	})
	policy := semel.RetryPolicy{MaxAttempts: 2, Base: time.Millisecond, Cap: time.Millisecond}
	response, _, err := charge((&semel.Transport{Retry: policy}).Client(), server.URL, "a")
	if err != nil || response.StatusCode != 201 || semel.AnswerOf(response).Attempts != 12 {
		t.Error(err)
	}
	server.check(t, 12)
}

func TestInDoubtIsToldAndNotRetried(t *testing.T) {
	for _, code := range []string{"idempotency_in_doubt", "idempotency_record_unreadable"} {
		server := newScripted(t, func(w http.ResponseWriter, _ int) {
			problem(w, 409, fmt.Sprintf(`{"code": %q, "retryable": false, "claimId": "00ff"}`, code))
		})
		_, _, err := charge((&semel.Transport{Retry: quick}).Client(), server.URL, "a")
		problem, ok := errors.AsType[*semel.ProblemError](err)
		if !errors.Is(err, semel.ErrInDoubt) || !ok || problem.ClaimID != "00ff" {
			t.Error(err)
		}
		server.check(t, 1)
	}
}

func TestABrokenAnswerIsAskedForAgain(t *testing.T) {
	server := newScripted(t, func(w http.ResponseWriter, attempt int) {
		if attempt == 1 {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "half")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, "whole")
	})
	_, body, err := charge((&semel.Transport{Retry: quick}).Client(), server.URL, "a")
	if err != nil || string(body) != "whole" {
		t.Error(string(body), err)
	}
	server.check(t, 2)
}

func TestAnAnswerThatIsTooLargeIsNotAskedForAgain(t *testing.T) {
	server := newScripted(t, func(w http.ResponseWriter, _ int) {
		_, _ = w.Write(make([]byte, 16*1024*1024+1))
	})
	if _, _, err := charge((&semel.Transport{Retry: quick}).Client(), server.URL, "a"); err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Error(err)
	}
	server.check(t, 1)
}

func TestABodyWithoutGetBodyIsSentAgainWhole(t *testing.T) {
	var bodies []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if bodies = append(bodies, string(body)); len(bodies) == 1 {
			w.WriteHeader(503)
		}
	}))
	defer server.Close()
	body := io.NopCloser(io.MultiReader(strings.NewReader("a"), strings.NewReader("b")))
	req, _ := http.NewRequest(http.MethodPatch, server.URL, body)
	must[*http.Response](t)((&semel.Transport{Retry: quick}).Client().Do(req))
	if fmt.Sprint(bodies) != "[ab ab]" {
		t.Error(bodies)
	}
}

func TestOtherMethodsPassUnlessTheyHaveAKey(t *testing.T) {
	server := newScripted(t, func(w http.ResponseWriter, attempt int) { w.WriteHeader(503) })
	policy := semel.RetryPolicy{MaxAttempts: 2, Base: time.Millisecond}
	client := (&semel.Transport{Retry: policy}).Client()
	response := must[*http.Response](t)(client.Get(server.URL))
	if response.StatusCode != 503 || len(server.keys) != 1 || server.keys[0] != "" {
		t.Error(response.StatusCode, server.keys)
	}
	req, _ := http.NewRequest(http.MethodDelete, server.URL, nil)
	req.Header.Set(semel.KeyHeader, "k-1")
	if _, err := client.Do(req); err == nil || len(server.keys) != 3 {
		t.Error(err, server.keys)
	}
}

func TestKeysThatCannotBeUsedAreRefusedBeforeAnythingIsSent(t *testing.T) {
	for _, lines := range [][]string{{"a b"}, {""}, {"a", "b"}, {`"a`}, {strings.Repeat("a", 256)}} {
		req, _ := http.NewRequest(http.MethodPost, "http://127.0.0.1:1", nil)
		req.Header[semel.KeyHeader] = lines
		_, err := (&semel.Transport{}).Client().Do(req)
		if _, ok := errors.AsType[*semel.KeyError](err); !ok {
			t.Errorf("%q: %v", lines, err)
		}
	}
}

func TestRedirectsAreAnswers(t *testing.T) {
	server := newScripted(t, func(w http.ResponseWriter, _ int) {
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(307)
	})
	if response, _, err := charge((&semel.Transport{}).Client(), server.URL, "a"); err != nil || response.StatusCode != 307 {
		t.Error(err)
	}
	server.check(t, 1)
}

func TestACallThatIsCancelledLeavesNoGoroutine(t *testing.T) {
	stop := make(chan struct{})
	server := newScripted(t, func(http.ResponseWriter, int) { <-stop })
	defer close(stop)
	base := &http.Transport{}
	client := (&semel.Transport{Base: base}).Client()
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, bytes.NewReader([]byte("{}")))
	_, err := client.Do(req)
	gaveUp, ok := errors.AsType[*semel.GaveUpError](err)
	if !ok || !errors.Is(err, context.DeadlineExceeded) || !gaveUp.Unknown {
		t.Error(err)
	}
	base.CloseIdleConnections()
	// The server's goroutine of the connection stays until the end of the test.
	for range 500 {
		if runtime.NumGoroutine() <= before+2 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d goroutines, before %d", runtime.NumGoroutine(), before)
}
