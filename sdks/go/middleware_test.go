package semel_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	semel "github.com/semel-rs/semel/sdks/go"
	"github.com/semel-rs/semel/sdks/go/api"
	"github.com/semel-rs/semel/sdks/go/semeltest"
)

const events = "data: 1\n\ndata: 2\n\n"

// shop is a service that counts what it does, behind the middleware.
type shop struct {
	*httptest.Server
	mu   sync.Mutex
	runs map[string]int
}

func newShop(t *testing.T, middleware semel.Middleware) *shop {
	t.Helper()
	s := &shop{runs: map[string]int{}}
	mux := http.NewServeMux()
	handle := func(path string, handler http.HandlerFunc) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			s.mu.Lock()
			s.runs[r.URL.Path]++
			s.mu.Unlock()
			handler(w, r)
		})
	}
	handle("/charge", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		key, _ := semel.LeaseOf(r.Context()).DeriveKey(r.Context(), "psp")
		w.Header().Set("X-Extra", "kept")
		w.Header().Set("Set-Cookie", "never=kept")
		w.Header().Add("Link", "</a>")
		w.Header().Add("Link", "</b>")
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, `{"got": %q, "key": %d}`, body, len(key))
	})
	handle("/large", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 1024*1024+1))
	})
	handle("/events", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, events[:9])
		_ = http.NewResponseController(w).Flush()
		_, _ = io.WriteString(w, events[9:])
	})
	handle("/endless", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	handle("/status/{status}", func(w http.ResponseWriter, r *http.Request) {
		var status int
		_, _ = fmt.Sscan(r.PathValue("status"), &status)
		w.Header().Set("Semel-Outcome", r.URL.Query().Get("said"))
		w.WriteHeader(status)
	})
	handle("/panic", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	handle("/slow", func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-time.After(200 * time.Millisecond):
		}
	})
	s.Server = httptest.NewServer(middleware.Handler(mux))
	t.Cleanup(s.Close)
	return s
}

func (s *shop) ran(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs[path]
}

func (s *shop) post(t *testing.T, path, key, body string, header ...string) (*http.Response, string) {
	t.Helper()
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+path, strings.NewReader(body))
	if key != "" {
		req.Header.Set(semel.KeyHeader, key)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err.Error()
	}
	return response, string(text)
}

func codeOf(body string) string {
	var document struct{ Code string }
	_ = json.Unmarshal([]byte(body), &document)
	return document.Code
}

func TestAHandlerRunsOnceAndItsAnswerIsReplayed(t *testing.T) {
	onBoth(t, func(t *testing.T, sidecar *semel.Sidecar) {
		s, key := newShop(t, semel.Middleware{Sidecar: sidecar, Scope: "charges", KeepHeaders: []string{"X-Extra"}}), semel.NewKey()
		for i, body := range []string{`{"a": 1, "b": 2}`, `{"b": 2.0, "a": 1}`} {
			response, text := s.post(t, "/charge", key, body)
			if response.StatusCode != 201 || text != `{"got": "{\"a\": 1, \"b\": 2}", "key": 38}` {
				t.Errorf("%d %s", response.StatusCode, text)
			}
			replayed := response.Header.Get("Idempotent-Replayed") == "true"
			if replayed != (i == 1) || (response.Header.Get("X-Original-Request-Time") != "") != replayed {
				t.Error(response.Header)
			}
			if response.Header.Get("X-Extra") != "kept" || len(response.Header.Values("Link")) != 2 {
				t.Error(response.Header)
			}
			if !strings.HasPrefix(response.Header.Get("Content-Type"), "text/plain") {
				t.Error("the guessed type differs", response.Header)
			}
			if (response.Header.Get("Set-Cookie") == "") != replayed {
				t.Error("a cookie was replayed")
			}
		}
		if s.ran("/charge") != 1 {
			t.Error(s.ran("/charge"))
		}
		for body, path := range map[string]string{`{"a": 2}`: "/charge", `{"a": 1, "b": 2}`: "/charge?x=1"} {
			if response, text := s.post(t, path, key, body); response.StatusCode != 422 || codeOf(text) != api.CodeConflict {
				t.Error(response.StatusCode, text)
			}
		}
		// Another caller's credentials: a conflict, and never the answer.
		if response, _ := s.post(t, "/charge", key, `{"a": 1, "b": 2}`, "Authorization", "Bearer x"); response.StatusCode != 422 {
			t.Error(response.StatusCode)
		}
	})
}

