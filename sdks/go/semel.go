// Package semel calls services that support idempotency keys, and makes functions and HTTP handlers run once for a key.
//
// Transport is for callers: an http.RoundTripper that makes the key once, and sends the request again until there is an
// answer. Run and Do make a function run once, and Middleware an http.Handler, over the protocol API of a running
// `semel serve`. Package semeltest has a server in memory for tests.
//
// Errors and printed values never show a payload, a token or a whole key.
package semel

import "github.com/semel-rs/semel/sdks/go/api"

// Secret is a text that is sent, and never printed.
type Secret = api.Secret

// Crash says what becomes of a key if its owner's process dies.
type Crash = api.Crash

// The crash policies.
const (
	// Takeover runs it again.
	Takeover = api.CrashTakeover
	// Hold leaves it in doubt until an operator resolves it.
	Hold = api.CrashHold
)
