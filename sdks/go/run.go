package semel

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/semel-rs/semel/sdks/go/api"
	"github.com/semel-rs/semel/sdks/go/internal/digest"
)

// maxBodyBytes: larger answers are not sent, as the server would not keep them.
const maxBodyBytes = 1024 * 1024

// NoWait, as Terms.Wait, refuses a duplicate at once. The caller's own retries still wait for the answer.
const NoWait time.Duration = -1

// Terms say how an operation is treated. What is zero is the server's choice.
type Terms struct {
	// Lease is how long the owner may be silent before it counts as gone. It is renewed by itself.
	Lease time.Duration
	// Retention is how long the answer is kept.
	Retention time.Duration
	// Crash says what becomes of the key if the owner vanishes.
	Crash Crash
	// Wait is how long the server lets a duplicate wait for the first, or NoWait.
	Wait time.Duration
	// Derive names downstream keys to come with the lease, which spares a round trip.
	Derive []string
	// Fingerprint keeps the payload inside this process, and sends a digest of it.
	Fingerprint bool
	// OnError is what an error means that nothing else decides: api.OutcomeRetry, the default, leaves it to the crash
	// policy (free under Takeover, in doubt under Hold); api.OutcomeDoubt and api.OutcomeRelease decide.
	OnError api.Outcome
	// Final are errors, by errors.Is, that are failures for good: kept, and given to everybody who asks again.
	Final []error
	// NoEffect are errors, by errors.Is, by which nothing happened: the key is free again.
	NoEffect []error
}

// over returns the terms, and for what they leave out those of all operations.
func (t Terms) over(all Terms) Terms {
	set(&t.Lease, all.Lease)
	set(&t.Retention, all.Retention)
	set(&t.Crash, all.Crash)
	set(&t.Wait, all.Wait)
	set(&t.OnError, all.OnError)
	set(&t.OnError, api.OutcomeRetry)
	t.Fingerprint = t.Fingerprint || all.Fingerprint
	if t.Derive == nil {
		t.Derive = all.Derive
	}
	if t.Final == nil {
		t.Final = all.Final
	}
	if t.NoEffect == nil {
		t.NoEffect = all.NoEffect
	}
	return t
}

func set[T comparable](value *T, byDefault T) {
	var zero T
	if *value == zero {
		*value = byDefault
	}
}

func (t Terms) overrides() *api.Overrides {
	var out api.Overrides
	if t.Lease > 0 {
		out.LeaseMS = new(t.Lease.Milliseconds())
	}
	if t.Retention > 0 {
		out.RetentionMS = new(t.Retention.Milliseconds())
	}
	if t.Wait != 0 {
		out.WaitMS, out.OnBusy = new(max(t.Wait, 0).Milliseconds()), api.BusyWait
		if *out.WaitMS == 0 {
			out.OnBusy = api.BusyRefuse
		}
	}
	out.Crash = t.Crash
	if out == (api.Overrides{}) {
		return nil
	}
	return &out
}

// Operation is what is asked for.
type Operation struct {
	// Scope is what is done, such as "charge".
	Scope string
	// Key is the same for every retry.
	Key string
	// Payload is any JSON: the same key with another payload is a conflict. Nil lets the key alone count.
	Payload any
	// Terms are the operation's own.
	Terms Terms
}

// Result is what became of an operation.
type Result[T any] struct {
	// Value is what the effect returned, now or in an earlier run, as JSON gives it back.
	Value T
	// Replayed says whether an earlier run answered.
	Replayed bool
	// Attempt counts the runs that were begun since the key was last free.
	Attempt int64
	// OriginalTime is when the key was first claimed.
	OriginalTime string
}

// Do runs effect unless it was done, and returns what it returned then. Errors are as with Run.
func Do[T any](ctx context.Context, s *Sidecar, op Operation, effect func(context.Context, *Lease) (T, error)) (T, error) {
	result, err := Run(ctx, s, op, effect)
	return result.Value, err
}

// Run runs effect unless it was done. The effect's context ends when its lease is lost, and has the lease (LeaseOf).
//
// It returns the error that the effect returned; *EffectFailedError if it failed for good, now or earlier; ErrConflict,
// ErrInDoubt and *GaveUpError if it didn't run; ErrLeaseLost and *UnrecordedError if it ran and that isn't recorded;
// *AnswerNotKeptError if it ran, now or earlier, and its answer can't be given back.
func Run[T any](ctx context.Context, s *Sidecar, op Operation, effect func(context.Context, *Lease) (T, error)) (Result[T], error) {
	var now T
	view, err := s.run(ctx, op, func(ctx context.Context, lease *Lease) (any, error) {
		var err error
		now, err = effect(ctx, lease)
		return now, err
	})
	if err != nil {
		return Result[T]{}, err
	}
	out := Result[T]{Value: now, Replayed: view.Replayed, OriginalTime: view.OriginalTime}
	if view.Attempt != nil {
		out.Attempt = *view.Attempt
	}
	if view.Status != api.StatusUnprotected {
		// Everybody gets what JSON gives back, the first caller too.
		var value T
		if err := valueOf(view, &value); err != nil {
			return Result[T]{}, err
		}
		out.Value = value
	}
	return out, nil
}

