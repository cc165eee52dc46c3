package semel_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	semel "github.com/semel-rs/semel/sdks/go"
	"github.com/semel-rs/semel/sdks/go/api"
	"github.com/semel-rs/semel/sdks/go/semeltest"
)

type order struct {
	ID    string `json:"id"`
	Cents int    `json:"cents"`
}

func TestAnEffectRunsOnceAndEverybodyGetsItsValue(t *testing.T) {
	onBoth(t, func(t *testing.T, sidecar *semel.Sidecar) {
		runs := 0
		charge := func(o order) (semel.Result[map[string]any], error) {
			op := semel.Operation{Scope: "charge", Key: o.ID, Payload: o}
			return semel.Run(t.Context(), sidecar, op, func(ctx context.Context, lease *semel.Lease) (map[string]any, error) {
				runs++
				if semel.LeaseOf(ctx) != lease || !lease.Protected() || lease.Attempt() != 1 || lease.Check() != nil {
					t.Error("no lease")
				}
				return map[string]any{"charge": fmt.Sprintf("ch_%d <&>", runs), "pair": [2]int{1, 2}, "money": json.RawMessage("1.50")}, nil
			})
		}
		o := order{semel.NewKey(), 500}
		for i := range 3 {
			result := must[semel.Result[map[string]any]](t)(charge(o))
			want := map[string]any{"charge": "ch_1 <&>", "pair": []any{1.0, 2.0}, "money": 1.5}
			if !reflect.DeepEqual(result.Value, want) || result.Replayed != (i > 0) || (result.OriginalTime != "") != (i > 0) {
				t.Errorf("%+v", result)
			}
		}
		if _, err := charge(order{o.ID, 501}); runs != 1 || !errors.Is(err, semel.ErrConflict) {
			t.Error(runs, err)
		}
	})
}

func TestCallersAtOnceShareOneRun(t *testing.T) {
	onBoth(t, func(t *testing.T, sidecar *semel.Sidecar) {
		var runs, replays atomic.Int32
		op := semel.Operation{Scope: "charge", Key: semel.NewKey()}
		inTurns(8, 8, func(int) {
			result, err := semel.Run(t.Context(), sidecar, op, func(context.Context, *semel.Lease) (int32, error) {
				time.Sleep(100 * time.Millisecond)
				return runs.Add(1), nil
			})
			if err != nil || result.Value != 1 {
				t.Error(result, err)
			}
			if result.Replayed {
				replays.Add(1)
			}
		})
		if runs.Load() != 1 || replays.Load() != 7 {
			t.Error(runs.Load(), replays.Load())
		}
	})
}

var errBank = errors.New("the bank says no")

func TestWhatAnErrorSaysDecidesWhatComesNext(t *testing.T) {
	for _, c := range []struct {
		name  string
		err   error
		terms semel.Terms
		then  string
	}{
		{"takeover", errBank, semel.Terms{}, "runs"},
		{"hold", errBank, semel.Terms{Crash: semel.Hold}, "in doubt"},
		{"doubt", errBank, semel.Terms{OnError: api.OutcomeDoubt}, "in doubt"},
		{"release", errBank, semel.Terms{Crash: semel.Hold, OnError: api.OutcomeRelease}, "runs"},
		{"named no effect", errBank, semel.Terms{Crash: semel.Hold, NoEffect: []error{errBank}}, "runs"},
		{"named final", fmt.Errorf("card: %w", errBank), semel.Terms{Final: []error{errBank}}, "failed"},
		{"no effect", fmt.Errorf("dial: %w", semel.ErrNoEffect), semel.Terms{Crash: semel.Hold}, "runs"},
		{"unknown", fmt.Errorf("timeout: %w", semel.ErrUnknown), semel.Terms{}, "in doubt"},
		{"final", semel.Final(map[string]string{"why": "card"}), semel.Terms{}, "failed"},
		{"final without JSON", semel.Final(math.NaN()), semel.Terms{}, "failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, sidecar *semel.Sidecar) {
				runs := 0
				op := semel.Operation{Scope: "charge", Key: semel.NewKey(), Terms: c.terms}
				again := func() error {
					_, err := semel.Run(t.Context(), sidecar, op, func(context.Context, *semel.Lease) (int, error) {
						if runs++; runs == 1 {
							return 0, c.err
						}
						return runs, nil
					})
					return err
				}
				if err := again(); !errors.Is(err, c.err) {
					t.Errorf("the first got %v", err)
				}
				err := again()
				failed, hasFailed := errors.AsType[*semel.EffectFailedError](err)
				switch {
				case c.then == "runs" && (err != nil || runs != 2):
					t.Error(runs, err)
				case c.then == "in doubt" && (!errors.Is(err, semel.ErrInDoubt) || runs != 1):
					t.Error(runs, err)
				case c.then == "failed" && (!hasFailed || !failed.Replayed || runs != 1):
					t.Error(runs, err)
				}
				if c.name == "final" && string(failed.Answer) != `{"why":"card"}` {
					t.Error(string(failed.Answer))
				}
				if c.name == "named final" && !strings.Contains(string(failed.Answer), "the bank says no") {
					t.Error(string(failed.Answer))
				}
			})
		})
	}
}

