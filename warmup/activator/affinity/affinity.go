// Package affinity sends what belongs together to the same pod, as long as
// that pod is not much busier than the others: consistent hashing with bounded
// loads.
//
// For each key every pod draws a weight, the hash of both (rendezvous
// hashing): the pod with the highest weight is the key's home, the second is
// where it goes when home is full, and so on. A pod that comes or goes moves
// only the keys whose home it becomes or was, one in n. No pod may carry more
// than [Bound] requests; the next in the key's own order takes what is above.
//
// With 4 pods, 7 requests running and a factor of 1.25 the bound is
// ceil(1.25 x 8 / 4) = 3: a key whose home runs 3 goes to its second pod.
package affinity

import "math"

// DefaultFactor is how much busier than the average a pod may be. A factor
// near 1 balances better and breaks more sessions; at 1.25 a popular key
// spreads before its home carries a quarter more than its share.
const DefaultFactor = 1.25

// Bound is the most requests one of n pods may carry when one more comes to
// the total that runs; factor is at least 1.
func Bound(factor float64, total, n int) int {
	if n == 0 {
		return 0
	}
	return int(math.Ceil(max(factor, 1) * float64(total+1) / float64(n)))
}

// Pod is what is asked of a pod.
type Pod interface {
	ID() uint64 // hash of its identity
	Load() int  // requests it runs
	Free() bool // may take one more at all
}

// Pick returns the index of the pod for a key, or -1 when none is free below
// the bound. Pods that are not free count in the average.
func Pick[P Pod](key uint64, pods []P, factor float64) int {
	total := 0
	for _, p := range pods {
		total += p.Load()
	}
	bound := Bound(factor, total, len(pods))
	best, most := -1, uint64(0)
	for i, p := range pods {
		if !p.Free() || p.Load() >= bound {
			continue
		}
		if w := mix(key ^ p.ID()); best < 0 || w > most {
			best, most = i, w
		}
	}
	return best
}

// mix spreads the bits of x over all of the result. The constants and shifts
// are those of SplitMix64's finaliser (Steele, Lea, Flood: Fast Splittable
// Pseudorandom Number Generators, 2014).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
