// Package blake3 has the two modes of BLAKE3 that Semel's digests use: keyed hashing and key derivation.
//
// It is portable and not optimised: a request's body is hashed once, and is at most a few MiB long.
package blake3

import (
	"encoding/binary"
	"math/bits"
)

const (
	// Size is the length of a key, and of a whole digest.
	Size = 32

	blockLen = 64
	chunkLen = 1024

	flagChunkStart        = 1 << 0
	flagChunkEnd          = 1 << 1
	flagParent            = 1 << 2
	flagRoot              = 1 << 3
	flagKeyedHash         = 1 << 4
	flagDeriveKeyContext  = 1 << 5
	flagDeriveKeyMaterial = 1 << 6
)

type words [8]uint32

var iv = words{
	0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A,
	0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19,
}

var permutation = [16]int{2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8}

func mix(s *[16]uint32, a, b, c, d int, x, y uint32) {
	s[a] += s[b] + x
	s[d] = bits.RotateLeft32(s[d]^s[a], -16)
	s[c] += s[d]
	s[b] = bits.RotateLeft32(s[b]^s[c], -12)
	s[a] += s[b] + y
	s[d] = bits.RotateLeft32(s[d]^s[a], -8)
	s[c] += s[d]
	s[b] = bits.RotateLeft32(s[b]^s[c], -7)
}

func compress(chaining words, block *[blockLen]byte, counter uint64, length, flags uint32) words {
	var m [16]uint32
	for i := range m {
		m[i] = binary.LittleEndian.Uint32(block[4*i:])
	}
	s := [16]uint32{
		chaining[0], chaining[1], chaining[2], chaining[3],
		chaining[4], chaining[5], chaining[6], chaining[7],
		iv[0], iv[1], iv[2], iv[3],
		uint32(counter), uint32(counter >> 32), length, flags,
	}
	for round := 0; ; round++ {
		mix(&s, 0, 4, 8, 12, m[0], m[1])
		mix(&s, 1, 5, 9, 13, m[2], m[3])
		mix(&s, 2, 6, 10, 14, m[4], m[5])
		mix(&s, 3, 7, 11, 15, m[6], m[7])
		mix(&s, 0, 5, 10, 15, m[8], m[9])
		mix(&s, 1, 6, 11, 12, m[10], m[11])
		mix(&s, 2, 7, 8, 13, m[12], m[13])
		mix(&s, 3, 4, 9, 14, m[14], m[15])
		if round == 6 {
			break
		}
		var next [16]uint32
		for i, from := range permutation {
			next[i] = m[from]
		}
		m = next
	}
	var out words
	for i := range out {
		out[i] = s[i] ^ s[i+8]
	}
	return out
}

// node is the last compression of a subtree, which is done differently if the subtree is the whole tree.
type node struct {
	chaining words
	block    [blockLen]byte
	counter  uint64
	length   uint32
	flags    uint32
}

func (n *node) chain() words {
	return compress(n.chaining, &n.block, n.counter, n.length, n.flags)
}

func (n *node) root() [Size]byte {
	out := compress(n.chaining, &n.block, 0, n.length, n.flags|flagRoot)
	var digest [Size]byte
	for i, word := range out {
		binary.LittleEndian.PutUint32(digest[4*i:], word)
	}
	return digest
}

// Hasher takes bytes in with Write and gives their digest with Sum. Its Write never fails.
type Hasher struct {
	key   words
	flags uint32
	// Chaining values of the complete subtrees on the left, the largest first.
	stack  []words
	chunks uint64
	// The current chunk, up to its last block.
	chunk    words
	block    [blockLen]byte
	blockLen int
	blocks   int
}

func newHasher(key words, flags uint32) *Hasher {
	return &Hasher{key: key, flags: flags, chunk: key}
}

// NewKeyed returns a hasher for keyed hashing.
func NewKeyed(key [Size]byte) *Hasher {
	return newHasher(wordsOf(key), flagKeyedHash)
}

// DeriveKey derives a key from material, for one use that the context names.
func DeriveKey(context string, material []byte) [Size]byte {
	outer := newHasher(iv, flagDeriveKeyContext)
	outer.write([]byte(context))
	inner := newHasher(wordsOf(outer.Sum()), flagDeriveKeyMaterial)
	inner.write(material)
	return inner.Sum()
}

func wordsOf(key [Size]byte) words {
	var out words
	for i := range out {
		out[i] = binary.LittleEndian.Uint32(key[4*i:])
	}
	return out
}

// Write takes bytes in.
func (h *Hasher) Write(data []byte) (int, error) {
	h.write(data)
	return len(data), nil
}

func (h *Hasher) write(data []byte) {
	for len(data) > 0 {
		// A full block waits until more comes: the last one of a chunk, and of all, is compressed differently.
		if h.blockLen == blockLen {
			if (h.blocks+1)*blockLen == chunkLen {
				h.endChunk()
			} else {
				h.chunk = compress(h.chunk, &h.block, h.chunks, blockLen, h.flags|h.startFlag())
				h.blocks++
				h.blockLen = 0
			}
		}
		n := copy(h.block[h.blockLen:], data)
		h.blockLen += n
		data = data[n:]
	}
}

func (h *Hasher) startFlag() uint32 {
	if h.blocks == 0 {
		return flagChunkStart
	}
	return 0
}

func (h *Hasher) chunkNode() node {
	n := node{h.chunk, [blockLen]byte{}, h.chunks, uint32(h.blockLen), h.flags | h.startFlag() | flagChunkEnd}
	copy(n.block[:], h.block[:h.blockLen])
	return n
}

func (h *Hasher) parent(left, right words) node {
	n := node{chaining: h.key, length: blockLen, flags: h.flags | flagParent}
	for i := range 8 {
		binary.LittleEndian.PutUint32(n.block[4*i:], left[i])
		binary.LittleEndian.PutUint32(n.block[32+4*i:], right[i])
	}
	return n
}

// endChunk adds the chunk to the tree, and merges subtrees of one size.
func (h *Hasher) endChunk() {
	n := h.chunkNode()
	value := n.chain()
	h.chunks++
	for total := h.chunks; total&1 == 0; total >>= 1 {
		last := len(h.stack) - 1
		p := h.parent(h.stack[last], value)
		value = p.chain()
		h.stack = h.stack[:last]
	}
	h.stack = append(h.stack, value)
	h.chunk, h.blockLen, h.blocks = h.key, 0, 0
}

// Sum returns the digest of what was written so far.
func (h *Hasher) Sum() [Size]byte {
	n := h.chunkNode()
	for i := len(h.stack) - 1; i >= 0; i-- {
		n = h.parent(h.stack[i], n.chain())
	}
	return n.root()
}