func TestAPanicIsAnErrorOfTheEffectAndGoesOn(t *testing.T) {
	fake := &semeltest.Fake{}
	sidecar := fake.Sidecar(semel.Options{Terms: semel.Terms{Crash: semel.Hold}})
	func() {
		defer func() {
			if recover() != "half-way" {
				t.Error("the panic is gone")
			}
		}()
		_, _ = semel.Do(t.Context(), sidecar, semel.Operation{Scope: "a", Key: "k"}, func(context.Context, *semel.Lease) (int, error) {
			panic("half-way")
		})
	}()
	if state := fake.State("a", "k"); state != api.StatusInDoubt {
		t.Error(state)
	}
}

func TestALeaseIsRenewedWhileTheEffectRuns(t *testing.T) {
	onBoth(t, func(t *testing.T, sidecar *semel.Sidecar) {
		op := semel.Operation{Scope: "slow", Key: semel.NewKey(), Terms: semel.Terms{Lease: 1500 * time.Millisecond, Wait: 20 * time.Second}}
		started, first := make(chan struct{}), make(chan string, 1)
		go func() {
			value, err := semel.Do(t.Context(), sidecar, op, func(_ context.Context, lease *semel.Lease) (string, error) {
				close(started)
				time.Sleep(4 * time.Second)
				return "done", lease.Check()
			})
			first <- fmt.Sprint(value, err)
		}()
		<-started
		time.Sleep(2 * time.Second)
		second, err := semel.Run(t.Context(), sidecar, op, func(context.Context, *semel.Lease) (string, error) {
			return "taken over", nil
		})
		if got := <-first; got != "done<nil>" || err != nil || second.Value != "done" || !second.Replayed {
			t.Error(got, second, err)
		}
	})
}

func TestProgressAndDownstreamKeysReachTheNextAttempt(t *testing.T) {
	onBoth(t, func(t *testing.T, sidecar *semel.Sidecar) {
		op := semel.Operation{Scope: "export", Key: semel.NewKey(), Terms: semel.Terms{Derive: []string{"psp"}}}
		var keys [][2]string
		for attempt := range 2 {
			_, err := semel.Do(t.Context(), sidecar, op, func(ctx context.Context, lease *semel.Lease) (int, error) {
				psp := must[string](t)(lease.DeriveKey(ctx, "psp"))
				mail := must[string](t)(lease.DeriveKey(ctx, "mail"))
				keys = append(keys, [2]string{psp, mail})
				if err := lease.SaveCheckpoint(ctx, map[string]int{"page": attempt}); err != nil {
					return 0, err
				}
				if attempt == 0 {
					return 0, semel.ErrNoEffect
				}
				return 1, nil
			})
			if (attempt == 0) != errors.Is(err, semel.ErrNoEffect) {
				t.Error(err)
			}
		}
		if keys[0] != keys[1] || keys[0][0] == keys[0][1] {
			t.Error(keys)
		}
	})
}

func TestACheckpointReachesTheNextOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &semeltest.Fake{}
		sidecar := fake.Sidecar(semel.Options{})
		op := semel.Operation{Scope: "export", Key: "k"}
		got := must[string](t)(semel.Do(t.Context(), sidecar, op, func(ctx context.Context, lease *semel.Lease) (string, error) {
			if err := lease.SaveCheckpoint(ctx, map[string]int{"page": 3}); err != nil {
				return "", err
			}
			// As if this process had vanished, as far as the others can see.
			fake.Advance(31 * time.Second)
			return semel.Do(ctx, sidecar, op, func(_ context.Context, next *semel.Lease) (string, error) {
				var at struct{ Page int }
				found, err := next.Checkpoint(&at)
				return fmt.Sprint(found, at.Page, next.Attempt(), next.Fence() > lease.Fence()), err
			})
		}))
		if got != "true 3 2 true" {
			t.Error(got)
		}
	})
}

