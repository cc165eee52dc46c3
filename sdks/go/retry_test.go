package semel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-rs/semel/sdks/go/api"
)

func replyOf(status int, body string, header ...string) *reply {
	out := &reply{status: status, header: http.Header{"Content-Type": {"application/problem+json"}}, body: []byte(body)}
	for i := 0; i < len(header); i += 2 {
		out.header.Set(header[i], header[i+1])
	}
	return out
}

func TestWhatTheAnswerSaysCountsMoreThanItsStatus(t *testing.T) {
	for _, c := range []struct {
		reply *reply
		again bool
	}{
		{replyOf(503, `{}`), true},
		{replyOf(503, `{"retryable": false}`), false},
		{replyOf(422, `{}`), false},
		{replyOf(422, `{"retryable": true}`), true},
		{replyOf(200, `{"retryable": true}`), false},
		{replyOf(409, `{}`), false},
		{replyOf(409, `{}`, "Retry-After", "0"), true},
		{replyOf(503, `{"retryable": false}`, "Content-Type", "text/plain"), true},
	} {
		if v := judge(c.reply, time.Now()); v.again != c.again {
			t.Errorf("%d %s: %t", c.reply.status, c.reply.body, v.again)
		}
	}
}

func TestWhatIsNotOfTheKindThatIsReadIsLeftOut(t *testing.T) {
	for _, member := range []string{"retryable", "retryAfterMs", "code"} {
		for _, text := range []string{
			"[]", "{}", "null", "-1", "1e999", "NaN", "1" + strings.Repeat("0", 400), strings.Repeat("[", 60_000),
		} {
			r := replyOf(503, fmt.Sprintf(`{%q: %s}`, member, text), "Retry-After", "7")
			if got := judge(r, time.Now()); got != (verdict{again: true, after: 7 * time.Second, asksToWait: true}) {
				t.Errorf("%s: %.20s: %+v", member, text, got)
			}
		}
	}
}

func TestRetryAfterMayBeADate(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := now.Add(90 * time.Second).Format(http.TimeFormat)
	if after, ok := replyOf(503, "", "Retry-After", at).after(problem{}, now); !ok || after != 90*time.Second {
		t.Error(after, ok)
	}
	if _, ok := replyOf(503, "", "Retry-After", "soon").after(problem{}, now); ok {
		t.Error("soon is no time")
	}
}

func courseWith(policy RetryPolicy, chance float64) *course {
	c := newCourse(policy, &RetryBudget{}, "k-1", false)
	c.chance = func() float64 { return chance }
	return c
}

func TestPausesHaveFullJitterAndACap(t *testing.T) {
	policy := RetryPolicy{MaxAttempts: 9, Base: time.Second, Cap: 5 * time.Second, TotalTimeout: 1000 * time.Second}
	for _, chance := range []float64{0, 0.5, 1} {
		c := courseWith(policy, chance)
		for _, bound := range []float64{1, 2, 4, 5, 5} {
			c.begin()
			pause, err := c.afterError(errors.New("gone"), false)
			if want := time.Duration(chance * bound * float64(time.Second)); err != nil || pause != want {
				t.Errorf("%v, not %v (%v)", pause, want, err)
			}
		}
	}
}

func TestRetryAfterIsTheLeastAndJitterComesOnTop(t *testing.T) {
	c := courseWith(RetryPolicy{Base: time.Second, TotalTimeout: 1000 * time.Second}, 1)
	c.begin()
	if pause, again, err := c.afterAnswer(replyOf(503, "", "Retry-After", "7")); !again || err != nil || pause != 8*time.Second {
		t.Error(pause, again, err)
	}
}

func TestAServerThatAsksForTooMuchIsNotWaitedFor(t *testing.T) {
	c := courseWith(RetryPolicy{MaxRetryAfter: 10 * time.Second, TotalTimeout: 1000 * time.Second}, 0)
	c.begin()
	_, _, err := c.afterAnswer(replyOf(503, "", "Retry-After", "11"))
	if _, ok := errors.AsType[*GaveUpError](err); !ok {
		t.Error(err)
	}
}

func TestWhatRunsUnderItsKeyMayBeDone(t *testing.T) {
	for code, unknown := range map[string]bool{
		"idempotency_too_many_waiters": true, "idempotency_in_flight": true, "idempotency_store_unavailable": false,
		"idempotency_shut_down": true,
	} {
		c := courseWith(RetryPolicy{Base: time.Second, TotalTimeout: time.Second}, 1)
		c.begin()
		_, _, err := c.afterAnswer(replyOf(503, fmt.Sprintf(`{"code": %q, "retryable": true}`, code)))
		if gaveUp, ok := errors.AsType[*GaveUpError](err); !ok || gaveUp.Unknown != unknown {
			t.Errorf("%s: %v", code, err)
		}
	}
}

func TestTheFirstAttemptThatMayHaveArrivedUnansweredIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := courseWith(RetryPolicy{MaxAttempts: 9, TotalTimeout: 1000 * time.Second}, 0)
		var third time.Time
		for i, then := range []func(){
			func() { _, _ = c.afterError(errors.New("never sent"), true) },
			func() { _, _, _ = c.afterAnswer(replyOf(409, `{"code": "idempotency_in_flight", "retryable": true}`)) },
			func() {
				_, _, _ = c.afterAnswer(replyOf(503, `{"code": "idempotency_store_unavailable", "retryable": true}`))
			},
			func() { _, _ = c.afterError(errors.New("gone"), false) },
		} {
			time.Sleep(time.Second)
			c.begin()
			if i == 2 {
				third = c.sentAt
			}
			then()
			if (i < 2) != c.unansweredAt.IsZero() || i >= 2 && c.unansweredAt != third {
				t.Errorf("%d: %v", i, c.unansweredAt)
			}
		}
	})
}