// run returns the claim with the answer to give: the effect's, or an earlier one.
func (s *Sidecar) run(ctx context.Context, op Operation, effect func(context.Context, *Lease) (any, error)) (*api.ClaimView, error) {
	terms := op.Terms.over(s.options.Terms)
	request, err := s.claimRequest(op, terms)
	if err != nil {
		return nil, err
	}
	view, lease, err := s.admit(ctx, request)
	if err != nil || lease == nil {
		return view, err
	}
	held, stop := lease.keep(ctx)
	defer stop()
	returned := false
	defer func() {
		if !returned {
			// It panicked, which may have been half-way.
			_ = lease.settle(ctx, terms.OnError, nil)
		}
	}()
	value, err := effect(context.WithValue(held, leaseContext{}, lease), lease)
	returned = true
	if !lease.Protected() {
		return view, err
	}
	if err != nil {
		return nil, lease.fail(ctx, err, terms)
	}
	return lease.complete(ctx, value, view)
}

func (s *Sidecar) claimRequest(op Operation, terms Terms) (api.ClaimRequest, error) {
	out := api.ClaimRequest{
		Scope: op.Scope, Key: Secret(op.Key), Token: newToken(),
		Tenant: s.options.Tenant, Actor: s.options.Actor, Policy: terms.overrides(),
	}
	for _, name := range terms.Derive {
		out.Derive = append(out.Derive, api.Name(name))
	}
	if err := CheckKey(op.Key); err != nil {
		return out, err
	}
	if op.Payload == nil {
		return out, nil
	}
	text, err := encode(op.Payload)
	if err != nil {
		return out, fmt.Errorf("semel: the payload is no JSON: %w", err)
	}
	if !terms.Fingerprint {
		out.Payload = text
		return out, nil
	}
	out.Fingerprint, err = digest.Fingerprint([]digest.Part{{JSON: true, Data: text}}, nil)
	return out, payloadError(err)
}

// admit returns an answer, or a lease that is still good when its effect starts.
func (s *Sidecar) admit(ctx context.Context, request api.ClaimRequest) (*api.ClaimView, *Lease, error) {
	for range 10 {
		view, since, err := s.claim(ctx, request)
		if err != nil {
			if ctx.Err() != nil {
				s.abandon(ctx, request)
			}
			return nil, nil, err
		}
		lease := newLease(s, view, since)
		if view.Status == api.StatusUnprotected {
			return view, lease, nil
		}
		if view.Status != api.StatusClaimed || view.Lease == nil {
			return view, nil, nil
		}
		good, err := lease.mayStart(ctx)
		if err != nil {
			return nil, nil, err
		}
		if good {
			return view, lease, nil
		}
		// The reply was so late that the lease had lapsed: ask anew.
		request.Token = newToken()
	}
	return nil, nil, fmt.Errorf("every lease had lapsed before its answer came: %w", ErrLeaseLost)
}

// abandon releases what a claim may have won whose caller left before its answer: under Hold, it would be in doubt for
// nothing. The same token finds the same lease (P6).
func (s *Sidecar) abandon(ctx context.Context, request api.ClaimRequest) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	policy := api.Overrides{}
	if request.Policy != nil {
		policy = *request.Policy
	}
	policy.WaitMS, policy.OnBusy = new(int64(0)), api.BusyRefuse
	request.Policy, request.Retry = &policy, true
	r, err := s.send(ctx, http.MethodPost, "v1/claims", request, time.Second)
	var view api.ClaimView
	if err == nil && r.read(&view) == nil && view.Lease != nil {
		_ = newLease(s, &view, r.sentAt).settle(ctx, api.OutcomeRelease, nil)
	}
}

// mayStart reports whether its deadline is still to come. A lease that was won past it is renewed, once (P30).
func (l *Lease) mayStart(ctx context.Context) (bool, error) {
	if l.Remaining() > 0 {
		return true, nil
	}
	if err := l.Renew(ctx); err != nil {
		if errors.Is(err, ErrLeaseLost) {
			err = nil
		}
		return false, err
	}
	if l.Remaining() > 0 {
		return true, nil
	}
	// The renewal's answer was late too. Nothing was started, so letting go is legal (P36), and what fails lapses.
	_ = l.settle(ctx, api.OutcomeRelease, nil)
	return false, nil
}