func TestALeaseThatWasTakenOverEndsItsContextAndBothGetOneAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &semeltest.Fake{}
		sidecar := fake.Sidecar(semel.Options{})
		op := semel.Operation{Scope: "charge", Key: "k"}
		result := must[semel.Result[string]](t)(semel.Run(t.Context(), sidecar, op, func(ctx context.Context, lease *semel.Lease) (string, error) {
			fake.Advance(31 * time.Second)
			theirs := func(context.Context, *semel.Lease) (string, error) { return "theirs", nil }
			must[string](t)(semel.Do(t.Context(), sidecar, op, theirs))
			// The next renewal finds out.
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), semel.ErrLeaseLost) || !errors.Is(lease.Check(), semel.ErrLeaseLost) {
				t.Error(context.Cause(ctx))
			}
			return "mine", nil
		}))
		if result.Value != "theirs" || !result.Replayed {
			t.Error(result)
		}
	})
}

func TestAnswersThatCannotBeKeptAreDoneAllTheSame(t *testing.T) {
	onBoth(t, func(t *testing.T, sidecar *semel.Sidecar) {
		for _, value := range []any{strings.Repeat("x", 1024*1024+1), math.NaN()} {
			runs := 0
			op := semel.Operation{Scope: "big", Key: semel.NewKey()}
			again := func() error {
				_, err := semel.Do(t.Context(), sidecar, op, func(context.Context, *semel.Lease) (any, error) {
					runs++
					return value, nil
				})
				return err
			}
			_, isText := value.(string)
			if first := again(); (first == nil) != isText {
				t.Error(first)
			}
			if _, ok := errors.AsType[*semel.AnswerNotKeptError](again()); !ok || runs != 1 {
				t.Error(runs)
			}
		}
	})
}

func TestAPayloadMayStayInTheProcess(t *testing.T) {
	onBoth(t, func(t *testing.T, sidecar *semel.Sidecar) {
		key := semel.NewKey()
		run := func(payload string) (int, error) {
			op := semel.Operation{Scope: "charge", Key: key, Payload: json.RawMessage(payload), Terms: semel.Terms{Fingerprint: true}}
			return semel.Do(t.Context(), sidecar, op, func(context.Context, *semel.Lease) (int, error) { return 1, nil })
		}
		must[int](t)(run(`{"b": 1, "a": 2}`))
		must[int](t)(run(`{"a": 2, "b": 1.0}`))
		if _, err := run(`{"a": 2}`); !errors.Is(err, semel.ErrConflict) {
			t.Error(err)
		}
		if _, err := run(`{"a": 1, "a": 2}`); err == nil {
			t.Error("a member given twice")
		}
	})
}

func TestWhatTheServerDoesNotEnforceRunsEachTime(t *testing.T) {
	fake := &semeltest.Fake{Unprotected: true}
	runs := 0
	for range 2 {
		result := must[semel.Result[int]](t)(semel.Run(t.Context(), fake.Sidecar(semel.Options{}), semel.Operation{Scope: "a", Key: "k"},
			func(ctx context.Context, lease *semel.Lease) (int, error) {
				runs++
				if _, err := lease.DeriveKey(ctx, "psp"); !errors.Is(err, semel.ErrUnprotected) || lease.Protected() {
					t.Error(err)
				}
				return runs, errors.Join(lease.Check(), lease.SaveCheckpoint(ctx, 1))
			}))
		if result.Value != runs || result.Replayed {
			t.Error(result)
		}
	}
	if calls := fake.Calls(); !slices.Equal(calls, []string{"claim", "claim"}) {
		t.Error(calls)
	}
}

func TestLostRepliesCostNothingButTime(t *testing.T) {
	for lost := 1; lost <= 3; lost++ {
		fake, runs := &semeltest.Fake{}, 0
		fake.LoseReplies(lost)
		must[int](t)(semel.Do(t.Context(), fake.Sidecar(semel.Options{}), semel.Operation{Scope: "a", Key: "k"},
			func(context.Context, *semel.Lease) (int, error) { runs++; return runs, nil }))
		if runs != 1 || fake.State("a", "k") != api.StatusCompleted || len(fake.Calls()) != 2+lost {
			t.Error(runs, fake.Calls())
		}
	}
}

