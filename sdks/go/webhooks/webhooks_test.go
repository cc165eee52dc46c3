package webhooks_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	semel "github.com/semel-rs/semel/sdks/go"
	"github.com/semel-rs/semel/sdks/go/api"
	"github.com/semel-rs/semel/sdks/go/internal/vectors"
	"github.com/semel-rs/semel/sdks/go/semeltest"
	"github.com/semel-rs/semel/sdks/go/webhooks"
)

const (
	secret = "whsec_test"
	event  = `{"id":"evt_1"}`
)

type vector struct {
	Name      string
	Source    string
	Preset    string
	Secrets   []string
	Headers   [][2]string
	Body      string
	Now       int64
	Tolerance *int64
	Refused   *webhooks.Reason
	ID        string
}

var presets = map[string]webhooks.Preset{
	"stripe": webhooks.Stripe, "github": webhooks.GitHub, "shopify": webhooks.Shopify,
	"slack": webhooks.Slack, "standard": webhooks.Standard,
}

func TestVectorsOfWebhooks(t *testing.T) {
	for _, c := range vectors.Cases[vector](t, "webhooks.json", "cases") {
		t.Run(c.Name, func(t *testing.T) {
			verifier := verifierOf(t, presets[c.Preset], c.Secrets...)
			verifier.Now = func() time.Time { return time.Unix(c.Now, 0) }
			if c.Tolerance != nil {
				verifier.Tolerance = time.Duration(*c.Tolerance) * time.Second
			}
			header := http.Header{}
			for _, line := range c.Headers {
				header.Add(line[0], line[1])
			}
			found, err := verifier.Verify(header, []byte(c.Body))
			if c.Refused == nil {
				if err != nil || found.ID != c.ID || found.Provider != c.Preset || string(found.Body()) != c.Body {
					t.Error(found, err)
				}
				return
			}
			if refused, ok := errors.AsType[*webhooks.RefusedError](err); !ok || refused.Reason != *c.Refused {
				t.Errorf("%v, not %s", err, *c.Refused)
			}
		})
	}
}

func verifierOf(t *testing.T, preset webhooks.Preset, secrets ...string) *webhooks.Verifier {
	t.Helper()
	verifier, err := webhooks.New(preset, secrets...)
	if err != nil {
		t.Fatal(err)
	}
	return verifier
}

func signatureOf(body, secret string) string {
	seconds := fmt.Sprint(time.Now().Unix())
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(seconds + "." + body))
	return "t=" + seconds + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}

func TestAVerifierNeedsSecretsAndShowsNone(t *testing.T) {
	for _, secrets := range [][]string{nil, {""}, {secret, ""}} {
		if verifier, err := webhooks.New(webhooks.Stripe, secrets...); err == nil {
			t.Error(verifier)
		}
	}
	if verifier, err := webhooks.New(webhooks.Standard, "whsec_!"); err == nil {
		t.Error(verifier)
	}
	verifier := verifierOf(t, webhooks.Stripe, secret)
	signature := signatureOf(event, secret)
	found, err := verifier.Verify(http.Header{"Stripe-Signature": {signature}}, []byte(event))
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		shown := fmt.Sprintf(format+format, verifier, found)
		if strings.Contains(shown, secret) || strings.Contains(shown, signature) || strings.Contains(shown, event) {
			t.Error(shown)
		}
	}
}

func TestAnyIDMakesAKey(t *testing.T) {
	seen := map[string]bool{}
	for _, id := range []string{"a b", "é", strings.Repeat("x", 300)} {
		key := (&webhooks.Event{ID: id}).Key()
		if err := semel.CheckKey(key); err != nil || seen[key] {
			t.Error(key, err)
		}
		seen[key] = true
	}
	if key := (&webhooks.Event{ID: "evt_1"}).Key(); key != "evt_1" {
		t.Error(key)
	}
}

// An endpoint, and what it was asked to do.
type endpoint struct {
	handler webhooks.Handler
	fake    *semeltest.Fake
	seen    int
	value   any
	err     error
}

