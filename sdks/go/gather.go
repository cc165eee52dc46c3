package semel

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/semel-rs/semel/sdks/go/api"
)

// Headers that are kept of an answer.
var keptHeaders = []string{
	"content-type", "content-encoding", "content-language", "content-disposition", "content-location", "etag",
	"last-modified", "link", "location", "vary", "content-security-policy", "referrer-policy",
	"strict-transport-security", "x-content-type-options", "x-frame-options", "cross-origin-resource-policy",
}

// gathered is the handler's http.ResponseWriter. It holds the answer back until it is recorded; what is too large, or a
// stream of events, goes to its caller as it comes, and isn't kept.
type gathered struct {
	to     http.ResponseWriter
	header http.Header
	// The client's connection, and what ends the handler's context.
	client context.Context
	leave  context.CancelFunc

	status  int
	sent    http.Header
	body    bytes.Buffer
	size    int64
	passing bool
	gone    bool
	outcome string
}

func (g *gathered) Header() http.Header { return g.header }

func (g *gathered) WriteHeader(status int) {
	// An answer that is announced, such as 103, isn't the answer.
	if g.status != 0 || status < 200 {
		return
	}
	g.status = status
	g.outcome = strings.ToLower(strings.TrimSpace(g.header.Get(outcomeHeader)))
	g.header.Del(outcomeHeader)
	g.sent = g.header.Clone()
	if strings.HasPrefix(strings.ToLower(g.sent.Get("Content-Type")), "text/event-stream") {
		g.pass()
	}
}

func (g *gathered) Write(data []byte) (int, error) {
	g.WriteHeader(http.StatusOK)
	if !mayHaveBody(g.status) {
		return 0, http.ErrBodyNotAllowed
	}
	if g.sniffs() {
		g.sent.Set("Content-Type", http.DetectContentType(data))
	}
	g.size += int64(len(data))
	if !g.passing && g.size <= maxBodyBytes {
		return g.body.Write(data)
	}
	g.pass()
	return g.written(g.to.Write(data))
}

func (g *gathered) written(n int, err error) (int, error) {
	g.gone = g.gone || err != nil
	return n, err
}

// sniffs reports whether the server would guess the type of the answer: it has to be the same in a replay.
func (g *gathered) sniffs() bool {
	_, has := g.sent["Content-Type"]
	return g.size == 0 && !has && g.sent.Get("Content-Encoding") == ""
}

// Flush sends what is there, if this is a stream. What is held back has nothing to be seen early.
func (g *gathered) Flush() {
	_ = g.FlushError()
}

// FlushError is Flush for http.ResponseController.
func (g *gathered) FlushError() error {
	g.WriteHeader(http.StatusOK)
	if !g.passing {
		return nil
	}
	err := http.NewResponseController(g.to).Flush()
	if errors.Is(err, http.ErrNotSupported) {
		return err
	}
	_, err = g.written(0, err)
	return err
}

// pass sends what was held back, and from here on everything as it comes. A stream ends with its client.
func (g *gathered) pass() {
	if g.passing {
		return
	}
	g.passing = true
	context.AfterFunc(g.client, g.leave)
	g.flushHead()
}

func (g *gathered) flushHead() {
	head := g.to.Header()
	clear(head)
	maps.Copy(head, g.sent)
	g.to.WriteHeader(g.status)
	if g.body.Len() > 0 {
		_, _ = g.written(g.to.Write(g.body.Bytes()))
	}
}

// end is called when the handler has returned: one that said nothing said 200.
func (g *gathered) end() {
	g.WriteHeader(http.StatusOK)
}

// release sends what was held back, now that it is recorded.
func (g *gathered) release() {
	if !g.passing {
		g.flushHead()
	}
}

// broken reports whether a stream didn't reach its client.
func (g *gathered) broken() bool {
	return g.passing && (g.gone || g.client.Err() != nil)
}

// said is what the handler says itself about its effect.
func (g *gathered) said() string {
	if g.status == 0 {
		return strings.ToLower(strings.TrimSpace(g.header.Get(outcomeHeader)))
	}
	return g.outcome
}

// kept is what is stored of the answer: status, some headers, and the body where it was gathered.
func (g *gathered) kept(more []string) *api.AnswerInput {
	out := &api.AnswerInput{Status: new(int64(g.status))}
	for _, name := range slices.Sorted(maps.Keys(g.sent)) {
		isKept := func(other string) bool { return strings.EqualFold(name, other) }
		if !slices.ContainsFunc(keptHeaders, isKept) && !slices.ContainsFunc(more, isKept) {
			continue
		}
		for _, value := range g.sent[name] {
			// A header that the record can't hold is left out, rather than the whole answer.
			if isPrintable(value) && len(out.Headers) < 64 {
				out.Headers = append(out.Headers, api.Header{Name: name, Value: value})
			}
		}
	}
	if g.passing {
		out.BodyOmittedBytes = new(g.size)
	} else {
		out.BodyBase64 = base64Of(g.body.Bytes())
	}
	return out
}

func isPrintable(value string) bool {
	return len(value) <= 4096 && !strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c > '~' })
}

func mayHaveBody(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified
}
