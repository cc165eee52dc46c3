package semel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// maxAnswerBytes is the largest answer that is read.
const maxAnswerBytes = 16 * 1024 * 1024

// errTooLarge is for what asking again doesn't make smaller.
var errTooLarge = errors.New("too large")

func isFinal(err error) bool {
	return errors.Is(err, errTooLarge)
}

// exchange sends a request once, and reads its answer to the end. It also reports whether an error came before anything
// could have been sent.
func exchange(ctx context.Context, base http.RoundTripper, req *http.Request) (*reply, bool, error) {
	var asked, connected atomic.Bool
	trace := &httptrace.ClientTrace{
		GetConn: func(string) { asked.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	}
	response, err := base.RoundTrip(req.WithContext(httptrace.WithClientTrace(ctx, trace)))
	if err != nil {
		// A base that tells nothing of its connections may have sent it.
		return nil, asked.Load() && !connected.Load(), err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := readAll(response.Body, maxAnswerBytes, "the answer")
	if err != nil {
		return nil, false, err
	}
	return &reply{response.StatusCode, response.Header, body, response}, false, nil
}

func readAll(from io.Reader, most int64, what string) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(from, most+1))
	if err == nil && int64(len(body)) > most {
		return nil, fmt.Errorf("semel: %s has more than %d bytes: %w", what, most, errTooLarge)
	}
	return body, err
}