func newEndpoint(t *testing.T) *endpoint {
	t.Helper()
	out := &endpoint{fake: &semeltest.Fake{}}
	verifier := verifierOf(t, webhooks.Stripe, secret)
	verifier.MaxBody = 100
	out.handler = webhooks.Handler{
		Verifier: verifier,
		Sidecar:  out.fake.Sidecar(semel.Options{}),
		Handle: func(context.Context, *webhooks.Event) (any, error) {
			out.seen++
			return out.value, out.err
		},
	}
	return out
}

func (e *endpoint) send(method, body, signature string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(method, "/stripe", strings.NewReader(body))
	if signature != "" {
		request.Header.Set("Stripe-Signature", signature)
	}
	recorder := httptest.NewRecorder()
	e.handler.ServeHTTP(recorder, request)
	return recorder
}

func TestAnEndpointHandlesAnEventOnceAndAnswersEveryDelivery(t *testing.T) {
	e := newEndpoint(t)
	for number, given := range []struct {
		value any
		want  string
	}{{nil, ""}, {"challenge", "challenge"}, {map[string]int{"a": 1}, "{\"a\":1}\n"}} {
		e.value = given.value
		body := fmt.Sprintf(`{"id":"evt_%d"}`, number)
		for range 2 {
			if found := e.send("POST", body, signatureOf(body, secret)); found.Code != 200 || found.Body.String() != given.want {
				t.Error(found.Code, found.Body)
			}
		}
	}
	e.fake.Advance(72 * time.Hour)
	if found := e.send("POST", `{"id":"evt_0","pending":1}`, signatureOf(`{"id":"evt_0","pending":1}`, secret)); found.Code != 200 {
		t.Error(found.Code)
	}
	if e.seen != 3 {
		t.Error(e.seen)
	}
}

func TestAnEndpointRefusesWhatIsNoWebhook(t *testing.T) {
	e := newEndpoint(t)
	large := strings.Repeat("x", 101)
	for _, c := range []struct {
		method, body, signature string
		want                    int
	}{
		{"GET", "", "", 405},
		{"POST", large, signatureOf(large, secret), 413},
		{"POST", event, signatureOf(event, "other"), 401},
		{"POST", event, "?", 400},
		{"POST", event, "", 400},
	} {
		if found := e.send(c.method, c.body, c.signature); found.Code != c.want {
			t.Errorf("%d, not %d", found.Code, c.want)
		}
	}
	if e.seen != 0 || len(e.fake.Calls()) != 0 {
		t.Error(e.seen, e.fake.Calls())
	}
}

func TestAHandlerThatFailsLeavesTheEventToTheNextDelivery(t *testing.T) {
	e := newEndpoint(t)
	for _, c := range []struct {
		err  error
		want int
	}{{errors.New("no database"), 500}, {semel.ErrNoEffect, 500}, {nil, 200}, {errors.New("never"), 200}} {
		e.err = c.err
		if found := e.send("POST", event, signatureOf(event, secret)); found.Code != c.want {
			t.Errorf("%d, not %d", found.Code, c.want)
		}
	}
	if e.seen != 3 {
		t.Error(e.seen)
	}
}

// An error that can't be compared with another.
type listError []string

func (e listError) Error() string { return strings.Join(e, ", ") }

func TestAnErrorOfACallInsideTheHandlerLeavesTheEventToTheNextDelivery(t *testing.T) {
	unrecorded := &semel.UnrecordedError{Value: "charged"}
	for _, err := range []error{
		unrecorded,
		fmt.Errorf("charge: %w", unrecorded),
		&semel.AnswerNotKeptError{Size: 7},
		&semel.EffectFailedError{Replayed: true},
		&semel.ProblemError{Status: http.StatusGone, Code: api.CodeAnswerExpired},
		&semel.ProblemError{Status: http.StatusConflict, Code: api.CodeInDoubt},
		&webhooks.RefusedError{Reason: webhooks.Signature},
		listError{"no database", "no queue"},
	} {
		e := newEndpoint(t)
		for _, c := range []struct {
			err  error
			want int
		}{{err, 500}, {err, 500}, {nil, 200}} {
			e.err = c.err
			if found := e.send("POST", event, signatureOf(event, secret)); found.Code != c.want {
				t.Errorf("%v: %d, not %d", err, found.Code, c.want)
			}
		}
		if e.seen != 3 {
			t.Error(err, e.seen)
		}
	}
}

