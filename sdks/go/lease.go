package semel

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/semel-rs/semel/sdks/go/api"
)

// Lease is the right to run, until a time. It renews itself in the background while its effect runs.
type Lease struct {
	sidecar    *Sidecar
	id         string
	view       api.LeaseView
	renewEvery time.Duration

	mu       sync.Mutex
	keys     map[string]string
	deadline time.Time
	lost     bool
	// Whether nothing says whose request it is.
	anonymous bool
}

// newLease is the lease of a view, which counts from a time; without a lease in the view, one that protects nothing.
func newLease(s *Sidecar, view *api.ClaimView, since time.Time) *Lease {
	out := &Lease{sidecar: s, id: view.ID, keys: map[string]string{}}
	if view.Lease != nil {
		out.view = *view.Lease
		out.renewEvery = ms(view.Lease.RenewEveryMS)
		out.deadline = since.Add(ms(view.Lease.ExpiresInMS))
		for name, key := range view.Lease.DownstreamKeys {
			out.keys[name] = key
		}
	}
	return out
}

// ID is the claim's id: for logs, and for an operator.
func (l *Lease) ID() string { return l.id }

// Protected reports whether the server enforces the scope. Without that (it only observes, or fails open), the effect runs
// all the same: checkpoints are not kept, and no keys are derived.
func (l *Lease) Protected() bool { return l.view.Token != "" }

// Fence is larger than that of any earlier lease of the key: a system that keeps the highest can refuse a lower one.
func (l *Lease) Fence() int64 { return l.view.Fence }

// Attempt is 1, or more if earlier owners vanished.
func (l *Lease) Attempt() int64 { return l.view.Attempt }

// Checkpoint reads what the last owner kept, if it vanished after that; it reports whether there is one.
func (l *Lease) Checkpoint(into any) (bool, error) {
	text := []byte(l.view.Checkpoint)
	if len(text) == 0 && l.view.CheckpointBase64 != "" {
		var err error
		if text, err = base64.StdEncoding.DecodeString(string(l.view.CheckpointBase64)); err != nil {
			return true, errors.New("semel: the checkpoint can't be read")
		}
	}
	if len(text) == 0 {
		return false, nil
	}
	return true, json.Unmarshal(text, into)
}

// Remaining is how long something may still be started; 0 or less if it is over.
func (l *Lease) Remaining() time.Duration {
	if !l.Protected() {
		return 1<<63 - 1
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost {
		return 0
	}
	return time.Until(l.deadline)
}

// Check returns ErrLeaseLost if nothing more may be started: ask before each step that can't be undone.
func (l *Lease) Check() error {
	if l.Remaining() <= 0 {
		return ErrLeaseLost
	}
	return nil
}

// Renew prolongs it now. ErrLeaseLost says that it belongs to another owner.
func (l *Lease) Renew(ctx context.Context) error {
	return l.renew(ctx, nil)
}

// SaveCheckpoint keeps progress (any JSON, at most 64 KiB) for the next owner, if this process vanishes.
func (l *Lease) SaveCheckpoint(ctx context.Context, value any) error {
	text, err := encode(value)
	if err != nil {
		return err
	}
	return l.renew(ctx, text)
}

func (l *Lease) renew(ctx context.Context, checkpoint api.JSON) error {
	if !l.Protected() {
		return nil
	}
	within := max(l.Remaining(), time.Second)
	request := api.RenewRequest{Token: l.view.Token, Fence: l.view.Fence, Checkpoint: checkpoint}
	r, err := l.sidecar.send(ctx, http.MethodPost, "v1/claims/"+l.id+"/renew", request, within)
	if err != nil {
		return err
	}
	var view api.RenewView
	if err := r.read(&view); err != nil {
		if errors.Is(err, ErrLeaseLost) {
			l.mu.Lock()
			l.lost = true
			l.mu.Unlock()
		}
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if until := r.sentAt.Add(ms(view.TookMS) + ms(view.ExpiresInMS)); until.After(l.deadline) {
		l.deadline = until
	}
	return nil
}

// DeriveKey returns the idempotency key for another system: the same on every attempt of this operation. Name the steps in
// Terms.Derive, and their keys come with the lease.
func (l *Lease) DeriveKey(ctx context.Context, step string) (string, error) {
	l.mu.Lock()
	key, known := l.keys[step]
	l.mu.Unlock()
	if known {
		return key, nil
	}
	if !l.Protected() {
		return "", ErrUnprotected
	}
	keys, err := l.sidecar.deriveKeys(ctx, l.id, []string{step})
	if err != nil {
		return "", err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keys[step] = keys[step]
	return keys[step], nil
}

// settle ends it. It is sent until it is acknowledged, for as long as the lease may live, whether its caller still waits
// or not.
func (l *Lease) settle(ctx context.Context, outcome api.Outcome, answer *api.AnswerInput) error {
	if !l.Protected() {
		return nil
	}
	within := max(l.Remaining(), 3*l.renewEvery)
	request := api.SettleRequest{Token: l.view.Token, Fence: l.view.Fence, Outcome: outcome, Answer: answer}
	r, err := l.sidecar.send(context.WithoutCancel(ctx), http.MethodPost, "v1/claims/"+l.id+"/settle", request, within)
	if err != nil {
		return err
	}
	return r.read(&api.SettleView{})
}

// keep renews it in the background until stop is called, which waits for that to end. The context that it returns ends
// when the lease is known to belong to another owner.
func (l *Lease) keep(ctx context.Context) (held context.Context, stop func()) {
	held, lost := context.WithCancelCause(ctx)
	if !l.Protected() {
		return held, func() { lost(context.Canceled) }
	}
	// A caller that leaves doesn't end the renewing: the effect may go on.
	renewing, end := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if errors.Is(l.renewing(renewing), ErrLeaseLost) {
			lost(ErrLeaseLost)
		}
	}()
	return held, func() {
		end()
		<-done
		lost(context.Canceled)
	}
}

// renewing renews until ctx ends, or the lease is another's.
func (l *Lease) renewing(ctx context.Context) error {
	pause := l.turn()
	for {
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		err := l.Renew(ctx)
		if errors.Is(err, ErrLeaseLost) {
			return err
		}
		pause = l.turn()
		if err != nil {
			// The deadline stands, and the next turn may do better; not at once, if a server only refuses.
			pause = max(pause, l.renewEvery/10)
		}
	}
}

// turn is the time until the next renewal: a third of the lease, and less if the last answer came late (P31).
func (l *Lease) turn() time.Duration {
	if left := l.Remaining(); left > 0 {
		return min(l.renewEvery, max(0, left-l.renewEvery))
	}
	return l.renewEvery
}

// Format prints no key and no token.
func (l *Lease) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "lease of %.8s, fence %d, attempt %d", l.id, l.Fence(), l.Attempt())
}

type leaseContext struct{}

// LeaseOf returns the lease under which the code of this context runs: an effect's, or an HTTP handler's; nil if there is
// none.
func LeaseOf(ctx context.Context) *Lease {
	lease, _ := ctx.Value(leaseContext{}).(*Lease)
	return lease
}
