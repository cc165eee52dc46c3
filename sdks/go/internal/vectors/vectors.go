// Package vectors reads `spec/vectors`, for tests: what this module computes is what the other languages compute.
package vectors

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Folder is where the vectors are.
func Folder() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "../../../../spec/vectors")
}

// Cases reads one list of a file. An empty one would show nothing.
func Cases[T any](t *testing.T, file, part string) []T {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Folder(), file))
	if err != nil {
		t.Fatal(err)
	}
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(text, &parts); err != nil {
		t.Fatal(err)
	}
	var out []T
	if err := json.Unmarshal(parts[part], &out); err != nil {
		t.Fatalf("%s, %s: %v", file, part, err)
	}
	if len(out) == 0 {
		t.Fatalf("%s has no %s", file, part)
	}
	return out
}

// Text is a text, or a list of pieces that are repeated.
type Text string

// UnmarshalJSON joins the pieces.
func (t *Text) UnmarshalJSON(text []byte) error {
	if text[0] == '"' {
		return json.Unmarshal(text, (*string)(t))
	}
	var pieces []struct {
		Repeat string
		Times  int
	}
	err := json.Unmarshal(text, &pieces)
	for _, piece := range pieces {
		*t += Text(strings.Repeat(piece.Repeat, piece.Times))
	}
	return err
}

// Hex is bytes.
type Hex []byte

// UnmarshalJSON reads the digits.
func (h *Hex) UnmarshalJSON(text []byte) error {
	var digits string
	if err := json.Unmarshal(text, &digits); err != nil {
		return err
	}
	var err error
	*h, err = hex.DecodeString(digits)
	return err
}

// Secret is key material, or none.
type Secret struct{ Material Hex }