// outcomeOf is what an error says about the effect.
func outcomeOf(err error, terms Terms) (api.Outcome, *api.AnswerInput) {
	is := func(named []error) bool {
		for _, target := range named {
			if errors.Is(err, target) {
				return true
			}
		}
		return false
	}
	switch final, ok := errors.AsType[*finalError](err); {
	case errors.Is(err, ErrNoEffect) || is(terms.NoEffect):
		return api.OutcomeRelease, nil
	case errors.Is(err, ErrUnknown):
		return api.OutcomeDoubt, nil
	case ok:
		// One that is no JSON failed for good all the same, and must not run again.
		answer, _ := answerInput(final.answer)
		return api.OutcomeFail, answer
	case is(terms.Final):
		message := err.Error()
		answer, _ := answerInput(map[string]string{"error": fmt.Sprintf("%T", err), "message": message[:min(len(message), 4096)]})
		return api.OutcomeFail, answer
	}
	return terms.OnError, nil
}

// answerInput is the answer to keep. One that is no JSON is kept as one that can't be shown.
func answerInput(value any) (*api.AnswerInput, error) {
	text, err := encode(value)
	if err != nil {
		return &api.AnswerInput{BodyOmittedBytes: new(int64(0))}, err
	}
	if len(text) > maxBodyBytes {
		return &api.AnswerInput{BodyOmittedBytes: new(int64(len(text)))}, nil
	}
	return &api.AnswerInput{Body: text}, nil
}

// fail records what an error says, and returns the error to give. That it can't be recorded must not hide the error itself,
// unless it is a failure for good: one that isn't kept is none, and others may be told otherwise.
func (l *Lease) fail(ctx context.Context, err error, terms Terms) error {
	outcome, answer := outcomeOf(err, terms)
	second := l.settle(ctx, outcome, answer)
	switch {
	case outcome != api.OutcomeFail:
		return err
	case second == nil:
		return &EffectFailedError{Answer: answer.Body, Err: err}
	case errors.Is(second, ErrLeaseLost):
		return fmt.Errorf("it failed here, and the lease belonged to another owner by then; ask again for its answer: %w", ErrLeaseLost)
	}
	return &UnrecordedError{Value: answer.Body, Err: second}
}

func (l *Lease) complete(ctx context.Context, value any, view *api.ClaimView) (*api.ClaimView, error) {
	answer, notJSON := answerInput(value)
	if err := l.settle(ctx, api.OutcomeComplete, answer); err != nil {
		refused, ok := errors.AsType[*ProblemError](err)
		if !ok || refused.Code != api.CodeLeaseNotHeld {
			return nil, &UnrecordedError{Value: value, Err: err}
		}
		// Another run was quicker: its answer is everybody's.
		if other := refused.claim(); other != nil {
			other.Replayed = true
			return other, nil
		}
		return nil, fmt.Errorf("the effect ran, but the lease belonged to another owner by then: %w", ErrLeaseLost)
	}
	if notJSON != nil {
		return nil, &AnswerNotKeptError{Err: notJSON}
	}
	done := *view
	done.Status, done.Replayed = api.StatusCompleted, false
	text, _ := encode(value)
	done.Answer = &api.AnswerView{Body: text}
	return &done, nil
}

// valueOf reads what an earlier run returned, or returns the error that it returned.
func valueOf(view *api.ClaimView, into any) error {
	answer := view.Answer
	if answer == nil {
		answer = &api.AnswerView{}
	}
	switch {
	case view.Status == api.StatusFailed:
		return &EffectFailedError{Answer: answer.Body, Replayed: true}
	case view.Status != api.StatusCompleted:
		return fmt.Errorf("semel: no answer yet: %s", view.Status)
	case answer.BodyOmittedBytes != nil:
		return &AnswerNotKeptError{Size: *answer.BodyOmittedBytes}
	}
	text := []byte(answer.Body)
	if text == nil {
		if answer.BodyBase64 == "" {
			// An effect of another language that returned nothing kept nothing.
			return nil
		}
		// JSON with white space around it, as an operator's file has it, comes as the bytes that it is.
		text, _ = base64.StdEncoding.DecodeString(string(answer.BodyBase64))
		if !json.Valid(text) {
			return errors.New("semel: the answer isn't JSON: something else of this scope wrote it")
		}
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("semel: done; the answer doesn't fit %T: %w", into, err)
	}
	return nil
}
