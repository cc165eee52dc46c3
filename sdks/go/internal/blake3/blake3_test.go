package blake3

import (
	"encoding/hex"
	"testing"
)

// The key and the input are those of the reference implementation's own vectors.
func TestKeyedDigestsOfManyChunks(t *testing.T) {
	var key [Size]byte
	copy(key[:], "whats the Elvish word for friend")
	for length, want := range map[int]string{
		0:      "92b2b75604ed3c761f9d6f62392c8a9227ad0ea3f09573e783f1498a4ed60d26",
		1:      "6d7878dfff2f485635d39013278ae14f1454b8c0a3a2d34bc1ab38228a80c95b",
		64:     "ba8ced36f327700d213f120b1a207a3b8c04330528586f414d09f2f7d9ccb7e6",
		1023:   "c951ecdf03288d0fcc96ee3413563d8a6d3589547f2c2fb36d9786470f1b9d6e",
		1024:   "75c46f6f3d9eb4f55ecaaee480db732e6c2105546f1e675003687c31719c7ba4",
		1025:   "357dc55de0c7e382c900fd6e320acc04146be01db6a8ce7210b7189bd664ea69",
		2048:   "879cf1fa2ea0e79126cb1063617a05b6ad9d0b696d0d757cf053439f60a99dd1",
		2049:   "9f29700902f7c86e514ddc4df1e3049f258b2472b6dd5267f61bf13983b78dd5",
		5121:   "6ccf1c34753e7a044db80798ecd0782a8f76f33563accaddbfbb2e0ea4b2d024",
		8192:   "dc9637c8845a770b4cbf76b8daec0eebf7dc2eac11498517f08d44c8fc00d58a",
		31744:  "efa53b389ab67c593dba624d898d0f7353ab99e4ac9d42302ee64cbf9939a419",
		102400: "1c35d1a5811083fd7119f5d5d1ba027b4d01c0c6c49fb6ff2cf75393ea5db4a7",
	} {
		input := make([]byte, length)
		for i := range input {
			input[i] = byte(i % 251)
		}
		// In uneven pieces, as a body comes.
		h := NewKeyed(key)
		for rest := input; len(rest) > 0; {
			n := min(len(rest), 77)
			_, _ = h.Write(rest[:n])
			rest = rest[n:]
		}
		if sum := h.Sum(); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%d bytes: %x, not %s", length, sum, want)
		}
	}
}

func TestDerivedKeys(t *testing.T) {
	got := DeriveKey("BLAKE3 2019-12-27 16:29:52 test vectors context", make([]byte, 3000))
	if want := "d8e1fd584bf5d9b82d5483cb97ba037925314b428725796eee1eb8503fa2687d"; hex.EncodeToString(got[:]) != want {
		t.Errorf("%x, not %s", got, want)
	}
}
