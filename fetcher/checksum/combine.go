package checksum

import "hash/crc32"

// width and poly describe a CRC in the reflected form that is used throughout:
// the top bit stands for x^0, the bottom bit for x^(width-1).
func (a Algorithm) field() (width int, poly uint64) {
	switch a {
	case CRC32C:
		return 32, crc32.Castagnoli
	case CRC32:
		return 32, crc32.IEEE
	}
	return 64, 0x9a6c9329ac4bc9b5 // NVM Express, Technical Proposal 4102b
}

// Combine returns the CRC of A followed by B, given crc(A), crc(B) and the
// length of B in bytes:
//
//	crc(AB) = crc(A) * x^(8 len(B)) mod P  xor  crc(B)
//
// The ones that a CRC begins and ends with cancel out. It costs some sixty
// multiplications, whatever the length.
func Combine(a Algorithm, crcA, crcB uint64, lenB int64) uint64 {
	if lenB <= 0 {
		return crcA ^ crcB
	}
	width, poly := a.field()
	return multiply(width, poly, power(width, poly, lenB), crcA) ^ crcB
}

// power returns x^(8n) mod P by repeated squaring.
func power(width int, poly uint64, n int64) uint64 {
	result := uint64(1) << (width - 1) // x^0
	square := uint64(1) << (width - 9) // x^8: one byte
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			result = multiply(width, poly, result, square)
		}
		square = multiply(width, poly, square, square)
	}
	return result
}

// multiply returns a*b mod P, bit by bit from a's x^0 up.
func multiply(width int, poly, a, b uint64) uint64 {
	var product uint64
	for bit := uint64(1) << (width - 1); bit > 0 && a > 0; bit >>= 1 {
		if a&bit != 0 {
			product ^= b
			a &^= bit
		}
		if b&1 == 1 { // times x: what falls off at x^width comes back as P
			b = b>>1 ^ poly
		} else {
			b >>= 1
		}
	}
	return product
}

// Piece is the CRC of some bytes of an object.
type Piece struct {
	Off, Len int64
	CRC      uint64
}

// Join combines pieces that follow each other without a gap, in their order.
func Join(a Algorithm, pieces []Piece) uint64 {
	var crc uint64
	for _, p := range pieces {
		crc = Combine(a, crc, p.CRC, p.Len)
	}
	return crc
}

// Composite computes a composite sum from the pieces of the whole object in
// their order, no piece reaching over the end of a part. It returns false when
// the pieces do not add up to the parts.
func Composite(a Algorithm, pieces []Piece, partSizes []int64) (Sum, bool) {
	all := a.New()
	if all == nil || !a.Combines() {
		return Sum{}, false
	}
	var end int64
	for _, size := range partSizes {
		end += size
		n, length := 0, int64(0)
		for n < len(pieces) && pieces[n].Off+pieces[n].Len <= end {
			length += pieces[n].Len
			n++
		}
		if length != size {
			return Sum{}, false
		}
		_, _ = all.Write(a.Bytes(Join(a, pieces[:n]))) // a hash never fails
		pieces = pieces[n:]
	}
	return Sum{Algorithm: a, Value: all.Sum(nil), Parts: len(partSizes)}, len(pieces) == 0
}