func TestTheBudgetStopsAStorm(t *testing.T) {
	budget := &RetryBudget{Reserve: 5, PerCall: 0.1}
	asked := 0
	for range 20 {
		c := newCourse(RetryPolicy{Base: time.Microsecond}, budget, "k", false)
		_, err := c.ask(t.Context(), func(context.Context, int) (*reply, bool, error) {
			asked++
			return replyOf(503, ""), false, nil
		})
		if _, ok := errors.AsType[*GaveUpError](err); !ok {
			t.Fatal(err)
		}
	}
	if asked <= 20 || asked > 20+5+2+1 {
		t.Errorf("%d requests", asked)
	}
	none := &RetryBudget{Reserve: -1, PerCall: -1}
	if none.call(); none.retry() {
		t.Error("there is no budget, and it was spent")
	}
}

func TestACallEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		c := newCourse(RetryPolicy{TotalTimeout: time.Hour, MaxAttempts: 1000}, nil, "k-1", false)
		_, err := c.ask(ctx, func(ctx context.Context, _ int) (*reply, bool, error) {
			<-ctx.Done()
			return nil, false, ctx.Err()
		})
		gaveUp, ok := errors.AsType[*GaveUpError](err)
		if !ok || !errors.Is(err, context.DeadlineExceeded) || !gaveUp.Unknown || gaveUp.Key() != "k-1" {
			t.Error(err)
		}
	})
}

func TestNothingPrintsKeysPayloadsOrTokens(t *testing.T) {
	const secret = "5ecret-text"
	sidecar, err := NewSidecar("https://semel.test", Options{Token: secret})
	if err != nil {
		t.Fatal(err)
	}
	text := json.RawMessage(`"` + secret + `"`)
	view := &ProblemError{Code: "x", document: map[string]json.RawMessage{"a": text}}
	req := &storedRequest{Body: []byte(secret)}
	values := []any{
		sidecar, Options{Token: secret}, &GaveUpError{key: secret}, &EffectFailedError{Answer: []byte(text)}, view,
		&UnrecordedError{Value: secret}, Final(secret), Answer{key: secret}, &Call{entry: entry{key: secret, request: req}},
		&Lease{sidecar: sidecar, view: leaseViewWith(secret)}, leaseViewWith(secret), &Job{view: jobView{Result: []byte(text)}},
		&url.Error{Op: "Post", URL: "x", Err: &GaveUpError{key: secret}},
	}
	for _, value := range values {
		for _, form := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			printed := fmt.Sprintf(form, value)
			for _, shape := range []string{secret, fmt.Sprintf("%x", secret), strings.Trim(fmt.Sprint([]byte(secret)), "[]")} {
				if strings.Contains(printed, shape) {
					t.Errorf("%T: %s prints it: %s", value, form, printed)
				}
			}
		}
	}
}

func leaseViewWith(secret Secret) api.LeaseView {
	return api.LeaseView{Token: secret, Checkpoint: []byte(secret), DownstreamKeys: map[string]string{"a": "b"}}
}

func TestTokensGoToOtherMachinesEncryptedOrNotAtAll(t *testing.T) {
	const token Secret = "0123456789abcdef"
	for _, base := range []string{"http://semel.internal:8080", "http://192.0.2.1", "http://[2001:db8::1]:80"} {
		if _, err := NewSidecar(base, Options{Token: token}); err == nil || !strings.Contains(err.Error(), "in the clear") {
			t.Errorf("%s: %v", base, err)
		}
		if _, err := NewQueue(base, Options{Token: token}); err == nil {
			t.Errorf("%s: a queue", base)
		}
		if _, err := NewSidecar(base, Options{}); err != nil {
			t.Error(err)
		}
		if _, err := NewSidecar(base, Options{Token: token, Transport: http.DefaultTransport}); err != nil {
			t.Error(err)
		}
	}
	for _, base := range []string{"https://semel.internal", "http://127.0.0.1:8080", "http://localhost", "http://[::1]:8080"} {
		if _, err := NewSidecar(base, Options{Token: token}); err != nil {
			t.Error(err)
		}
	}
	for _, base := range []string{"", "127.0.0.1:8080", "ftp://a", "/_semel"} {
		if _, err := NewSidecar(base, Options{}); err == nil {
			t.Errorf("%q is no URL", base)
		}
	}
}

func TestTermsAreMergedFieldByField(t *testing.T) {
	all := Terms{Crash: Hold, Lease: time.Second, Derive: []string{"psp"}}
	merged := Terms{Lease: time.Minute, Wait: NoWait}.over(all)
	if merged.Crash != Hold || merged.Lease != time.Minute || !slices.Equal(merged.Derive, all.Derive) || merged.Wait != NoWait {
		t.Errorf("%+v", merged)
	}
	if over := merged.overrides(); *over.WaitMS != 0 || over.OnBusy != "refuse" || *over.LeaseMS != 60_000 || over.RetentionMS != nil {
		t.Errorf("%+v", over)
	}
}
