// Package webhooks verifies the signatures of webhooks, and handles each of a provider's events once.
//
//	stripe, err := webhooks.New(webhooks.Stripe, os.Getenv("STRIPE_WEBHOOK_SECRET"))
//	mux.Handle("POST /stripe", webhooks.Handler{Verifier: stripe, Sidecar: sidecar, Handle: handle})
package webhooks

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	semel "github.com/semel-rs/semel/sdks/go"
)

const (
	defaultMaxBody   = 1024 * 1024
	defaultTolerance = 300 * time.Second
	maxHeader        = 4096
	maxSignatures    = 16
)

// Reason says why a webhook is refused.
type Reason string

// The reasons.
const (
	// Missing: a header isn't there.
	Missing Reason = "missing"
	// Malformed: a header can't be read, or came twice.
	Malformed Reason = "malformed"
	// Signature: none of the secrets made it.
	Signature Reason = "signature"
	// Expired: the signature is right, and its time is too far off.
	Expired Reason = "expired"
	// TooLarge: the body is past the bound.
	TooLarge Reason = "too_large"
	// NoID: the signature is right, and there is no id of an event.
	NoID Reason = "no_id"
)

// A RefusedError says that a webhook isn't believed.
type RefusedError struct {
	Reason Reason
}

func (e *RefusedError) Error() string { return "semel: the webhook is refused: " + string(e.Reason) }

// Status is what to answer.
func (e *RefusedError) Status() int {
	switch e.Reason {
	case TooLarge:
		return http.StatusRequestEntityTooLarge
	case Signature, Expired:
		return http.StatusUnauthorized
	}
	return http.StatusBadRequest
}

func refused(reason Reason) error { return &RefusedError{reason} }

// An Event is a webhook whose signature is right.
type Event struct {
	Provider string
	// ID is the same on each delivery.
	ID string
	// Header isn't covered by the signature, except for what is part of it.
	Header http.Header
	body   []byte
}

// Body is the body as it was signed. It isn't printed with the event's other fields.
func (e *Event) Body() []byte { return e.body }

// Decode reads the body as JSON.
func (e *Event) Decode(into any) error { return json.Unmarshal(e.body, into) }

// Key is the key under which the event is handled once.
func (e *Event) Key() string {
	if semel.CheckKey(e.ID) == nil {
		return e.ID
	}
	return "id-" + digestOf([]byte(e.ID))
}

// String names the event without its contents.
func (e *Event) String() string { return e.Provider + " event " + strconv.Quote(e.ID) }

// GoString is String.
func (e *Event) GoString() string { return e.String() }

// A Verifier verifies the webhooks of one endpoint. New makes one.
type Verifier struct {
	// Tolerance is how far a signature's time may be off: 300 s if zero.
	Tolerance time.Duration
	// MaxBody is the largest body in bytes: 1 MiB if zero.
	MaxBody int64
	// Now is the clock: time.Now if nil.
	Now func() time.Time

	preset Preset
	keys   [][]byte
}

// New returns a verifier. All secrets count, so that one can be replaced by another: give the new and the old one.
func New(preset Preset, secrets ...string) (*Verifier, error) {
	v := &Verifier{preset: preset}
	for _, secret := range secrets {
		key, err := preset.key(secret)
		if err != nil {
			return nil, err
		}
		if len(key) == 0 {
			return nil, errors.New("semel: a webhook's secret is empty")
		}
		v.keys = append(v.keys, key)
	}
	if len(v.keys) == 0 {
		return nil, errors.New("semel: a webhook needs a secret")
	}
	return v, nil
}

// String names the provider, and no secret.
func (v *Verifier) String() string { return "verifier of " + v.preset.name }

// GoString is String.
func (v *Verifier) GoString() string { return v.String() }

// Verify returns the event, or a *RefusedError. The body is the request's as it came, before anything has read it.
func (v *Verifier) Verify(header http.Header, body []byte) (*Event, error) {
	if int64(len(body)) > v.maxBody() {
		return nil, refused(TooLarge)
	}
	signed, err := v.preset.read(header)
	if err != nil {
		return nil, err
	}
	if len(signed.signatures) == 0 || len(signed.signatures) > maxSignatures {
		return nil, refused(Malformed)
	}
	if !v.isSigned(signed, body) {
		return nil, refused(Signature)
	}
	if signed.seconds != "" && v.isOff(signed.seconds) {
		return nil, refused(Expired)
	}
	id, err := v.preset.id(header, body)
	if err != nil {
		return nil, err
	}
	if id == "" {
		return nil, refused(NoID)
	}
	return &Event{Provider: v.preset.name, ID: id, Header: header.Clone(), body: body}, nil
}

// isSigned compares all signatures with those of all secrets, in a time that tells nothing of them.
func (v *Verifier) isSigned(signed signature, body []byte) bool {
	found := 0
	for _, key := range v.keys {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(signed.before))
		mac.Write(body)
		own := []byte(v.preset.text(mac.Sum(nil)))
		for _, given := range signed.signatures {
			found |= subtle.ConstantTimeCompare(own, []byte(given))
		}
	}
	return found == 1
}

func (v *Verifier) isOff(seconds string) bool {
	tolerance, now := v.Tolerance, time.Now
	if tolerance == 0 {
		tolerance = defaultTolerance
	}
	if v.Now != nil {
		now = v.Now
	}
	// At most 12 digits.
	at, _ := strconv.ParseInt(seconds, 10, 64)
	return now().Sub(time.Unix(at, 0)).Abs() > tolerance
}

func (v *Verifier) maxBody() int64 {
	if v.MaxBody == 0 {
		return defaultMaxBody
	}
	return v.MaxBody
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