func TestLargeAnswersAndStreamsReachTheirCallerAndAreNotKept(t *testing.T) {
	onBoth(t, func(t *testing.T, sidecar *semel.Sidecar) {
		s := newShop(t, semel.Middleware{Sidecar: sidecar})
		for path, size := range map[string]int{"/large": 1024*1024 + 1, "/events": len(events)} {
			key := semel.NewKey()
			if response, text := s.post(t, path, key, "{}"); response.StatusCode != 200 || len(text) != size {
				t.Errorf("%s: %d bytes", path, len(text))
			}
			response, text := s.post(t, path, key, "{}")
			if response.StatusCode != 200 || response.Header.Get("Idempotent-Not-Kept") != "body" || codeOf(text) != api.CodeBodyNotKept {
				t.Errorf("%s: %d %.100s", path, response.StatusCode, text)
			}
			if s.ran(path) != 1 {
				t.Error(s.ran(path))
			}
		}
	})
}

func TestAStatusOrTheHandlerSaysWhatBecomesOfTheKey(t *testing.T) {
	fake := &semeltest.Fake{}
	s := newShop(t, semel.Middleware{Sidecar: fake.Sidecar(semel.Options{Terms: semel.Terms{Crash: semel.Hold}})})
	for path, want := range map[string]api.Status{
		"/status/200": api.StatusCompleted, "/status/204": api.StatusCompleted, "/status/402": api.StatusFailed,
		"/status/429": api.StatusReleased, "/status/403": api.StatusReleased, "/status/500": api.StatusInDoubt,
		"/status/200?said=no-effect": api.StatusReleased, "/status/200?said=unknown": api.StatusInDoubt,
		"/panic": api.StatusInDoubt,
	} {
		key := semel.NewKey()
		response, _ := s.post(t, path, key, "{}")
		if response != nil && response.Header.Get("Semel-Outcome") != "" {
			t.Error("the handler's word is for the middleware")
		}
		if got := fake.State("http", key); got != want {
			t.Errorf("%s: %s, not %s", path, got, want)
		}
	}
	key := semel.NewKey()
	if s.post(t, "/status/403", key, "{}", "Authorization", "Bearer x"); fake.State("http", key) != api.StatusFailed {
		t.Error("a refusal for one who did say who it is")
	}
}

func TestWithoutTheSidecarNothingIsStarted(t *testing.T) {
	sidecar := connect(t, fmt.Sprintf("http://127.0.0.1:%d", freePort(t)), semel.Options{Retry: semel.RetryPolicy{MaxAttempts: 2, Base: time.Millisecond}})
	s := newShop(t, semel.Middleware{Sidecar: sidecar})
	response, text := s.post(t, "/charge", semel.NewKey(), "{}")
	if response.StatusCode != 503 || response.Header.Get("Retry-After") != "1" || codeOf(text) != api.CodeStoreUnavailable || s.ran("/charge") != 0 {
		t.Error(response.StatusCode, text)
	}
}

