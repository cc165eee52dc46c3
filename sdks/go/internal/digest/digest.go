// Package digest has the digests that every language computes alike: fingerprints (P3), identities (P2), downstream keys
// (P42).
package digest

import (
	"encoding/binary"
	"encoding/hex"

	"github.com/semel-rs/semel/sdks/go/internal/blake3"
	"github.com/semel-rs/semel/sdks/go/internal/canonical"
)

// Part is one part of a payload: its bytes as they are, or JSON by its meaning.
type Part struct {
	JSON bool
	Data []byte
}

// Raw is a part that is compared byte for byte.
func Raw(text string) Part {
	return Part{Data: []byte(text)}
}

// Fingerprint returns a version byte and 16 bytes, in hexadecimal digits; or why a part can't be compared.
func Fingerprint(parts []Part, material []byte) (string, error) {
	hasher := blake3.NewKeyed(blake3.DeriveKey("semel v1 fingerprint", material))
	for _, part := range parts {
		data, kind := part.Data, byte(0)
		if part.JSON {
			var err error
			if data, err = canonical.Canonicalize(data); err != nil {
				return "", err
			}
			kind = 1
		}
		_, _ = hasher.Write(binary.LittleEndian.AppendUint64([]byte{kind}, uint64(len(data))))
		_, _ = hasher.Write(data)
	}
	sum := hasher.Sum()
	return "01" + hex.EncodeToString(sum[:16]), nil
}

func ofShortParts(use string, material []byte, parts ...string) [blake3.Size]byte {
	hasher := blake3.NewKeyed(blake3.DeriveKey(use, material))
	for _, part := range parts {
		_, _ = hasher.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(part))))
		_, _ = hasher.Write([]byte(part))
	}
	return hasher.Sum()
}

// Name is what an identity is made of.
type Name struct {
	Environment, Tenant, Scope, Key, Principal string
}

// Identity returns 32 bytes; the first 16 are the address, the last 16 the seal.
func Identity(name Name, material []byte) [blake3.Size]byte {
	parts := []string{name.Environment, name.Tenant, name.Scope, name.Key}
	if name.Principal != "" {
		parts = append(parts, name.Principal)
	}
	return ofShortParts("semel v1 identity", material, parts...)
}

// DownstreamKey returns the key to pass on to another system.
func DownstreamKey(identity []byte, step string, material []byte) string {
	sum := ofShortParts("semel v1 downstream key", material, string(identity), step)
	return "semel-" + hex.EncodeToString(sum[:16])
}
