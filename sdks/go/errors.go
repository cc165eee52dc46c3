package semel

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/semel-rs/semel/sdks/go/api"
	"github.com/semel-rs/semel/sdks/go/internal/canonical"
)

// What went wrong, for errors.Is.
var (
	// ErrConflict: the key was used with another payload. Nothing was done, and a retry won't help.
	ErrConflict = errors.New("semel: the key was used with another payload")
	// ErrInDoubt: it is unknown whether an earlier run took effect. Nobody runs it again until an operator resolves it.
	ErrInDoubt = errors.New("semel: it is unknown whether an earlier run took effect")
	// ErrLeaseLost: the lease belongs to another owner, or is past its deadline. Start nothing more.
	ErrLeaseLost = errors.New("semel: the lease is lost")
	// ErrUnprotected: the server doesn't enforce the scope, so there is no lease.
	ErrUnprotected = errors.New("semel: the server does not enforce this scope, so there is no lease")

	// ErrNoEffect is for effects to return, wrapped or bare: it failed before anything happened. The key is free again.
	ErrNoEffect = errors.New("semel: nothing happened")
	// ErrUnknown is for effects to return, wrapped or bare: it was sent, and no reply came. The key is in doubt.
	ErrUnknown = errors.New("semel: sent, and no reply came")
)

// Final is for effects to return: it failed for good. The answer, any JSON, is kept and given to everybody who asks again.
func Final(answer any) error {
	return &finalError{answer}
}

type finalError struct{ answer any }

func (*finalError) Error() string { return "semel: the effect failed for good" }

func (e *finalError) Format(f fmt.State, _ rune) { printError(f, e) }

// A KeyError says why a text can't be a key (rule P1).
type KeyError struct {
	// Reason is "empty", "too_long" or "character".
	Reason string
}

func (e *KeyError) Error() string { return "semel: the key can't be used: " + e.Reason }

// A PayloadError says why a payload can't be compared (rule P3).
type PayloadError struct {
	// Reason is "duplicate", "number", "depth" or "syntax".
	Reason string
}

func (e *PayloadError) Error() string {
	return "semel: the payload can't be fingerprinted as JSON: " + e.Reason
}

func payloadError(err error) error {
	if reason, ok := errors.AsType[canonical.Reason](err); ok {
		return &PayloadError{string(reason)}
	}
	return err
}

// A ProblemError is a refusal of Semel's, with a problem document (RFC 9457). It matches ErrConflict and ErrInDoubt by
// errors.Is.
type ProblemError struct {
	// Status is the HTTP status.
	Status int
	// Code is one of the codes of package api.
	Code string
	// Detail says what happened.
	Detail string
	// ClaimID is the hash of the key, for an operator; empty if the caller may not know it.
	ClaimID string
	// Retryable says whether the same request can succeed later.
	Retryable bool
	// RetryAfter is how long to wait before that.
	RetryAfter time.Duration

	document map[string]json.RawMessage
}

func (e *ProblemError) Error() string {
	code := e.Code
	if code == "" {
		code = fmt.Sprint(e.Status)
	}
	return "semel: " + code + ": " + e.Detail
}

// Is reports whether the code means target.
func (e *ProblemError) Is(target error) bool {
	switch e.Code {
	case api.CodeConflict:
		return target == ErrConflict
	case api.CodeInDoubt, api.CodeRecordUnreadable:
		return target == ErrInDoubt
	case api.CodeLeaseNotHeld:
		return target == ErrLeaseLost
	}
	return false
}

// Format prints the message, and never the document.
func (e *ProblemError) Format(f fmt.State, _ rune) { printError(f, e) }

// claim returns the answer of an owner who was quicker, if the problem has one.
func (e *ProblemError) claim() *api.ClaimView {
	var view *api.ClaimView
	if json.Unmarshal(e.document["claim"], &view) != nil {
		return nil
	}
	return view
}

// A GaveUpError says that every attempt failed, or that the budget or the time ran out.
type GaveUpError struct {
	// Attempts is how many there were.
	Attempts int
	// Reason says why there was no further one.
	Reason string
	// Unknown says whether the request may have taken effect all the same. To find out, ask again with the same key.
	Unknown bool
	// Status is that of the last answer; 0 without one.
	Status int
	// Err is why the last attempt had no answer, or the ProblemError that it had.
	Err error

	key Secret
}

// Key returns the key of the call, to ask again with it. It isn't printed.
func (e *GaveUpError) Key() string { return string(e.key) }

func (e *GaveUpError) Error() string {
	known := "it was not done"
	if e.Unknown {
		known = "it may have taken effect"
	}
	return fmt.Sprintf("semel: gave up after %d attempt(s), %s; %s", e.Attempts, e.Reason, known)
}

func (e *GaveUpError) Unwrap() error { return e.Err }

// Format prints the message, and never the key.
func (e *GaveUpError) Format(f fmt.State, _ rune) { printError(f, e) }

// An EffectFailedError says that the effect failed for good, now or in an earlier run.
type EffectFailedError struct {
	// Answer is the failure that was kept.
	Answer api.JSON
	// Replayed says whether that was an earlier run.
	Replayed bool
	// Err is what the effect returned, if it ran now.
	Err error
}

func (e *EffectFailedError) Error() string {
	if e.Replayed {
		return "semel: the effect failed for good, in an earlier run"
	}
	return "semel: the effect failed for good"
}

func (e *EffectFailedError) Unwrap() error { return e.Err }

// Format prints the message, and never the answer.
func (e *EffectFailedError) Format(f fmt.State, _ rune) { printError(f, e) }

// An AnswerNotKeptError says that it was done, and that its answer was too large to keep, or no JSON.
type AnswerNotKeptError struct {
	// Size is the answer's size; 0 if it is unknown.
	Size int64
	// Err is why it has no JSON form, if it ran now.
	Err error
}

func (e *AnswerNotKeptError) Error() string {
	return fmt.Sprintf("semel: done; the answer of %d bytes was not kept", e.Size)
}

func (e *AnswerNotKeptError) Unwrap() error { return e.Err }

// An UnrecordedError says that the effect happened, and that this could not be recorded. After the lease has lapsed, the
// next claim runs it again (takeover) or finds it in doubt (hold).
type UnrecordedError struct {
	// Value is what the effect returned.
	Value any
	// Err is why it could not be recorded.
	Err error
}

func (e *UnrecordedError) Error() string {
	return "semel: the effect ran, and its outcome could not be recorded"
}

func (e *UnrecordedError) Unwrap() error { return e.Err }

// Format prints the message, and never the value.
func (e *UnrecordedError) Format(f fmt.State, _ rune) { printError(f, e) }

func printError(f fmt.State, err error) {
	_, _ = io.WriteString(f, err.Error())
}

// encode writes JSON as it is: without the escapes that are for HTML pages.
func encode(value any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}
