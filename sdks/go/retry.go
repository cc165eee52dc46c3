package semel

import (
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/semel-rs/semel/sdks/go/api"
)

// Statuses that are asked again where the answer itself doesn't say: with a key, that is safe.
var retryable = []int{408, 425, 429, 500, 502, 503, 504}

// Codes that say that this attempt did nothing. Being told to wait is none of them: the key is running then, and the
// operation may be done.
var notStarted = []string{
	api.CodeStoreUnavailable, api.CodeLate, api.CodeBodyBroken, api.CodeBodySlow,
	"upstream_unreachable", api.CodeAuditUnavailable,
}

// Codes of a server in good health that asks for patience: bounded by time, not by attempts.
var waiting = []string{api.CodeInFlight, api.CodeTooManyWaiters}

const maxProblemBytes = 64 * 1024

// RetryPolicy says how often and how long to ask. What is zero has its default.
type RetryPolicy struct {
	// MaxAttempts is the most attempts of one call, 6 by default; being told to wait for a run under way doesn't count.
	MaxAttempts int
	// Base bounds the first pause, which is random: 200 ms by default. The bound doubles with each attempt.
	Base time.Duration
	// Cap is the bound's bound: 10 s by default.
	Cap time.Duration
	// AttemptTimeout is for one attempt: 35 s by default, longer than the server waits for a run under way, which is 30.
	AttemptTimeout time.Duration
	// TotalTimeout is for all of them, pauses included: 2 minutes by default. A context may end it earlier.
	TotalTimeout time.Duration
	// MaxRetryAfter is how long a pause the server may ask for: 1 minute by default. A longer one isn't waited for.
	MaxRetryAfter time.Duration
}

func orElse[T int | float64 | time.Duration](value, byDefault T) T {
	if value <= 0 {
		return byDefault
	}
	return value
}

func (p RetryPolicy) withDefaults() RetryPolicy {
	return RetryPolicy{
		MaxAttempts:    orElse(p.MaxAttempts, 6),
		Base:           orElse(p.Base, 200*time.Millisecond),
		Cap:            orElse(p.Cap, 10*time.Second),
		AttemptTimeout: orElse(p.AttemptTimeout, 35*time.Second),
		TotalTimeout:   orElse(p.TotalTimeout, 2*time.Minute),
		MaxRetryAfter:  orElse(p.MaxRetryAfter, time.Minute),
	}
}

// within is the policy for what is worth doing only until a moment: as often as fits.
func (p RetryPolicy) within(span time.Duration) RetryPolicy {
	p = p.withDefaults()
	p.MaxAttempts = math.MaxInt
	p.Cap = min(p.Cap, max(span/4, 50*time.Millisecond))
	p.AttemptTimeout = min(p.AttemptTimeout, max(span/2, 100*time.Millisecond))
	p.TotalTimeout = max(span, 100*time.Millisecond)
	return p
}

// RetryBudget bounds the retries of all calls that share it: a reserve, and a share of the calls. When a server is down,
// every client that retries multiplies its load; the budget bounds that. The zero value has the defaults.
type RetryBudget struct {
	// Reserve is how many retries may be spent at once: 100 by default, none if negative.
	Reserve float64
	// PerCall is what each call adds: 0.2 by default, nothing if negative.
	PerCall float64

	mu    sync.Mutex
	spent float64
}

func share(value, byDefault float64) float64 {
	if value == 0 {
		return byDefault
	}
	return max(value, 0)
}

// call is a first attempt, which earns its share.
func (b *RetryBudget) call() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spent = max(0, b.spent-share(b.PerCall, 0.2))
}

// retry reports whether one more retry may be spent.
func (b *RetryBudget) retry() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if share(b.Reserve, 100)-b.spent < 1 {
		return false
	}
	b.spent++
	return true
}

// reply is an answer that was read to its end.
type reply struct {
	status int
	header http.Header
	body   []byte
	// The answer as it came, without its body.
	response *http.Response
}

