package vectors

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"reflect"
	"strconv"
	"testing"
	"unicode/utf8"
)

// The packed record, version 1, is what a store keeps for a key. The module needs none of it: this shows that a tool in Go
// can read and write the same bytes as all others.

var states = []string{"", "running", "completed", "failed", "in_doubt", "released"}
var crashes = []string{"", "takeover", "hold"}

const (
	headerSize                                      = 96
	checkpointTag, headTag, bodyTag                 = 1, 2, 3
	omittedTag, elsewhereTag, optionalTag, hintSize = 4, 5, 128, 8
)

type decimal uint64

func (d *decimal) UnmarshalJSON(text []byte) error {
	n, err := strconv.ParseUint(string(bytes.Trim(text, `"`)), 10, 64)
	*d = decimal(n)
	return err
}

type answer struct {
	Head    Hex
	Body    *Hex
	Omitted *decimal `json:"omitted_bytes"`
	Digest  *Hex
}

type record struct {
	State, Crash             string
	Fingerprint, Seal, Token Hex
	Fence                    decimal
	LeaseMS                  uint32  `json:"lease_ms"`
	RetentionMS              decimal `json:"retention_ms"`
	CreatedUS                decimal `json:"created_us"`
	WrittenUS                decimal `json:"written_us"`
	Attempt                  uint16
	MaxAttempts              uint16 `json:"max_attempts"`
	SecretID                 uint16 `json:"secret_id"`
	Environment              string
	Tenant, Scope, Hint      string
	Checkpoint               Hex
	Answer                   *answer
}

func index(names []string, name string) byte {
	for i, other := range names {
		if name == other {
			return byte(i)
		}
	}
	return 0
}

func (r *record) pack() []byte {
	var label []byte
	for _, part := range []string{r.Environment, r.Tenant, r.Scope, r.Hint} {
		label = append(append(label, byte(len(part))), part...)
	}
	little := binary.LittleEndian
	out := []byte{1, index(states, r.State), index(crashes, r.Crash)}
	out = append(append(out, r.Fingerprint...), r.Seal...)
	out = append(little.AppendUint64(out, uint64(r.Fence)), r.Token...)
	out = little.AppendUint32(out, r.LeaseMS)
	for _, n := range []decimal{r.RetentionMS, r.CreatedUS, r.WrittenUS} {
		out = little.AppendUint64(out, uint64(n))
	}
	for _, n := range []uint16{r.Attempt, r.MaxAttempts, r.SecretID, uint16(len(label))} {
		out = little.AppendUint16(out, n)
	}
	out = append(out, label...)
	if len(r.Checkpoint) > 0 {
		out = section(out, checkpointTag, r.Checkpoint)
	}
	if a := r.Answer; a != nil {
		out = section(out, headTag, a.Head)
		switch {
		case a.Body != nil:
			out = section(out, bodyTag, *a.Body)
		case a.Digest != nil:
			out = section(out, elsewhereTag, append(little.AppendUint64(nil, uint64(*a.Omitted)), *a.Digest...))
		default:
			out = section(out, omittedTag, little.AppendUint64(nil, uint64(*a.Omitted)))
		}
	}
	return out
}

func section(out []byte, tag byte, data []byte) []byte {
	out = binary.LittleEndian.AppendUint32(append(out, tag), uint32(len(data)))
	return append(out, data...)
}

// unpack reads a record, or says why it isn't one.
func unpack(packed, seal []byte) (*record, string) {
	if len(packed) > 0 && packed[0] != 1 {
		return nil, "unknown_version"
	}
	if len(packed) < headerSize || packed[1] == 0 || int(packed[1]) >= len(states) || packed[2] == 0 || int(packed[2]) >= len(crashes) {
		return nil, "malformed"
	}
	little := binary.LittleEndian
	at := 3
	take := func(n int) []byte {
		at += n
		return packed[at-n : at]
	}
	r := &record{State: states[packed[1]], Crash: crashes[packed[2]], Fingerprint: take(17), Seal: take(16)}
	r.Fence, r.Token, r.LeaseMS = decimal(little.Uint64(take(8))), take(16), little.Uint32(take(4))
	for _, n := range []*decimal{&r.RetentionMS, &r.CreatedUS, &r.WrittenUS} {
		*n = decimal(little.Uint64(take(8)))
	}
	var size uint16
	for _, n := range []*uint16{&r.Attempt, &r.MaxAttempts, &r.SecretID, &size} {
		*n = little.Uint16(take(2))
	}
	for i, label := range []*string{&r.Environment, &r.Tenant, &r.Scope, &r.Hint} {
		length := 0
		if at < len(packed) {
			length = int(packed[at])
		}
		most := 128
		if i == 3 {
			most = hintSize
		}
		if at+1+length > len(packed) || length > most {
			return nil, "malformed"
		}
		at++
		if *label = string(take(length)); !isPlain(*label) {
			return nil, "malformed"
		}
	}
	if at-headerSize != int(size) || r.Scope == "" {
		return nil, "malformed"
	}
	if why := r.sections(packed[at:]); why != "" {
		return nil, why
	}
	if (r.State == "completed" || r.State == "failed") != (r.Answer != nil) {
		return nil, "malformed"
	}
	if seal != nil && !bytes.Equal(r.Seal, seal) {
		return nil, "foreign"
	}
	return r, ""
}