func TestAnAnswerThatCannotBeRecordedIsNotTold(t *testing.T) {
	fake := &semeltest.Fake{}
	sidecar := fake.Sidecar(semel.Options{})
	overtaken := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if fake.Advance(31 * time.Second); len(fake.Calls()) == 1 {
			again := httptest.NewRequest(http.MethodPost, "/a", strings.NewReader("{}"))
			again.Header = r.Header
			semel.Middleware{Sidecar: sidecar}.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "theirs")
			})).ServeHTTP(httptest.NewRecorder(), again)
		}
		_, _ = io.WriteString(w, "mine")
	})
	recorder := httptest.NewRecorder()
	req := httptest.NewRequest(http.MethodPost, "/a", strings.NewReader("{}"))
	req.Header.Set(semel.KeyHeader, "k-1")
	semel.Middleware{Sidecar: sidecar}.Handler(overtaken).ServeHTTP(recorder, req)
	if recorder.Code != 200 || recorder.Body.String() != "theirs" || recorder.Header().Get("Idempotent-Replayed") != "true" {
		t.Error(recorder.Code, recorder.Body, recorder.Header())
	}
}

func TestAHandlerRunsToItsEndWhenItsClientLeavesAndAStreamDoesNot(t *testing.T) {
	fake := &semeltest.Fake{}
	s := newShop(t, semel.Middleware{Sidecar: fake.Sidecar(semel.Options{})})
	for path, want := range map[string]api.Status{"/slow": api.StatusCompleted, "/endless": api.StatusReleased} {
		key := semel.NewKey()
		ctx, cancel := context.WithCancel(t.Context())
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+path, nil)
		req.Header.Set(semel.KeyHeader, key)
		left := make(chan struct{})
		go func() {
			defer close(left)
			if response, err := http.DefaultClient.Do(req); err == nil {
				_, _ = io.ReadAll(response.Body)
			}
		}()
		eventually(t, func() bool { return s.ran(path) == 1 })
		cancel()
		<-left
		eventually(t, func() bool { return fake.State("http", key) == want })
	}
}

func eventually(t *testing.T, is func() bool) {
	t.Helper()
	for range 1000 {
		if is() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Error("it never came to that")
}

func TestRequestsThatCannotBeKeyedAreRefused(t *testing.T) {
	fake := &semeltest.Fake{}
	s := newShop(t, semel.Middleware{Sidecar: fake.Sidecar(semel.Options{}), RequireKey: true})
	for want, request := range map[string][2]string{
		api.CodeKeyRequired: {"", "{}"}, api.CodeKeyInvalid: {"a b", "{}"}, api.CodePayloadInvalid: {"k-1", `{"a": 1, "a": 2}`},
		api.CodeBodyTooLarge: {"k-1", strings.Repeat(" ", 2*1024*1024+1)},
	} {
		response, text := s.post(t, "/charge", request[0], request[1])
		if codeOf(text) != want || response.StatusCode != api.Codes[want].Status {
			t.Errorf("%s: %d %s", want, response.StatusCode, text)
		}
	}
	if len(fake.Calls()) != 0 {
		t.Error(fake.Calls())
	}
}

func TestKeysOfTwoPrincipalsNeverMeet(t *testing.T) {
	fake := &semeltest.Fake{}
	user := func(r *http.Request) string { return r.Header.Get("X-User") }
	s := newShop(t, semel.Middleware{Sidecar: fake.Sidecar(semel.Options{}), Principal: user})
	for i, who := range []string{"ada", "bob", "ada"} {
		response, _ := s.post(t, "/charge", "k-1", "{}", "X-User", who, "Authorization", fmt.Sprint("Bearer ", i))
		if replayed := response.Header.Get("Idempotent-Replayed") == "true"; replayed != (i == 2) {
			t.Errorf("%d: %t", i, replayed)
		}
	}
	if s.ran("/charge") != 2 {
		t.Error(s.ran("/charge"))
	}
}

func TestOtherRequestsPassUnchanged(t *testing.T) {
	fake := &semeltest.Fake{}
	s := newShop(t, semel.Middleware{Sidecar: fake.Sidecar(semel.Options{})})
	for range 2 {
		if response, _ := s.post(t, "/status/201", "", "{}"); response.StatusCode != 201 {
			t.Error(response.StatusCode)
		}
	}
	if s.ran("/status/201") != 2 || len(fake.Calls()) != 0 {
		t.Error(s.ran("/status/201"), fake.Calls())
	}
}