// problem is what an answer says about itself.
type problem struct {
	code       string
	retryable  *bool
	retryAfter *time.Duration
	document   map[string]json.RawMessage
}

func isJSON(contentType string) bool {
	media, _, _ := mime.ParseMediaType(contentType)
	return media == "application/json" || strings.HasSuffix(media, "+json")
}

// problem reads the problem document, if there is one. A service writes what it likes under these names: what isn't of the
// kind that is read here is left out.
func (r *reply) problem() problem {
	var out problem
	if r.status < 400 || len(r.body) > maxProblemBytes || !isJSON(r.header.Get("Content-Type")) {
		return out
	}
	if json.Unmarshal(r.body, &out.document) != nil {
		return problem{}
	}
	out.code, _ = member[string](out.document, "code")
	if again, ok := member[bool](out.document, "retryable"); ok {
		out.retryable = &again
	}
	if count, ok := member[float64](out.document, "retryAfterMs"); ok && count >= 0 && count < 1e12 {
		out.retryAfter = new(time.Duration(count * float64(time.Millisecond)))
	}
	return out
}

// member reads a member of a document, if it is there and of the type.
func member[T any](document map[string]json.RawMessage, name string) (T, bool) {
	var value *T
	if err := json.Unmarshal(document[name], &value); err != nil || value == nil {
		var zero T
		return zero, false
	}
	return *value, true
}

// after is how long the server asks to wait: the finer of what it says.
func (r *reply) after(p problem, now time.Time) (time.Duration, bool) {
	if p.retryAfter != nil {
		return *p.retryAfter, true
	}
	text := strings.TrimSpace(r.header.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(text, 10, 32); err == nil && len(text) < 10 {
		return time.Duration(seconds) * time.Second, true
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(now)), true
	}
	return 0, false
}

// problemError is the error for a refusal.
func (r *reply) problemError() *ProblemError {
	p := r.problem()
	out := &ProblemError{Status: r.status, Code: p.code, document: p.document}
	if p.retryable != nil {
		out.Retryable = *p.retryable
	}
	if p.retryAfter != nil {
		out.RetryAfter = *p.retryAfter
	}
	out.ClaimID, _ = member[string](p.document, "claimId")
	for _, name := range []string{"title", "detail"} {
		if text, _ := member[string](p.document, name); text != "" {
			out.Detail = text
		}
	}
	if out.Detail == "" {
		out.Detail = "the server refused"
	}
	return out
}

// verdict is what an answer means for the next attempt.
type verdict struct {
	again       bool
	waits       bool
	after       time.Duration
	asksToWait  bool
	nothingDone bool
}

// judge says whether to ask again. What the answer says itself counts more than its status.
func judge(r *reply, now time.Time) verdict {
	p := r.problem()
	after, asksToWait := r.after(p, now)
	out := verdict{after: after, asksToWait: asksToWait}
	if p.retryable != nil {
		out.again = *p.retryable && r.status >= 400
	} else {
		// A plain 409 may be a conflict for good; one that names a time is not.
		out.again = slices.Contains(retryable, r.status) || (r.status == http.StatusConflict && asksToWait)
	}
	out.waits = slices.Contains(waiting, p.code)
	out.nothingDone = slices.Contains(notStarted, p.code)
	return out
}

// course is the attempts of one call: how many, how long, when the next.
type course struct {
	policy RetryPolicy
	budget *RetryBudget // nil has no bound
	key    string
	chance func() float64

	end      time.Time
	counted  int
	attempts int
	// Whether it may have been done, as far as is known.
	unknown bool
	// When the last attempt was begun.
	sentAt time.Time
	// When the first was begun that may have arrived, and of which nobody said what became of it.
	unansweredAt time.Time
}

func newCourse(policy RetryPolicy, budget *RetryBudget, key string, unknown bool) *course {
	policy = policy.withDefaults()
	if budget != nil {
		budget.call()
	}
	end := time.Now().Add(policy.TotalTimeout)
	return &course{policy: policy, budget: budget, key: key, unknown: unknown, end: end, chance: rand.Float64}
}

