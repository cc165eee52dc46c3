package webhooks

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"time"

	semel "github.com/semel-rs/semel/sdks/go"
	"github.com/semel-rs/semel/sdks/go/api"
)

// retention: providers deliver again for days.
const retention = 7 * 24 * time.Hour

// A Handler is an endpoint. It verifies a webhook, handles each event once, and answers a repeated delivery as the first.
type Handler struct {
	Verifier *Verifier
	Sidecar  *semel.Sidecar
	// Handle returns nil, a string, or what is JSON: the answer. An error leaves the event to the next delivery, unless
	// it is semel.Final or the terms say otherwise.
	Handle func(context.Context, *Event) (any, error)
	// Scope is what is done: "webhook-" and the provider's name if empty.
	Scope string
	// Terms are the endpoint's own. Without a retention, it is seven days.
	Terms semel.Terms
}

// Run verifies a webhook and handles its event once. The errors are those of Verify and of semel.Run.
func (h Handler) Run(ctx context.Context, header http.Header, body []byte) (semel.Result[any], error) {
	event, err := h.Verifier.Verify(header, body)
	if err != nil {
		return semel.Result[any]{}, err
	}
	op := semel.Operation{Scope: h.Scope, Key: event.Key(), Terms: h.Terms}
	if op.Scope == "" {
		op.Scope = "webhook-" + event.Provider
	}
	if op.Terms.Retention == 0 {
		op.Terms.Retention = retention
	}
	return semel.Run(ctx, h.Sidecar, op, func(ctx context.Context, _ *semel.Lease) (any, error) {
		return h.Handle(ctx, event)
	})
}

// ServeHTTP answers one delivery. What isn't 2xx is delivered again. Errors of Handle, and those by which no event can be
// handled, are logged by package slog.
func (h Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "a webhook is a POST", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.Verifier.maxBody()))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		h.answerError(w, r, refused(TooLarge))
		return
	}
	if err != nil {
		// The connection broke. It isn't logged, as anybody can do that.
		http.Error(w, "not handled", http.StatusBadRequest)
		return
	}
	var returned error
	watched := h
	watched.Handle = func(ctx context.Context, event *Event) (any, error) {
		value, err := h.Handle(ctx, event)
		returned = err
		return value, err
	}
	// What a provider began is finished when it has stopped waiting.
	result, err := watched.Run(context.WithoutCancel(r.Context()), r.Header, body)
	switch {
	case err == nil:
		answer(w, result.Value)
	case returned != nil && isSame(err, returned):
		// It may be an error of this module's, of a call inside the handler. That says nothing of the event.
		h.log(r, err)
		http.Error(w, "not handled", http.StatusInternalServerError)
	default:
		h.answerError(w, r, err)
	}
}

// isSame reports whether Run passed on what the handler returned. Run's own errors are pointers: what can't be compared is
// the handler's.
func isSame(err, returned error) bool {
	return !reflect.ValueOf(err).Comparable() || err == returned
}

// log tells the operator of an event that isn't handled. The body and the event's id stay out of it.
func (h Handler) log(r *http.Request, err error) {
	slog.ErrorContext(r.Context(), "semel: a webhook was not handled", "provider", h.Verifier.preset.name, "error", err)
}

func answer(w http.ResponseWriter, value any) {
	switch value := value.(type) {
	case nil:
		w.WriteHeader(http.StatusOK)
	case string:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, value)
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(value)
	}
}

func (h Handler) answerError(w http.ResponseWriter, r *http.Request, err error) {
	if isSettled(err) {
		answer(w, nil)
		return
	}
	if refusal, ok := errors.AsType[*RefusedError](err); ok {
		http.Error(w, refusal.Error(), refusal.Status())
		return
	}
	if problem, ok := errors.AsType[*semel.ProblemError](err); ok && problem.Status >= 400 {
		if problem.Status >= 500 || !strings.HasPrefix(problem.Code, "idempotency_") {
			h.log(r, err)
		}
		http.Error(w, "not handled: "+problem.Code, problem.Status)
		return
	}
	h.log(r, err)
	if _, ok := errors.AsType[*semel.GaveUpError](err); ok {
		http.Error(w, "not handled: try again later", http.StatusServiceUnavailable)
		return
	}
	http.Error(w, "not handled", http.StatusInternalServerError)
}

// isSettled reports whether the event was handled, or no further delivery would change that it can't be.
func isSettled(err error) bool {
	_, failed := errors.AsType[*semel.EffectFailedError](err)
	_, notKept := errors.AsType[*semel.AnswerNotKeptError](err)
	_, unrecorded := errors.AsType[*semel.UnrecordedError](err)
	problem, _ := errors.AsType[*semel.ProblemError](err)
	isGone := problem != nil && (problem.Code == api.CodeAnswerErased || problem.Code == api.CodeAnswerExpired)
	return failed || notKept || unrecorded || isGone
}
