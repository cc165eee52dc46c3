package canonical

import (
	"math"
	"strconv"
	"strings"
)

// maxExact is the largest size of a number: from here on, doubles are whole numbers further and further apart.
const maxExact = 1<<53 - 1

func isDigit(c byte) bool {
	return c >= '0' && c <= '9'
}

func (r *reader) digits() bool {
	start := r.at
	for r.at < len(r.text) && isDigit(r.text[r.at]) {
		r.at++
	}
	return r.at > start
}

func (r *reader) is(chars string) bool {
	return r.at < len(r.text) && strings.IndexByte(chars, r.text[r.at]) >= 0
}

func (r *reader) number(out []byte) ([]byte, error) {
	start := r.at
	if r.is("-") {
		r.at++
	}
	zero := r.is("0")
	first := r.at
	if !r.digits() || (zero && r.at > first+1) {
		return nil, Syntax
	}
	if r.is(".") {
		r.at++
		if !r.digits() {
			return nil, Syntax
		}
	}
	if r.is("eE") {
		r.at++
		if r.is("+-") {
			r.at++
		}
		if !r.digits() {
			return nil, Syntax
		}
	}
	given := string(r.text[start:r.at])
	value, err := strconv.ParseFloat(given, 64)
	if err != nil || math.Abs(value) > maxExact {
		return nil, Number
	}
	// What a double can't hold, another reader may: 0.1 and 0.1000000000000000055 are two payloads to it.
	written := numberText(value)
	if decimalOf(given) != decimalOf(written) {
		return nil, Number
	}
	return append(out, written...), nil
}

// decimal is a number by its sign, its digits without zeros at either end, and the power of ten of the last of them.
type decimal struct {
	negative bool
	digits   string
	scale    int
}

func decimalOf(text string) decimal {
	unsigned := strings.TrimPrefix(strings.ToLower(text), "-")
	mantissa, power, _ := strings.Cut(unsigned, "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	ones := strings.TrimRight(digits, "0")
	if ones == "" {
		return decimal{}
	}
	scale := 0
	if power != "" {
		var err error
		if scale, err = strconv.Atoi(power); err != nil {
			// Past every double, and of no use as a number.
			scale = math.MaxInt32
		}
	}
	return decimal{strings.HasPrefix(text, "-"), ones, scale - len(fraction) + len(digits) - len(ones)}
}

// numberText writes a number as ECMAScript does: the shortest digits that give the same double.
func numberText(value float64) string {
	if value == 0 {
		return "0"
	}
	if size := math.Abs(value); size >= 1e-6 && size < 1e21 {
		return strconv.FormatFloat(value, 'f', -1, 64)
	}
	text := strconv.FormatFloat(value, 'e', -1, 64)
	mantissa, power, _ := strings.Cut(text, "e")
	// At least two digits in Go, as few as possible here.
	return mantissa + "e" + power[:1] + strings.TrimLeft(power[1:], "0")
}
