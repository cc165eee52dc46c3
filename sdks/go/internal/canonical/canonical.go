// Package canonical writes JSON in its canonical form (RFC 8785): two texts with one meaning become the same bytes.
//
// It refuses what could be read in two ways: a member name given twice, a number that a double can't hold exactly, more
// than 64 levels, and whatever isn't JSON.
package canonical

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

const maxDepth = 64

// Reason says why a text is refused.
type Reason string

// The reasons.
const (
	Duplicate Reason = "duplicate"
	Number    Reason = "number"
	Depth     Reason = "depth"
	Syntax    Reason = "syntax"
)

// Error makes a reason an error.
func (r Reason) Error() string {
	return "not comparable JSON: " + string(r)
}

// Canonicalize returns the canonical form of a JSON text, or a Reason.
func Canonicalize(text []byte) ([]byte, error) {
	if !utf8.Valid(text) {
		return nil, Syntax
	}
	r := reader{text: text}
	out := make([]byte, 0, len(text))
	out, err := r.value(out, 0)
	if err != nil {
		return nil, err
	}
	r.space()
	if r.at != len(text) {
		return nil, Syntax
	}
	return out, nil
}

type reader struct {
	text []byte
	at   int
}

func (r *reader) space() {
	for r.at < len(r.text) && strings.IndexByte(" \t\r\n", r.text[r.at]) >= 0 {
		r.at++
	}
}

// next is the next byte that isn't white space, or 0 at the end.
func (r *reader) next() byte {
	r.space()
	if r.at == len(r.text) {
		return 0
	}
	return r.text[r.at]
}

// take steps over one byte if it is the next.
func (r *reader) take(wanted byte) bool {
	if r.next() != wanted {
		return false
	}
	r.at++
	return true
}

// value reads one value, and appends its canonical form.
func (r *reader) value(out []byte, depth int) ([]byte, error) {
	switch c := r.next(); {
	case c == '{' || c == '[':
		if depth == maxDepth {
			return nil, Depth
		}
		r.at++
		if c == '{' {
			return r.object(out, depth+1)
		}
		return r.array(out, depth+1)
	case c == '"':
		text, err := r.quoted()
		if err != nil {
			return nil, err
		}
		return appendString(out, text), nil
	case c == '-' || isDigit(c):
		return r.number(out)
	}
	for _, word := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(r.text[r.at:], []byte(word)) {
			r.at += len(word)
			return append(out, word...), nil
		}
	}
	return nil, Syntax
}

func (r *reader) array(out []byte, depth int) ([]byte, error) {
	out = append(out, '[')
	if r.take(']') {
		return append(out, ']'), nil
	}
	for {
		var err error
		if out, err = r.value(out, depth); err != nil {
			return nil, err
		}
		if r.take(']') {
			return append(out, ']'), nil
		}
		if !r.take(',') {
			return nil, Syntax
		}
		out = append(out, ',')
	}
}

type member struct {
	name  string
	units []uint16
	value []byte
}

func (r *reader) object(out []byte, depth int) ([]byte, error) {
	members, err := r.members(depth)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(members, func(a, b member) int { return slices.Compare(a.units, b.units) })
	out = append(out, '{')
	for i, m := range members {
		if i > 0 {
			if m.name == members[i-1].name {
				return nil, Duplicate
			}
			out = append(out, ',')
		}
		out = append(appendString(out, m.name), ':')
		out = append(out, m.value...)
	}
	return append(out, '}'), nil
}

func (r *reader) members(depth int) ([]member, error) {
	var members []member
	if r.take('}') {
		return nil, nil
	}
	for {
		if r.next() != '"' {
			return nil, Syntax
		}
		name, err := r.quoted()
		if err != nil {
			return nil, err
		}
		if !r.take(':') {
			return nil, Syntax
		}
		value, err := r.value(nil, depth)
		if err != nil {
			return nil, err
		}
		members = append(members, member{name, utf16.Encode([]rune(name)), value})
		if r.take('}') {
			return members, nil
		}
		if !r.take(',') {
			return nil, Syntax
		}
	}
}

// quoted reads a string, its escapes undone.
func (r *reader) quoted() (string, error) {
	r.at++
	var out []byte
	for r.at < len(r.text) {
		c := r.text[r.at]
		r.at++
		switch {
		case c == '"':
			return string(out), nil
		case c < 0x20:
			return "", Syntax
		case c != '\\':
			out = append(out, c)
		default:
			char, ok := r.escape()
			if !ok {
				return "", Syntax
			}
			out = utf8.AppendRune(out, char)
		}
	}
	return "", Syntax
}

func (r *reader) escape() (rune, bool) {
	if r.at == len(r.text) {
		return 0, false
	}
	c := r.text[r.at]
	r.at++
	if c != 'u' {
		i := strings.IndexByte(`"\/bfnrt`, c)
		if i < 0 {
			return 0, false
		}
		return rune("\"\\/\b\f\n\r\t"[i]), true
	}
	char, ok := r.hex()
	if !ok || !utf16.IsSurrogate(char) {
		return char, ok
	}
	if !bytes.HasPrefix(r.text[r.at:], []byte(`\u`)) {
		return 0, false
	}
	r.at += 2
	low, ok := r.hex()
	pair := utf16.DecodeRune(char, low)
	// Half a pair is no character.
	return pair, ok && pair != utf8.RuneError
}

func (r *reader) hex() (rune, bool) {
	if len(r.text)-r.at < 4 {
		return 0, false
	}
	var char rune
	for _, c := range r.text[r.at : r.at+4] {
		digit := strings.IndexByte("0123456789abcdef", c|0x20)
		if digit < 0 || (c|0x20 != c && isDigit(c|0x20)) {
			return 0, false
		}
		char = char<<4 | rune(digit)
	}
	r.at += 4
	return char, true
}

func appendString(out []byte, text string) []byte {
	const digits = "0123456789abcdef"
	out = append(out, '"')
	for i := range len(text) {
		c := text[i]
		if at := strings.IndexByte("\"\\\b\t\n\f\r", c); at >= 0 {
			out = append(out, '\\', `"\btnfr`[at])
		} else if c < 0x20 {
			out = append(out, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		} else {
			out = append(out, c)
		}
	}
	return append(out, '"')
}
