package semel

import "github.com/semel-rs/semel/sdks/go/internal/digest"

// FingerprintOf returns the fingerprint of one JSON value, in hexadecimal digits, as a claim takes it: a payload that must
// not leave the process is compared by it.
func FingerprintOf(value any) (string, error) {
	text, err := encode(value)
	if err != nil {
		return "", err
	}
	made, err := digest.Fingerprint([]digest.Part{{JSON: true, Data: text}}, nil)
	return made, payloadError(err)
}
