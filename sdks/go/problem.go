package semel

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/semel-rs/semel/sdks/go/api"
)

// plain is an answer of the middleware's.
type plain struct {
	status int
	header http.Header
	body   []byte
}

func (p plain) send(w http.ResponseWriter) {
	for name, values := range p.header {
		w.Header()[name] = values
	}
	w.WriteHeader(p.status)
	if mayHaveBody(p.status) {
		_, _ = w.Write(p.body)
	}
}

// refusal is a problem document (RFC 9457) of our own.
func refusal(code string, again bool) plain {
	return refusalWith(api.Codes[code].Status, code, again)
}

func refusalWith(status int, code string, again bool) plain {
	known := api.Codes[code]
	text := func(value any) json.RawMessage {
		out, _ := encode(value)
		return out
	}
	document := map[string]json.RawMessage{
		"type": text("urn:semel:problem:" + code), "title": text(known.Title), "detail": text(known.Title),
		"status": text(status), "code": text(code), "retryable": text(again),
	}
	var after *time.Duration
	if again {
		after = new(time.Second)
		document["retryAfterMs"] = text(1000)
	}
	return ofDocument(status, document, after)
}

// ofDocument is a problem document of the server's, passed on.
func ofDocument(status int, document map[string]json.RawMessage, after *time.Duration) plain {
	shown := maps.Clone(document)
	delete(shown, "claim")
	header := http.Header{"Content-Type": {"application/problem+json"}, "Cache-Control": {"no-store"}}
	if after != nil {
		seconds := max(1, int64((*after+time.Second-1)/time.Second))
		header.Set("Retry-After", strconv.FormatInt(seconds, 10))
	}
	body, _ := encode(shown)
	return plain{status, header, body}
}

// ofError is the answer where there is none: nothing was started, or nobody knows; never a guess.
func ofError(err error) plain {
	var problem *ProblemError
	if _, ok := errors.AsType[*KeyError](err); ok {
		return refusal(api.CodeKeyInvalid, false)
	}
	if _, ok := errors.AsType[*PayloadError](err); ok {
		return refusal(api.CodePayloadInvalid, false)
	}
	// Also the last refusal before the client gave up.
	_, gaveUp := errors.AsType[*GaveUpError](err)
	if errors.As(err, &problem) && (gaveUp || strings.HasPrefix(problem.Code, "idempotency_")) && problem.document != nil {
		var after *time.Duration
		if problem.RetryAfter > 0 {
			after = &problem.RetryAfter
		}
		return ofDocument(problem.Status, problem.document, after)
	}
	slog.Warn("semel: a request was not started: is the URL that of the sidecar's API, and may this process use it?", "error", err)
	return refusal(api.CodeStoreUnavailable, true)
}

// unsettled is the answer where the handler ran and its outcome could not be recorded.
func unsettled(err error) plain {
	if problem, ok := errors.AsType[*ProblemError](err); ok && problem.Code == api.CodeLeaseNotHeld {
		if other := problem.claim(); other != nil {
			return replayed(other)
		}
		return refusal(api.CodeLeaseLost, true)
	}
	slog.Warn("semel: a handler ran, and its answer could not be recorded", "error", err)
	return refusal(api.CodeUnrecorded, true)
}

// replayed is the answer of an earlier run, again.
func replayed(view *api.ClaimView) plain {
	answer := view.Answer
	if answer == nil || answer.Status == nil {
		return refusal(api.CodeAnswerUnreadable, false)
	}
	out := plain{status: int(*answer.Status), header: http.Header{}}
	for _, header := range answer.Headers {
		out.header.Add(header.Name, header.Value)
	}
	if answer.BodyOmittedBytes != nil {
		told := refusalWith(out.status, api.CodeBodyNotKept, false)
		out.header.Set("Content-Type", told.header.Get("Content-Type"))
		out.header.Del("Content-Encoding")
		out.header.Set("Idempotent-Not-Kept", "body")
		out.body = told.body
	} else if answer.Body != nil {
		out.body = answer.Body
	} else {
		out.body, _ = base64.StdEncoding.DecodeString(string(answer.BodyBase64))
		if _, has := out.header["Content-Type"]; !has {
			// Not to be guessed now: the first answer had none.
			out.header["Content-Type"] = nil
		}
	}
	out.header.Set("Idempotent-Replayed", "true")
	out.header.Set("Cache-Control", "no-store")
	if view.OriginalTime != "" {
		out.header.Set("X-Original-Request-Time", view.OriginalTime)
	}
	return out
}

func base64Of(body []byte) Secret {
	return Secret(base64.StdEncoding.EncodeToString(body))
}
