package semel

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/semel-rs/semel/sdks/go/api"
)

// Options say how a process reaches its sidecar, and for whom. The zero value is ready.
type Options struct {
	// Token is for api.access = "tokens". To another machine it goes encrypted (https), or not at all.
	Token Secret
	// Tenant is whose keys they are; the token's, if empty.
	Tenant string
	// Actor says who asks, for the audit trail only.
	Actor string
	// Terms are those of all operations; an operation's own count more, field by field.
	Terms Terms
	// Retry says how often and how long to ask.
	Retry RetryPolicy
	// Budget bounds the retries; nil is one of the sidecar's own.
	Budget *RetryBudget
	// Transport sends each attempt; nil is one of the sidecar's own. With yours, you decide how tokens travel.
	Transport http.RoundTripper
}

// Sidecar is a running `semel serve`, by its protocol API. One may be shared by all goroutines.
type Sidecar struct {
	url     string
	options Options
}

// NewSidecar returns the sidecar at a URL such as http://127.0.0.1:8080/_semel. It sends nothing yet.
func NewSidecar(base string, options Options) (*Sidecar, error) {
	at, err := url.Parse(base)
	if err != nil || at.Host == "" || (at.Scheme != "http" && at.Scheme != "https") {
		return nil, errors.New("semel: the sidecar's URL must begin with http:// or https://")
	}
	if options.Token != "" && options.Transport == nil && !isPrivate(at) {
		return nil, fmt.Errorf("semel: the token would go to %s in the clear: use https://, or set Options.Transport", at.Hostname())
	}
	if options.Transport == nil {
		own := http.DefaultTransport.(*http.Transport).Clone()
		own.MaxIdleConnsPerHost = 64
		options.Transport = own
	}
	if options.Budget == nil {
		options.Budget = &RetryBudget{}
	}
	return &Sidecar{strings.TrimRight(base, "/"), options}, nil
}

// isPrivate reports whether nobody else reads what goes there.
func isPrivate(at *url.URL) bool {
	return at.Scheme == "https" || at.Hostname() == "localhost" || net.ParseIP(at.Hostname()).IsLoopback()
}

// Close closes idle connections.
func (s *Sidecar) Close() {
	if closer, ok := s.options.Transport.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}

// Format prints no token.
func (s *Sidecar) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprint(f, "sidecar")
}

// received is an answer of the API, and when it was asked for.
type received struct {
	*reply
	sentAt       time.Time
	unansweredAt time.Time
}

// send makes one call. With a span, it is tried as often as fits, whatever others have spent of the budget: to give up a
// lease that lives is to do its work twice.
func (s *Sidecar) send(ctx context.Context, method, path string, body any, within time.Duration) (received, error) {
	policy, budget := s.options.Retry, s.options.Budget
	if within > 0 {
		policy, budget = policy.within(within), nil
	}
	course := newCourse(policy, budget, "", false)
	r, err := course.ask(ctx, func(ctx context.Context, number int) (*reply, bool, error) {
		if claim, ok := body.(api.ClaimRequest); ok {
			// The server may look before it writes where it knows that this was asked before.
			claim.Retry = number > 1
			body = claim
		}
		req, err := s.request(ctx, method, path, body)
		if err != nil {
			return nil, true, err
		}
		return exchange(ctx, s.options.Transport, req)
	})
	return received{r, course.sentAt, course.unansweredAt}, err
}

func (s *Sidecar) request(ctx context.Context, method, path string, body any) (*http.Request, error) {
	var text []byte
	if body != nil {
		var err error
		if text, err = encode(body); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, s.url+"/"+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if s.options.Token != "" {
		req.Header.Set("Authorization", "Bearer "+string(s.options.Token))
	}
	return req, nil
}

// read takes the answer's value, or the refusal that it is.
func (r received) read(into any) error {
	if r.status >= 300 {
		return r.problemError()
	}
	if err := json.Unmarshal(r.body, into); err != nil {
		return errors.New("semel: the sidecar's answer can't be read: is the URL that of its API?")
	}
	return nil
}

// claim asks to be the one who runs. Also: from when the lease counts.
func (s *Sidecar) claim(ctx context.Context, request api.ClaimRequest) (*api.ClaimView, time.Time, error) {
	var view api.ClaimView
	r, err := s.send(ctx, http.MethodPost, "v1/claims", request, 0)
	if err != nil {
		return nil, time.Time{}, err
	}
	if err := r.read(&view); err != nil {
		return nil, time.Time{}, err
	}
	if !r.unansweredAt.IsZero() {
		// That one may have won, however long the server says it held this one: the lease is then as old as it (P30).
		return &view, r.unansweredAt, nil
	}
	return &view, r.sentAt.Add(ms(view.TookMS)), nil
}

// Look returns where a claim stands; nil if there is none. It waits for the end of a run, up to wait.
func (s *Sidecar) Look(ctx context.Context, id string, wait time.Duration) (*api.ClaimView, error) {
	path := "v1/claims/" + url.PathEscape(id)
	if wait > 0 {
		path += "?wait_ms=" + strconv.FormatInt(wait.Milliseconds(), 10)
	}
	return s.look(ctx, http.MethodGet, path, nil)
}

// Lookup returns where a key stands; nil if it is free.
func (s *Sidecar) Lookup(ctx context.Context, request api.LookupRequest) (*api.ClaimView, error) {
	if request.Tenant == "" {
		request.Tenant = s.options.Tenant
	}
	return s.look(ctx, http.MethodPost, "v1/lookups", request)
}

func (s *Sidecar) look(ctx context.Context, method, path string, body any) (*api.ClaimView, error) {
	r, err := s.send(ctx, method, path, body, 0)
	if err != nil || r.status == http.StatusNotFound {
		return nil, err
	}
	var view api.ClaimView
	if err := r.read(&view); err != nil {
		return nil, err
	}
	return &view, nil
}

func (s *Sidecar) deriveKeys(ctx context.Context, id string, names []string) (map[string]string, error) {
	var request api.KeysRequest
	for _, name := range names {
		request.Names = append(request.Names, api.Name(name))
	}
	r, err := s.send(ctx, http.MethodPost, "v1/claims/"+id+"/keys", request, 0)
	if err != nil {
		return nil, err
	}
	var view api.KeysView
	err = r.read(&view)
	return view.Keys, err
}

func ms(count int64) time.Duration {
	return time.Duration(count) * time.Millisecond
}
