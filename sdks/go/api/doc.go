// Package api has the types of Semel's protocol API, and the codes of its problems. Both are generated.
package api

import (
	"encoding/json"
	"fmt"
)

// Code is what a problem code says.
type Code struct {
	// Status is the HTTP status, if no profile says otherwise.
	Status int
	// Retryable says whether the same request may get an answer later.
	Retryable bool
	// Title says what it is, in a few words.
	Title string
}

// Secret is a text that is sent, and never printed: a key or a token.
type Secret string

// Format prints nothing of the text.
func (s Secret) Format(f fmt.State, _ rune) {
	if s == "" {
		_, _ = fmt.Fprint(f, "[none]")
		return
	}
	_, _ = fmt.Fprint(f, "[redacted]")
}

// JSON is a value as it is sent: bytes that are kept as they are, and never printed.
type JSON json.RawMessage

// Format prints only the size.
func (j JSON) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "[%d bytes]", len(j))
}

// MarshalJSON returns the bytes.
func (j JSON) MarshalJSON() ([]byte, error) {
	return json.RawMessage(j).MarshalJSON()
}

// UnmarshalJSON keeps the bytes.
func (j *JSON) UnmarshalJSON(text []byte) error {
	return (*json.RawMessage)(j).UnmarshalJSON(text)
}