// begin begins an attempt, and returns the time that it may take.
func (c *course) begin() time.Duration {
	c.attempts++
	c.sentAt = time.Now()
	return max(time.Millisecond, min(c.policy.AttemptTimeout, c.end.Sub(c.sentAt)))
}

// afterAnswer returns the pause before the next attempt; or false where this answer is the last.
func (c *course) afterAnswer(r *reply) (time.Duration, bool, error) {
	v := judge(r, time.Now())
	if !v.again {
		return 0, false, nil
	}
	c.unknown = c.unknown || !v.nothingDone
	if !v.waits {
		// A server that lost its store's reply says that nothing was started. Its claim may stand all the same.
		c.unanswered()
	}
	pause, err := c.pause("the last answer was "+strconv.Itoa(r.status), v, r, nil)
	return pause, true, err
}

// afterError returns the pause after an attempt without an answer.
func (c *course) afterError(err error, neverSent bool) (time.Duration, error) {
	if !neverSent {
		c.unknown = true
		c.unanswered()
	}
	return c.pause("the last attempt had no answer", verdict{}, nil, err)
}

func (c *course) unanswered() {
	if c.unansweredAt.IsZero() {
		c.unansweredAt = c.sentAt
	}
}

func (c *course) pause(reason string, v verdict, r *reply, err error) (time.Duration, error) {
	policy := c.policy
	if !v.waits {
		c.counted++
	}
	bound := min(float64(policy.Cap), float64(policy.Base)*math.Pow(2, float64(min(c.attempts-1, 32))))
	// What the server asks for is the least, and the jitter comes on top: all who were told the same come apart.
	pause := v.after + time.Duration(c.chance()*bound)
	switch {
	case !v.waits && c.counted >= policy.MaxAttempts:
		return 0, c.gaveUp(reason, r, err)
	case v.asksToWait && v.after > policy.MaxRetryAfter:
		return 0, c.gaveUp(reason+", which asks to wait "+v.after.Round(time.Second).String(), r, err)
	case !time.Now().Add(pause).Before(c.end):
		return 0, c.gaveUp(reason+", and the time is up", r, err)
	case !v.waits && c.budget != nil && !c.budget.retry():
		return 0, c.gaveUp(reason+", and the retry budget is spent", r, err)
	}
	return pause, nil
}

func (c *course) gaveUp(reason string, r *reply, err error) *GaveUpError {
	out := &GaveUpError{Attempts: c.attempts, Reason: reason, Unknown: c.unknown, Err: err, key: Secret(c.key)}
	if r != nil {
		out.Status = r.status
		if p := r.problemError(); p.Code != "" {
			out.Err = p
		}
	}
	return out
}

// attempt asks once. Whether nothing was sent is for errors alone.
type attempt func(ctx context.Context, number int) (r *reply, neverSent bool, err error)

// ask sends until there is an answer: the only loop of this package that does.
func (c *course) ask(ctx context.Context, once attempt) (*reply, error) {
	for {
		within, cancel := context.WithTimeout(ctx, c.begin())
		r, neverSent, err := once(within, c.attempts)
		cancel()
		var pause time.Duration
		if err == nil {
			again := false
			if pause, again, err = c.afterAnswer(r); !again {
				return r, nil
			}
		} else if isFinal(err) {
			return nil, err
		} else {
			cause := ctx.Err()
			if pause, err = c.afterError(err, neverSent); cause != nil {
				return nil, c.gaveUp("as its context ended", nil, cause)
			}
		}
		if err != nil {
			return nil, err
		}
		if err := sleep(ctx, pause); err != nil {
			return nil, c.gaveUp("as its context ended", r, err)
		}
	}
}

func sleep(ctx context.Context, span time.Duration) error {
	timer := time.NewTimer(span)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
