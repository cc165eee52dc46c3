// Package semeltest is for tests of code that uses package semel: a server in memory, a clock that the test moves, replies
// that get lost.
//
// It decides by the same table as the real one, for one process. That your service works with the real one is for a test
// with the real one to show. Its time is time.Now, so it works inside testing/synctest too.
package semeltest

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	semel "github.com/semel-rs/semel/sdks/go"
	"github.com/semel-rs/semel/sdks/go/api"
	"github.com/semel-rs/semel/sdks/go/internal/digest"
)

// Fake is a server in memory. It is an http.RoundTripper: Sidecar returns a client of it. The zero value is ready.
type Fake struct {
	// Lease is that of claims that ask for none: 30 s if zero.
	Lease time.Duration
	// Retention is that of claims that ask for none: a day if zero.
	Retention time.Duration
	// Unprotected is a server that only observes, or fails open.
	Unprotected bool

	mu      sync.Mutex
	records map[string]*record
	ahead   time.Duration
	fence   int64
	lose    int
	calls   []string
}

type record struct {
	state       api.Status
	fingerprint string
	token       semel.Secret
	fence       int64
	attempt     int64
	crash       api.Crash
	lease       time.Duration
	leaseEnd    time.Time
	retention   time.Duration
	expires     time.Time
	checkpoint  api.JSON
	answer      *api.AnswerInput
}

const maxAttempts = 3

// Sidecar returns a client of the fake. It retries fast, unless the options say otherwise.
func (f *Fake) Sidecar(options semel.Options) *semel.Sidecar {
	if options.Retry == (semel.RetryPolicy{}) {
		options.Retry = semel.RetryPolicy{Base: time.Millisecond, Cap: 10 * time.Millisecond, AttemptTimeout: 5 * time.Second, TotalTimeout: 10 * time.Second}
	}
	if options.Transport == nil {
		options.Transport = f
	}
	sidecar, err := semel.NewSidecar("http://semel.test", options)
	if err != nil {
		panic(err)
	}
	return sidecar
}

// Advance moves the clock: leases lapse, records expire.
func (f *Fake) Advance(span time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ahead += span
}

// LoseReplies carries the next requests out, and loses their answers.
func (f *Fake) LoseReplies(count int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lose += count
}

// Calls returns what was asked, in order: claim, renew, settle, look, keys, lookup.
func (f *Fake) Calls() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

// State returns where a key stands; "" if it is free and was never used.
func (f *Fake) State(scope, key string) api.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	if found := f.live(idOf("", scope, key)); found != nil {
		return found.state
	}
	return ""
}

func idOf(tenant, scope, key string) string {
	id := digest.Identity(digest.Name{Tenant: tenant, Scope: scope, Key: key}, nil)
	return hex.EncodeToString(id[:])
}

func (f *Fake) now() time.Time {
	return time.Now().Add(f.ahead)
}

// RoundTrip answers a request.
func (f *Fake) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		defer func() { _ = req.Body.Close() }()
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
	}
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	status, answer := f.route(strings.Split(strings.Trim(req.URL.Path, "/"), "/"), body)
	if f.lose > 0 {
		f.lose--
		return nil, errors.New("lost by the test")
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	media := "application/json"
	if status >= 400 {
		media = "application/problem+json"
	}
	return &http.Response{
		Status: http.StatusText(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {media}}, Body: io.NopCloser(bytes.NewReader(text)),
		ContentLength: int64(len(text)), Request: req,
	}, nil
}

// route carries one call out; the path begins with the API's version.
func (f *Fake) route(path []string, body []byte) (int, any) {
	if len(path) < 2 {
		return refused(api.CodeNotFound, nil)
	}
	if path[1] == "claims" && len(path) == 2 {
		f.calls = append(f.calls, "claim")
		var request api.ClaimRequest
		_ = json.Unmarshal(body, &request)
		return f.claim(request)
	}
	if path[1] == "lookups" {
		f.calls = append(f.calls, "lookup")
		var request api.LookupRequest
		_ = json.Unmarshal(body, &request)
		return f.look(idOf(request.Tenant, request.Scope, string(request.Key)))
	}
	action := "look"
	if len(path) > 3 {
		action = path[3]
	}
	f.calls = append(f.calls, action)
	id := path[2]
	switch action {
	case "look":
		return f.look(id)
	case "keys":
		var request api.KeysRequest
		_ = json.Unmarshal(body, &request)
		return http.StatusOK, api.KeysView{ID: id, Keys: keysOf(id, request.Names)}
	}
	var request api.SettleRequest
	_ = json.Unmarshal(body, &request)
	found := f.live(id)
	if found == nil || found.token != request.Token || found.fence != request.Fence {
		if action == "settle" && found != nil && isDone(found) {
			return refused(api.CodeLeaseNotHeld, viewOf(id, found, true))
		}
		return refused(api.CodeLeaseNotHeld, nil)
	}
	if action == "renew" {
		var renewal api.RenewRequest
		_ = json.Unmarshal(body, &renewal)
		return f.renew(id, found, renewal)
	}
	return f.settle(id, found, request)
}

func keysOf(id string, names []api.Name) map[string]string {
	identity, _ := hex.DecodeString(id)
	keys := map[string]string{}
	for _, name := range names {
		keys[string(name)] = digest.DownstreamKey(identity, string(name), nil)
	}
	return keys
}

func isDone(r *record) bool {
	return r.state == api.StatusCompleted || r.state == api.StatusFailed
}

func (f *Fake) live(id string) *record {
	if found := f.records[id]; found != nil && found.expires.After(f.now()) {
		return found
	}
	return nil
}