func isPlain(text string) bool {
	for _, c := range text {
		if c < 0x20 || c >= 0x7f && c < 0xa0 {
			return false
		}
	}
	return utf8.ValidString(text)
}

func (r *record) sections(rest []byte) string {
	found := map[byte]Hex{}
	var last byte
	for len(rest) > 0 {
		tag := rest[0]
		if tag <= last || len(rest) < 5 {
			return "malformed"
		}
		length := int(binary.LittleEndian.Uint32(rest[1:]))
		if length > len(rest)-5 || (tag == checkpointTag && length == 0) {
			return "malformed"
		}
		if tag > elsewhereTag && tag < optionalTag {
			return "unknown_section"
		}
		found[tag], last, rest = Hex(rest[5:5+length]), tag, rest[5+length:]
	}
	r.Checkpoint = found[checkpointTag]
	head, hasHead := found[headTag]
	bodies := 0
	a := &answer{Head: head}
	for _, tag := range []byte{bodyTag, omittedTag, elsewhereTag} {
		data, has := found[tag]
		if !has {
			continue
		}
		bodies++
		switch want := map[byte]int{omittedTag: 8, elsewhereTag: 40}[tag]; {
		case tag == bodyTag:
			a.Body = &data
		case len(data) != want:
			return "malformed"
		default:
			omitted := decimal(binary.LittleEndian.Uint64(data))
			a.Omitted = &omitted
			if tag == elsewhereTag {
				digest := data[8:]
				a.Digest = &digest
			}
		}
	}
	if !hasHead && bodies == 0 {
		return ""
	}
	if !hasHead || bodies != 1 {
		return "malformed"
	}
	r.Answer = a
	return ""
}

type recordCase struct {
	Name   string
	Record *record
	Packed Hex
	SameAs string `json:"same_as"`
	Seal   Hex
	Error  string
}

func TestPackedRecords(t *testing.T) {
	all := map[string]*record{}
	for _, c := range Cases[recordCase](t, "record.json", "cases") {
		all[c.Name] = c.Record
		if got := c.Record.pack(); !bytes.Equal(got, c.Packed) {
			t.Errorf("%s: %x, not %x", c.Name, got, []byte(c.Packed))
		}
		equal(t, c.Name, c.Packed, c.Record.Seal, c.Record)
	}
	for _, c := range Cases[recordCase](t, "record.json", "skipped") {
		equal(t, c.Name, c.Packed, nil, all[c.SameAs])
	}
}

func equal(t *testing.T, name string, packed, seal []byte, want *record) {
	t.Helper()
	got, why := unpack(packed, seal)
	if got == nil {
		t.Errorf("%s: %s", name, why)
		return
	}
	if shown(got) != shown(want) {
		t.Errorf("%s: %s, not %s", name, shown(got), shown(want))
	}
}

// shown is a record with what its pointers point to.
func shown(r *record) string {
	out := fmt.Sprint(*r)
	if r.Answer != nil {
		for _, field := range []any{r.Answer.Body, r.Answer.Omitted, r.Answer.Digest} {
			if value := reflect.ValueOf(field); !value.IsNil() {
				out += fmt.Sprint(value.Elem())
			}
		}
		flat := *r
		flat.Answer = nil
		return fmt.Sprint(flat) + hex.EncodeToString(r.Answer.Head) + out[len(fmt.Sprint(*r)):]
	}
	return out
}

func TestRefusedRecords(t *testing.T) {
	for _, c := range Cases[recordCase](t, "record.json", "refused") {
		if got, why := unpack(c.Packed, c.Seal); got != nil || why != c.Error {
			t.Errorf("%s: %q, not %q", c.Name, why, c.Error)
		}
	}
}