func TestAnEventWhoseAnswerIsGoneWasHandled(t *testing.T) {
	for _, code := range []string{api.CodeAnswerErased, api.CodeAnswerExpired} {
		e := newEndpoint(t)
		e.handler.Sidecar = sidecarThatAnswers(t, http.StatusGone, code)
		if found := e.send("POST", event, signatureOf(event, secret)); found.Code != 200 || found.Body.Len() != 0 || e.seen != 0 {
			t.Error(found.Code, found.Body, e.seen)
		}
	}
}

// sidecarThatAnswers gives every call the same problem.
func sidecarThatAnswers(t *testing.T, status int, code string) *semel.Sidecar {
	t.Helper()
	answer := func(r *http.Request) (*http.Response, error) {
		recorder := httptest.NewRecorder()
		recorder.Header().Set("Content-Type", "application/problem+json")
		recorder.WriteHeader(status)
		_, _ = fmt.Fprintf(recorder, `{"code":%q,"status":%d}`, code, status)
		return recorder.Result(), nil
	}
	out, err := semel.NewSidecar("http://semel.test", semel.Options{Transport: roundTrip(answer)})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAnErrorIsLoggedWithoutThePayload(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	logged := func(e *endpoint) string {
		var out bytes.Buffer
		slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
		e.send("POST", event, signatureOf(event, secret))
		return out.String()
	}
	own, refused := newEndpoint(t), newEndpoint(t)
	own.err = fmt.Errorf("charge: %w", &semel.UnrecordedError{Value: "4242"})
	refused.handler.Sidecar = sidecarThatAnswers(t, http.StatusForbidden, api.CodeForbidden)
	for _, c := range []struct {
		endpoint *endpoint
		want     string
	}{{own, "error=\"charge: semel: the effect ran"}, {refused, api.CodeForbidden}} {
		line := logged(c.endpoint)
		if !strings.Contains(line, "level=ERROR") || !strings.Contains(line, "provider=stripe") || !strings.Contains(line, c.want) {
			t.Errorf("%q", line)
		}
		if strings.Contains(line, "evt_1") || strings.Contains(line, "4242") {
			t.Errorf("%q", line)
		}
	}
	broken := httptest.NewRequest("POST", "/stripe", iotest.ErrReader(errors.New("the connection broke")))
	var out bytes.Buffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
	if own.handler.ServeHTTP(httptest.NewRecorder(), broken); out.Len() != 0 {
		t.Errorf("anybody can make it log %q", out.String())
	}
	fine, final := newEndpoint(t), newEndpoint(t)
	final.err = semel.Final("unknown customer")
	for _, e := range []*endpoint{fine, final} {
		if line := logged(e); line != "" {
			t.Errorf("%q", line)
		}
	}
}

func TestAHandlerThatFailsForGoodEndsTheDeliveries(t *testing.T) {
	e := newEndpoint(t)
	e.err = semel.Final("unknown customer")
	for range 2 {
		if found := e.send("POST", event, signatureOf(event, secret)); found.Code != 200 {
			t.Error(found.Code)
		}
	}
	if e.seen != 1 {
		t.Error(e.seen)
	}
}

func TestADeliveryWhileTheFirstIsHandledIsAskedToComeAgain(t *testing.T) {
	e := newEndpoint(t)
	e.handler.Terms.Wait = semel.NoWait
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	op := semel.Operation{Scope: "webhook-stripe", Key: "evt_1"}
	_, err := semel.Do(t.Context(), e.handler.Sidecar, op, func(context.Context, *semel.Lease) (any, error) {
		header := http.Header{"Stripe-Signature": {signatureOf(event, secret)}}
		_, err := e.handler.Run(ctx, header, []byte(event))
		return nil, err
	})
	if err == nil || e.seen != 0 {
		t.Error(err, e.seen)
	}
}