func (f *Fake) claim(request api.ClaimRequest) (int, any) {
	id := idOf(request.Tenant, request.Scope, string(request.Key))
	print := request.Fingerprint
	if request.Payload != nil {
		var err error
		if print, err = digest.Fingerprint([]digest.Part{{JSON: true, Data: request.Payload}}, nil); err != nil {
			return refused(api.CodePayloadInvalid, nil)
		}
	}
	if f.Unprotected {
		return http.StatusCreated, api.ClaimView{ID: id, Status: api.StatusUnprotected}
	}
	found, now := f.live(id), f.now()
	switch {
	case found == nil || found.state == api.StatusReleased:
		return f.won(id, f.first(request, print), request)
	case found.fingerprint != print:
		return refused(api.CodeConflict, nil)
	case isDone(found):
		return http.StatusOK, viewOf(id, found, true)
	case found.state == api.StatusRunning && found.token == request.Token:
		// As it stands (P6): who sends a claim again may find that its lease has lapsed meanwhile.
		return f.leaseOf(id, found, request)
	case found.state == api.StatusRunning && found.leaseEnd.After(now):
		return refused(api.CodeInFlight, nil)
	case found.state == api.StatusRunning && found.crash == api.CrashTakeover && found.attempt < maxAttempts:
		f.fence++
		found.token, found.fence, found.attempt = request.Token, f.fence, found.attempt+1
		return f.won(id, found, request)
	}
	found.state = api.StatusInDoubt
	return refused(api.CodeInDoubt, nil)
}

func (f *Fake) first(request api.ClaimRequest, print string) *record {
	f.fence++
	out := &record{
		state: api.StatusRunning, fingerprint: print, token: request.Token, fence: f.fence, attempt: 1,
		crash: api.CrashTakeover, lease: 30 * time.Second, retention: 24 * time.Hour,
	}
	if f.Lease > 0 {
		out.lease = f.Lease
	}
	if f.Retention > 0 {
		out.retention = f.Retention
	}
	if policy := request.Policy; policy != nil {
		if policy.LeaseMS != nil {
			out.lease = time.Duration(*policy.LeaseMS) * time.Millisecond
		}
		if policy.RetentionMS != nil {
			out.retention = time.Duration(*policy.RetentionMS) * time.Millisecond
		}
		if policy.Crash != "" {
			out.crash = policy.Crash
		}
	}
	return out
}

func (f *Fake) won(id string, r *record, request api.ClaimRequest) (int, any) {
	if f.records == nil {
		f.records = map[string]*record{}
	}
	f.records[id] = r
	r.leaseEnd, r.expires = f.now().Add(r.lease), f.now().Add(r.retention)
	return f.leaseOf(id, r, request)
}

func (f *Fake) leaseOf(id string, r *record, request api.ClaimRequest) (int, any) {
	view := viewOf(id, r, false)
	view.Status = api.StatusClaimed
	view.Lease = &api.LeaseView{
		Token: r.token, Fence: r.fence, Attempt: r.attempt, Crash: r.crash, Checkpoint: r.checkpoint,
		ExpiresInMS: r.lease.Milliseconds(), RenewEveryMS: r.lease.Milliseconds() / 3,
		DownstreamKeys: keysOf(id, request.Derive),
	}
	return http.StatusCreated, view
}

func (f *Fake) renew(id string, r *record, request api.RenewRequest) (int, any) {
	if r.state != api.StatusRunning {
		return refused(api.CodeLeaseNotHeld, nil)
	}
	r.leaseEnd = f.now().Add(r.lease)
	if request.Checkpoint != nil {
		r.checkpoint = request.Checkpoint
	}
	return http.StatusOK, api.RenewView{ID: id, Status: r.state, ExpiresInMS: r.lease.Milliseconds()}
}

func (f *Fake) settle(id string, r *record, request api.SettleRequest) (int, any) {
	outcome := request.Outcome
	if outcome == api.OutcomeRetry {
		outcome = api.OutcomeRelease
		if r.crash == api.CrashHold {
			outcome = api.OutcomeDoubt
		}
	}
	state := map[api.Outcome]api.Status{
		api.OutcomeComplete: api.StatusCompleted, api.OutcomeFail: api.StatusFailed,
		api.OutcomeRelease: api.StatusReleased, api.OutcomeDoubt: api.StatusInDoubt,
	}[outcome]
	if r.state != api.StatusRunning && r.state != state {
		return refused(api.CodeLeaseNotHeld, nil)
	}
	r.state, r.answer, r.expires = state, request.Answer, f.now().Add(r.retention)
	return http.StatusOK, viewOf(id, r, false)
}

func (f *Fake) look(id string) (int, any) {
	if found := f.live(id); found != nil {
		return http.StatusOK, viewOf(id, found, false)
	}
	return refused(api.CodeNotFound, nil)
}

func viewOf(id string, r *record, replayed bool) api.ClaimView {
	view := api.ClaimView{
		ID: id, Status: r.state, Replayed: replayed, Fence: &r.fence, Attempt: &r.attempt,
	}
	if isDone(r) {
		view.OriginalTime = "2026-01-01T00:00:00.000Z"
	}
	if isDone(r) && r.answer != nil {
		answer := api.AnswerView(*r.answer)
		view.Answer = &answer
	}
	return view
}

func refused(code string, claim any) (int, any) {
	known := api.Codes[code]
	document := map[string]any{
		"type": "urn:semel:problem:" + code, "title": known.Title, "detail": known.Title, "status": known.Status,
		"code": code, "retryable": known.Retryable,
	}
	if known.Retryable {
		document["retryAfterMs"] = 5
	}
	if claim != nil {
		document["claim"] = claim
	}
	return known.Status, document
}
