package semel

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/semel-rs/semel/sdks/go/api"
	"github.com/semel-rs/semel/sdks/go/internal/credentials"
	"github.com/semel-rs/semel/sdks/go/internal/digest"
)

const (
	maxRequestBytes = 2 * 1024 * 1024
	outcomeHeader   = "Semel-Outcome"
)

// What a principal's own key looks like.
var owned = regexp.MustCompile(`^p-[0-9a-f]{64}$`)

// Middleware makes HTTP requests with a key run once. What is kept of an answer, and what frees a key, is as in the
// sidecar's HTTP layer. Put it inside whatever authenticates.
//
//	semel.Middleware{Sidecar: sidecar, Scope: "charges"}.Handler(mux)
//
// The handler finds its lease by LeaseOf(r.Context()). A handler runs to its end when its client leaves: its context
// doesn't end with the connection, unless its answer is a stream that is being sent.
type Middleware struct {
	// Sidecar is asked for the right to run.
	Sidecar *Sidecar
	// Scope is what is done, for the server's policies and figures; "http" if empty.
	Scope string
	// ScopeOf names the scope of each request, instead of Scope.
	ScopeOf func(*http.Request) string
	// Principal says whose request it is, so that keys of two principals never meet. Where it says "", or is nil, the
	// credentials count as payload: another caller with the same key gets a conflict, and never the answer.
	Principal func(*http.Request) string
	// Methods need a key or may have one; POST and PATCH if nil.
	Methods []string
	// RequireKey refuses requests without a key.
	RequireKey bool
	// Terms are those of the middleware's operations.
	Terms Terms
	// IgnoreHost is for services that go by several names: the requested host is then no part of the payload.
	IgnoreHost bool
	// KeepHeaders names further headers of answers to keep.
	KeepHeaders []string
	// CredentialHeaders names further headers that count as credentials.
	CredentialHeaders []string
	// Cookies names the cookies that count as credentials; all of them if nil.
	Cookies []string
}

// Handler wraps next.
func (m Middleware) Handler(next http.Handler) http.Handler {
	if m.Sidecar == nil {
		panic("semel: a Middleware needs a Sidecar")
	}
	if m.Methods == nil {
		m.Methods = []string{http.MethodPost, http.MethodPatch}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(m.Methods, r.Method) {
			next.ServeHTTP(w, r)
			return
		}
		key, err := keyOfLines(append(slices.Clone(r.Header.Values(KeyHeader)), r.Header.Values("X-Idempotency-Key")...))
		switch {
		case err != nil:
			ofError(err).send(w)
		case key == "" && m.RequireKey:
			refusal(api.CodeKeyRequired, false).send(w)
		case key == "":
			next.ServeHTTP(w, r)
		default:
			m.serve(w, r, key, next)
		}
	})
}

// serve answers a request with a key: by its handler, or by an earlier answer.
func (m Middleware) serve(w http.ResponseWriter, r *http.Request, key string, next http.Handler) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequestBytes))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			refusal(api.CodeBodyTooLarge, false).send(w)
		} else {
			refusal(api.CodeBodyBroken, true).send(w)
		}
		return
	}
	request, anonymous, err := m.claimRequest(r, key, body)
	if err != nil {
		ofError(err).send(w)
		return
	}
	view, lease, err := m.Sidecar.admit(r.Context(), request)
	switch {
	case err != nil:
		ofError(err).send(w)
	case lease == nil:
		replayed(view).send(w)
	default:
		lease.anonymous = anonymous
		r.Body = io.NopCloser(bytes.NewReader(body))
		m.run(w, r, lease, next)
	}
}

func (m Middleware) claimRequest(r *http.Request, key string, body []byte) (request api.ClaimRequest, anonymous bool, err error) {
	principal, scope := "", m.Scope
	if m.Principal != nil {
		principal = m.Principal(r)
	}
	if m.ScopeOf != nil {
		scope = m.ScopeOf(r)
	}
	set(&scope, "http")
	if key, err = ownedKey(principal, key); err != nil {
		return request, false, err
	}
	var counted []credentials.Counted
	if principal == "" {
		rules := credentials.Rules{Headers: m.CredentialHeaders, Cookies: m.Cookies}
		counted = rules.Count(r.Header, certificateOf(r))
	}
	terms := m.Terms.over(m.Sidecar.options.Terms)
	if request, err = m.Sidecar.claimRequest(Operation{Scope: scope, Key: key}, terms); err != nil {
		return request, false, err
	}
	request.Fingerprint, err = requestFingerprint(r, !m.IgnoreHost, body, counted)
	return request, principal == "" && !credentials.Any(counted), payloadError(err)
}

