package semel

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"unicode/utf8"
)

// KeyHeader is the header that carries the key.
const KeyHeader = "Idempotency-Key"

const (
	maxKeyBytes = 255
	// No rules take more.
	longestKey = 1024
)

var (
	sfString  = regexp.MustCompile(`^"(?:[ !#-\[\]-~]|\\["\\])*"$`)
	sfEscaped = regexp.MustCompile(`\\(.)`)
)

// NewKey returns a key for a new operation. Make it when the operation begins, and use it for every retry.
func NewKey() string {
	id := randomBytes()
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return fmt.Sprintf("idem_%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

func randomBytes() [16]byte {
	var out [16]byte
	// It never fails, by its documentation: a process without randomness ends.
	_, _ = rand.Read(out[:])
	return out
}

func newToken() Secret {
	token := randomBytes()
	return Secret(hex.EncodeToString(token[:]))
}

// CheckKey returns a *KeyError if the text can't be a key.
func CheckKey(text string) error {
	return checkKey(text, maxKeyBytes, ":")
}

func checkKey(text string, maxBytes int, extra string) error {
	switch {
	case text == "":
		return &KeyError{Reason: "empty"}
	case len(text) > min(maxBytes, longestKey):
		return &KeyError{Reason: "too_long"}
	}
	for _, c := range text {
		isWord := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if c == utf8.RuneError || !isWord && !strings.ContainsRune("_.-"+extra, c) {
			return &KeyError{Reason: "character"}
		}
	}
	return nil
}

// keyOfLines returns the key of a header: one line, quoted (a structured field) or bare; "" without a line.
func keyOfLines(lines []string) (string, error) {
	if len(lines) == 0 {
		return "", nil
	}
	if len(lines) > 1 {
		// They could be read in two ways.
		return "", &KeyError{Reason: "character"}
	}
	line := strings.Trim(lines[0], " \t")
	if strings.HasPrefix(line, `"`) {
		if !sfString.MatchString(line) {
			return "", &KeyError{Reason: "character"}
		}
		line = sfEscaped.ReplaceAllString(line[1:len(line)-1], "$1")
	}
	return line, CheckKey(line)
}

type keyContext struct{}

// WithKey gives the requests of a context their key: for libraries that make their requests themselves. A context that
// is used for two operations gives both the same key, and the second is refused or gets the first one's answer.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, keyContext{}, key)
}

// keyOf returns the key that a request brings: its header's, or its context's, or "".
func keyOf(req *http.Request) (string, error) {
	if lines := req.Header.Values(KeyHeader); len(lines) > 0 {
		return keyOfLines(lines)
	}
	if key, ok := req.Context().Value(keyContext{}).(string); ok {
		return key, CheckKey(key)
	}
	return "", nil
}