func TestASettlementIsSentUntilItIsAcknowledgedWhateverOthersSpent(t *testing.T) {
	fake := &semeltest.Fake{}
	sidecar := fake.Sidecar(semel.Options{Budget: &semel.RetryBudget{Reserve: -1, PerCall: -1}})
	ctx, cancel := context.WithCancel(t.Context())
	must[int](t)(semel.Do(ctx, sidecar, semel.Operation{Scope: "a", Key: "k"}, func(context.Context, *semel.Lease) (int, error) {
		fake.LoseReplies(3)
		// Nor does it need a caller who waits.
		cancel()
		return 1, nil
	}))
	if fake.State("a", "k") != api.StatusCompleted {
		t.Error(fake.State("a", "k"))
	}
}

func TestAClaimThatIsGivenUpLeavesNoLeaseBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &semeltest.Fake{}
		ctx, cancel := context.WithCancel(t.Context())
		transport := roundTrip(func(req *http.Request) (*http.Response, error) {
			response, err := fake.RoundTrip(req)
			if len(fake.Calls()) == 1 {
				// It was won, and the caller leaves before it knows.
				cancel()
				return nil, context.Canceled
			}
			return response, err
		})
		sidecar := fake.Sidecar(semel.Options{Transport: transport, Terms: semel.Terms{Crash: semel.Hold}})
		_, err := semel.Do(ctx, sidecar, semel.Operation{Scope: "a", Key: "k"}, func(context.Context, *semel.Lease) (int, error) {
			t.Error("it ran")
			return 0, nil
		})
		if !errors.Is(err, context.Canceled) || fake.State("a", "k") != api.StatusReleased {
			t.Error(err, fake.State("a", "k"))
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (r roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }

// late is a way to the fake on which the answers of the first of some calls are held up.
func late(fake *semeltest.Fake, by map[string]time.Duration, lost string) http.RoundTripper {
	var mu sync.Mutex
	return roundTrip(func(req *http.Request) (*http.Response, error) {
		response, err := fake.RoundTrip(req)
		asked := fake.Calls()
		last := asked[len(asked)-1]
		mu.Lock()
		span := by[last]
		delete(by, last)
		mu.Unlock()
		if span > 0 {
			time.Sleep(span)
			if last == lost {
				return nil, errors.New("lost by the test, and late")
			}
		}
		return response, err
	})
}

func TestALeaseThatLapsedBeforeItsClaimWasAnsweredIsRenewedBeforeTheEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &semeltest.Fake{}
		way := late(fake, map[string]time.Duration{"claim": 35 * time.Second}, "claim")
		sidecar := fake.Sidecar(semel.Options{Transport: way, Retry: semel.RetryPolicy{Base: time.Millisecond}})
		must[int](t)(semel.Do(t.Context(), sidecar, semel.Operation{Scope: "a", Key: "k"}, func(context.Context, *semel.Lease) (int, error) {
			if calls := fake.Calls(); !slices.Equal(calls, []string{"claim", "claim", "renew"}) {
				t.Error(calls)
			}
			return 1, nil
		}))
	})
}

func TestALeaseCountsFromTheClaimThatWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &semeltest.Fake{}
		way := late(fake, map[string]time.Duration{"claim": 5 * time.Second}, "claim")
		sidecar := fake.Sidecar(semel.Options{Transport: way, Retry: semel.RetryPolicy{Base: time.Millisecond}})
		left := must[time.Duration](t)(semel.Do(t.Context(), sidecar, semel.Operation{Scope: "a", Key: "k"}, func(_ context.Context, lease *semel.Lease) (time.Duration, error) {
			return lease.Remaining(), nil
		}))
		if left <= 24*time.Second || left > 25*time.Second {
			t.Error(left)
		}
	})
}

func TestNothingStartsUnderARenewalThatWasAnsweredTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &semeltest.Fake{}
		way := late(fake, map[string]time.Duration{"claim": 35 * time.Second, "renew": 35 * time.Second}, "claim")
		sidecar := fake.Sidecar(semel.Options{Transport: way, Retry: semel.RetryPolicy{Base: time.Millisecond, TotalTimeout: time.Hour}})
		op := semel.Operation{Scope: "a", Key: "k", Terms: semel.Terms{Crash: semel.Hold}}
		attempt := must[int64](t)(semel.Do(t.Context(), sidecar, op, func(_ context.Context, lease *semel.Lease) (int64, error) {
			return lease.Attempt(), nil
		}))
		want := []string{"claim", "claim", "renew", "settle", "claim", "settle"}
		if calls := fake.Calls(); attempt != 1 || !slices.Equal(calls, want) {
			t.Error(attempt, calls)
		}
	})
}