// ownedKey is the key to claim: keys of two principals never meet. What looks like a principal's own is nobody else's.
func ownedKey(principal, key string) (string, error) {
	if principal == "" {
		if owned.MatchString(key) {
			return "", &KeyError{Reason: "character"}
		}
		return key, nil
	}
	text := binary.LittleEndian.AppendUint64(nil, uint64(len(principal)))
	sum := sha256.Sum256(append(append(text, principal...), key...))
	return "p-" + hex.EncodeToString(sum[:]), nil
}

func certificateOf(r *http.Request) string {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return ""
	}
	sum := sha256.Sum256(r.TLS.PeerCertificates[0].Raw)
	return hex.EncodeToString(sum[:])
}

// requestFingerprint is of method, host, path, query, media type and body; JSON by its meaning.
func requestFingerprint(r *http.Request, withHost bool, body []byte, counted []credentials.Counted) (string, error) {
	host := ""
	if withHost {
		host = strings.ToLower(strings.TrimSpace(r.Host))
	}
	path, query := r.URL.EscapedPath(), r.URL.RawQuery
	if strings.HasPrefix(r.RequestURI, "/") {
		// As it was sent, whatever an outer handler has stripped of it.
		path, query, _ = strings.Cut(r.RequestURI, "?")
	}
	media := r.Header.Get("Content-Type")
	essence, _, hasParameters := strings.Cut(media, ";")
	essence = strings.ToLower(strings.TrimSpace(essence))
	saysJSON := essence == "application/json" || essence == "text/json" || strings.HasSuffix(essence, "+json")
	// JSON has no parameters that matter; those of other types do.
	if saysJSON || !hasParameters {
		media = essence
	}
	parts := []digest.Part{
		digest.Raw(strings.ToUpper(r.Method)), digest.Raw(host), digest.Raw(path), digest.Raw(query), digest.Raw(media),
		{JSON: saysJSON && len(body) > 0, Data: body},
	}
	for _, name := range []string{"content-encoding", "x-http-method-override", "x-http-method", "x-method-override"} {
		if lines := r.Header.Values(name); len(lines) > 0 {
			parts = append(parts, digest.Raw(name), digest.Raw(strings.Join(lines, "\n")))
		}
	}
	for i, c := range counted {
		if i >= credentials.Always {
			parts = append(parts, digest.Raw(c.Name))
		}
		parts = append(parts, digest.Raw(strings.Join(c.Values, "\n")))
	}
	return digest.Fingerprint(parts, nil)
}

// run runs the handler under its lease, and records its answer before it is sent.
func (m Middleware) run(w http.ResponseWriter, r *http.Request, lease *Lease, next http.Handler) {
	held, stop := lease.keep(context.WithoutCancel(r.Context()))
	defer stop()
	handling, end := context.WithCancel(context.WithValue(held, leaseContext{}, lease))
	defer end()
	if !lease.Protected() {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), leaseContext{}, lease)))
		return
	}
	answer := &gathered{to: w, header: w.Header().Clone(), client: r.Context(), leave: end}
	returned := false
	defer func() {
		if !returned {
			// It panicked. Unless it said more, that is an error of the service; the server ends the connection.
			_ = lease.settle(handling, outcomeOfStatus(http.StatusInternalServerError, answer.said(), false, ""), nil)
		}
	}()
	next.ServeHTTP(answer, r.WithContext(handling))
	returned = true
	answer.end()
	status := answer.status
	if answer.broken() {
		status = http.StatusInternalServerError
	}
	outcome := outcomeOfStatus(status, answer.said(), lease.anonymous, answer.header.Get("Location"))
	keeps := (outcome == api.OutcomeComplete || outcome == api.OutcomeFail) && !answer.broken()
	var kept *api.AnswerInput
	if keeps {
		kept = answer.kept(m.KeepHeaders)
	}
	if err := lease.settle(handling, outcome, kept); err != nil && keeps && !answer.passing {
		unsettled(err).send(w)
		return
	}
	answer.release()
}

// outcomeOfStatus is what an answer says about the effect. One that asks for credentials isn't kept for a request that had
// none.
func outcomeOfStatus(status int, said string, anonymous bool, location string) api.Outcome {
	switch {
	case said == "no-effect":
		return api.OutcomeRelease
	case said == "unknown":
		return api.OutcomeDoubt
	case said == "" && (anonymous && credentials.AsksToSignIn(status, location) || slices.Contains(notNow, status)):
		return api.OutcomeRelease
	case status >= 500:
		return api.OutcomeRetry
	case status >= 400:
		return api.OutcomeFail
	}
	return api.OutcomeComplete
}

// Statuses of a request that may be done later.
var notNow = []int{401, 407, 408, 409, 425, 429}