func TestWhatWasDoneAndCannotBeRecordedIsToldAsUnrecorded(t *testing.T) {
	for _, value := range []any{"json", math.Inf(1)} {
		synctest.Test(t, func(t *testing.T) {
			fake := &semeltest.Fake{}
			away := roundTrip(func(req *http.Request) (*http.Response, error) {
				if strings.HasSuffix(req.URL.Path, "/settle") {
					return nil, errors.New("away")
				}
				return fake.RoundTrip(req)
			})
			_, err := semel.Do(t.Context(), fake.Sidecar(semel.Options{Transport: away}), semel.Operation{Scope: "a", Key: "k"},
				func(context.Context, *semel.Lease) (any, error) { return value, nil })
			if unrecorded, ok := errors.AsType[*semel.UnrecordedError](err); !ok || unrecorded.Value != value {
				t.Error(err)
			}
		})
	}
}

func TestAFailureForGoodThatCameAfterAnothersSuccessIsNotTold(t *testing.T) {
	fake := &semeltest.Fake{}
	sidecar, op := fake.Sidecar(semel.Options{}), semel.Operation{Scope: "a", Key: "k"}
	_, err := semel.Do(t.Context(), sidecar, op, func(context.Context, *semel.Lease) (string, error) {
		fake.Advance(31 * time.Second)
		must[string](t)(semel.Do(t.Context(), sidecar, op, func(context.Context, *semel.Lease) (string, error) { return "ch_1", nil }))
		return "", semel.Final("declined")
	})
	if _, failed := errors.AsType[*semel.EffectFailedError](err); failed || !errors.Is(err, semel.ErrLeaseLost) {
		t.Error(err)
	}
}

func TestRenewalsThatAreRefusedAreNotSentInALoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, refused := &semeltest.Fake{}, 0
		way := roundTrip(func(req *http.Request) (*http.Response, error) {
			if strings.HasSuffix(req.URL.Path, "/renew") {
				refused++
				req.URL.Path = "/nowhere"
			}
			return fake.RoundTrip(req)
		})
		_, _ = semel.Do(t.Context(), fake.Sidecar(semel.Options{Transport: way}), semel.Operation{Scope: "a", Key: "k"},
			func(context.Context, *semel.Lease) (int, error) {
				time.Sleep(29 * time.Second)
				return 1, nil
			})
		if refused < 2 || refused > 30 {
			t.Errorf("%d renewals", refused)
		}
	})
}

func TestAnAnswerThatAnOperatorWroteInAFileIsRead(t *testing.T) {
	for text, want := range map[string]string{`{"charge": "ch_1"}` + "\n": "ch_1", "no JSON": ""} {
		body, _ := json.Marshal(map[string]any{
			"id": "00", "status": "completed", "replayed": true, "took_ms": 0,
			"answer": map[string]string{"body_base64": base64.StdEncoding.EncodeToString([]byte(text))},
		})
		server := newScripted(t, func(w http.ResponseWriter, _ int) { _, _ = w.Write(body) })
		sidecar := connect(t, server.URL, semel.Options{})
		value, err := semel.Do(t.Context(), sidecar, semel.Operation{Scope: "a", Key: "k"}, func(context.Context, *semel.Lease) (map[string]string, error) { return nil, nil })
		if value["charge"] != want || (err == nil) != (want != "") {
			t.Error(value, err)
		}
	}
}

func TestAKeyMayBeLookedUp(t *testing.T) {
	onBoth(t, func(t *testing.T, sidecar *semel.Sidecar) {
		key := semel.NewKey()
		request := api.LookupRequest{Scope: "a", Key: api.Secret(key)}
		if view, err := sidecar.Lookup(t.Context(), request); view != nil || err != nil {
			t.Error(view, err)
		}
		must[string](t)(semel.Do(t.Context(), sidecar, semel.Operation{Scope: "a", Key: key}, func(context.Context, *semel.Lease) (string, error) { return "v", nil }))
		view := must[*api.ClaimView](t)(sidecar.Lookup(t.Context(), request))
		again := must[*api.ClaimView](t)(sidecar.Look(t.Context(), view.ID, time.Second))
		if again.Status != api.StatusCompleted || string(again.Answer.Body) != `"v"` {
			t.Error(again.Status)
		}
	})
}
