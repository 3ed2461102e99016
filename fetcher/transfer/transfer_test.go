package transfer

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/fetcher/checksum"
	"github.com/pilotlight-dev/pilotlight/internal/retry"
)

func TestObjectsOfEverySizeArrive(t *testing.T) {
	s := newStore(map[string][]byte{
		"empty": {}, "one": []byte("x"), "page": random(1, 4096), "whole": random(2, 64<<10), "odd": random(3, 64<<10+1),
		"large": random(4, 2<<20), "larger": random(5, 5<<20+12345),
	})
	d, c := newDisk(), &counting{}
	opts := tiny(s, d)
	opts.Observer = c
	objects := objectsOf(s)
	report, err := Run(t.Context(), opts, objects)
	require.NoError(t, err)
	requireOnDisk(t, s, d)
	var total int64
	for i, o := range objects {
		total += o.Size
		require.True(t, report.Sums[i].Equal(s.facts[o.Path].Sums[0]), o.Path)
	}
	require.Equal(t, total, report.Stats.Fetched)
	require.Equal(t, total, c.bytes)
	covered := map[string]int64{}
	for _, r := range s.requests {
		covered[r.path] += r.n
		require.LessOrEqual(t, r.n, opts.RangeMax)
		require.Zero(t, r.off%bufferAlign)
	}
	for path, data := range s.data {
		require.EqualValues(t, len(data), covered[path], "each byte of %s was asked for once", path)
	}
}

func TestTheLargestComesFirst(t *testing.T) {
	s := newStore(map[string][]byte{"a": random(1, 300<<10), "b": random(2, 900<<10), "c": random(3, 600<<10)})
	d := newDisk()
	opts := tiny(s, d)
	opts.Connections = 1
	_, err := Run(t.Context(), opts, objectsOf(s))
	require.NoError(t, err)
	var order strings.Builder
	for _, r := range s.requests {
		if !strings.HasSuffix(order.String(), r.path) {
			order.WriteString(r.path)
		}
	}
	require.Equal(t, "bca", order.String())
	require.Equal(t, 1, s.top, "one connection is one request at a time")
}

func TestConnectionsAreBounded(t *testing.T) {
	objects := map[string][]byte{"large": random(1, 4<<20)}
	for i := range 50 {
		objects[fmt.Sprintf("small%d", i)] = random(uint64(i), 1000)
	}
	s := newStore(objects)
	for name, tc := range map[string]struct {
		opts func(*Options)
		want int
	}{
		"ByNumber": {func(o *Options) { o.Connections = 3 }, 3},
		"ByMemory": {func(o *Options) { o.Memory = baseMemory + 2*(socketMemory+smallBuffer) }, 2},
		"AtLeast":  {func(o *Options) { o.Memory = 1 }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s.top = 0
			opts := tiny(s, newDisk())
			tc.opts(&opts)
			report, err := Run(t.Context(), opts, objectsOf(s))
			require.NoError(t, err)
			require.LessOrEqual(t, s.top, tc.want)
			require.Equal(t, tc.want, report.Stats.Ceiling)
		})
	}
}

func TestABrokenRangeGoesOnWhereItWas(t *testing.T) {
	s := newStore(map[string][]byte{"large": random(1, 4<<20)})
	s.spoil = func(_ context.Context, r request, body io.Reader) (io.Reader, error) {
		if r.nth == 1 {
			return breaksAfter(body, r.n*3/4, errBroken), nil
		}
		return body, nil
	}
	d, c := newDisk(), &counting{}
	opts := tiny(s, d)
	opts.Observer, opts.Connections, opts.RangeMax, opts.RangeMin = c, 1, 2<<20, 2<<20
	report, err := Run(t.Context(), opts, objectsOf(s))
	require.NoError(t, err)
	requireOnDisk(t, s, d)
	require.EqualValues(t, 1, report.Stats.Retries)
	require.EqualValues(t, 4<<20, c.bytes)
	// Buffers of 1 MiB are written whole: of the 1.5 MiB the first was.
	require.Equal(t, request{"large", 1 << 20, 1 << 20, 2}, s.requests[1])
}

func TestFailuresAreRetriedOrFinalByTheirClass(t *testing.T) {
	tests := map[string]struct {
		err     error
		times   int // that it happens
		want    error
		retries int64
		reason  string
	}{
		"Unreachable":       {fmt.Errorf("%w: 500", ErrUnreachable), 20, nil, 20, "until the context ends"},
		"DoubtfulTwice":     {fmt.Errorf("%w: %w", ErrIntegrity, ErrDoubtful), 2, nil, 2, "may have been the wire"},
		"DoubtfulForGood":   {fmt.Errorf("%w: %w", ErrIntegrity, ErrDoubtful), 99, ErrIntegrity, 2, "three attempts"},
		"Integrity":         {fmt.Errorf("%w: overwritten", ErrIntegrity), 99, ErrIntegrity, 0, "cannot become right"},
		"Denied":            {fmt.Errorf("%w: 403", ErrDenied), 99, ErrDenied, 0, "cannot become right"},
		"CredentialsOnce":   {fmt.Errorf("%w: %w", ErrDenied, ErrCredentials), 1, nil, 1, "they are renewed"},
		"CredentialsNoMore": {fmt.Errorf("%w: %w", ErrDenied, ErrCredentials), 99, ErrDenied, 3, "four attempts"},
		"Unknown":           {io.ErrClosedPipe, 99, io.ErrClosedPipe, 0, "nobody foresaw it"},
	}
	for name, tc := range tests {
		for _, size := range []int{1000, 200 << 10} {
			t.Run(fmt.Sprintf("%s/%d", name, size), func(t *testing.T) {
				s := newStore(map[string][]byte{"object": random(1, size)})
				s.spoil = func(_ context.Context, r request, body io.Reader) (io.Reader, error) {
					if r.nth <= tc.times {
						return nil, tc.err
					}
					return body, nil
				}
				d, c := newDisk(), &counting{}
				opts := tiny(s, d)
				opts.Connections, opts.Observer, opts.RangeMin = 1, c, 256<<10
				report, err := Run(t.Context(), opts, objectsOf(s))
				require.Equal(t, tc.retries, report.Stats.Retries, tc.reason)
				require.Equal(t, tc.retries, c.retries)
				if tc.want != nil {
					require.ErrorIs(t, err, tc.want)
					require.ErrorContains(t, err, "object")
					require.Zero(t, d.files["object"].open, "files of a failed run are closed")
					return
				}
				require.NoError(t, err)
				requireOnDisk(t, s, d)
			})
		}
	}
}

func TestWrongContentIsFetchedAgainAndThenRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		size, wrong int
		ok          bool
	}{
		"SmallOnce": {1000, 1, true}, "SmallForGood": {1000, 99, false},
		"LargeOnce": {600 << 10, 1, true}, "LargeForGood": {600 << 10, 99, false},
	} {
		t.Run(name, func(t *testing.T) {
			data := random(1, tc.size)
			s := newStore(map[string][]byte{"object": data})
			s.spoil = func(_ context.Context, r request, body io.Reader) (io.Reader, error) {
				if r.off == 0 && r.nth <= tc.wrong {
					return io.MultiReader(strings.NewReader("?"), io.NewSectionReader(strings.NewReader(string(data)), 1, r.n-1)), nil
				}
				return body, nil
			}
			d, c := newDisk(), &counting{}
			opts := tiny(s, d)
			opts.Observer = c
			_, err := Run(t.Context(), opts, objectsOf(s))
			if !tc.ok {
				require.ErrorIs(t, err, ErrIntegrity)
				require.ErrorContains(t, err, "crc64nvme")
				require.False(t, d.files["object"].finished)
				return
			}
			require.NoError(t, err)
			requireOnDisk(t, s, d)
			require.EqualValues(t, tc.size, c.bytes, "what was fetched twice counts once")
		})
	}
}

func TestABodyOfTheWrongLengthIsNotBelieved(t *testing.T) {
	for name, change := range map[string]func(io.Reader, int64) io.Reader{
		"Longer":  func(r io.Reader, _ int64) io.Reader { return io.MultiReader(r, strings.NewReader("more")) },
		"Shorter": func(r io.Reader, n int64) io.Reader { return io.LimitReader(r, n-1) },
		"Empty":   func(r io.Reader, _ int64) io.Reader { return io.LimitReader(r, 0) },
	} {
		for _, size := range []int{5000, 300 << 10} {
			t.Run(fmt.Sprintf("%s/%d", name, size), func(t *testing.T) {
				s := newStore(map[string][]byte{"object": random(1, size)})
				s.spoil = func(_ context.Context, r request, body io.Reader) (io.Reader, error) {
					if r.nth == 1 {
						return change(body, r.n), nil
					}
					return body, nil
				}
				d := newDisk()
				report, err := Run(t.Context(), tiny(s, d), objectsOf(s))
				require.NoError(t, err)
				require.EqualValues(t, 1, report.Stats.Retries)
				requireOnDisk(t, s, d)
			})
		}
	}
}

func TestASilentConnectionIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(map[string][]byte{"object": random(1, 1000)})
		s.spoil = func(ctx context.Context, r request, body io.Reader) (io.Reader, error) {
			if r.nth == 1 {
				return io.MultiReader(io.LimitReader(body, 100), hanging{ctx}), nil
			}
			return body, nil
		}
		d := newDisk()
		start := time.Now()
		report, err := Run(t.Context(), tiny(s, d), objectsOf(s))
		require.NoError(t, err)
		requireOnDisk(t, s, d)
		require.EqualValues(t, 1, report.Stats.Retries)
		require.InDelta(t, DefaultStall.Seconds(), time.Since(start).Seconds(), 1)
	})
}

func TestASlowConnectionIsNotASilentOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(map[string][]byte{"object": random(1, 1000)})
		s.spoil = func(_ context.Context, _ request, body io.Reader) (io.Reader, error) {
			return &dripping{body, 20 * time.Second}, nil
		}
		d := newDisk()
		report, err := Run(t.Context(), tiny(s, d), objectsOf(s))
		require.NoError(t, err)
		require.Zero(t, report.Stats.Retries, "each read brings something within the limit")
	})
}

// dripping delivers a hundred bytes at a time.
type dripping struct {
	io.Reader
	every time.Duration
}

func (d *dripping) Read(p []byte) (int, error) {
	time.Sleep(d.every)
	return d.Reader.Read(p[:min(len(p), 100)])
}

func TestTheBandwidthCapHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(map[string][]byte{"a": random(1, 1<<20), "b": random(2, 1<<20)})
		d := newDisk()
		opts := tiny(s, d)
		opts.Bandwidth = 200 << 10
		start := time.Now()
		report, err := Run(t.Context(), opts, objectsOf(s))
		require.NoError(t, err)
		require.InDelta(t, 10.24, time.Since(start).Seconds(), 0.5, "2 MiB at 200 KiB/s")
		require.Equal(t, BandwidthCap, report.Stats.Bottleneck)
	})
}

func TestAThrottlingStoreIsObeyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects := map[string][]byte{}
		for i := range 64 {
			objects[fmt.Sprint(i)] = random(uint64(i), 1000)
		}
		s := newStore(objects)
		s.spoil = func(_ context.Context, r request, body io.Reader) (io.Reader, error) {
			if r.nth == 1 {
				return nil, retry.After(fmt.Errorf("%w: %w", ErrUnreachable, ErrThrottled), 20*time.Second)
			}
			return body, nil
		}
		d := newDisk()
		opts := tiny(s, d)
		opts.Connections, opts.Backoff.Max = 32, 30*time.Second
		start := time.Now()
		report, err := Run(t.Context(), opts, objectsOf(s))
		require.NoError(t, err)
		requireOnDisk(t, s, d)
		require.GreaterOrEqual(t, time.Since(start), 20*time.Second, "Retry-After is honoured")
		require.EqualValues(t, 64, report.Stats.Throttled)
		require.Equal(t, StoreThrottle, report.Stats.Bottleneck)
	})
}

func TestCancellationEndsTheRun(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	s := newStore(map[string][]byte{"object": random(1, 1000), "large": random(2, 1<<20)})
	s.spoil = func(ctx context.Context, _ request, _ io.Reader) (io.Reader, error) {
		cancel(io.ErrNoProgress)
		return hanging{ctx}, nil
	}
	d := newDisk()
	_, err := Run(ctx, tiny(s, d), objectsOf(s))
	require.ErrorIs(t, err, io.ErrNoProgress, "the cause is named")
	for path, f := range d.files {
		require.Zero(t, f.open, path)
	}
}

func TestNothingToDo(t *testing.T) {
	report, err := Run(t.Context(), Options{Source: newStore(nil), Sink: newDisk()}, nil)
	require.NoError(t, err)
	require.Equal(t, NothingToDo, report.Stats.Bottleneck)
}

func TestAFailingDiskEndsTheRun(t *testing.T) {
	s := newStore(map[string][]byte{"object": random(1, 1<<20)})
	var writes atomic.Int64
	opts := tiny(s, newDisk())
	opts.Sink = fullDisk{newDisk(), &writes}
	_, err := Run(t.Context(), opts, objectsOf(s))
	require.ErrorIs(t, err, io.ErrShortWrite)
	require.Len(t, s.requests, int(writes.Load()), "no request is repeated because the disk is full")
}

type fullDisk struct {
	*disk
	writes *atomic.Int64
}

func (d fullDisk) Create(o Object) (File, error) {
	f, err := d.disk.Create(o)
	return fullFile{f, d.writes}, err
}

type fullFile struct {
	File
	writes *atomic.Int64
}

func (f fullFile) WriteAt([]byte, int64) (int, error) {
	f.writes.Add(1)
	return 0, io.ErrShortWrite
}

func TestAWantedSumBeatsTheStores(t *testing.T) {
	data := random(1, 300<<10)
	s := newStore(map[string][]byte{"object": data})
	for name, tc := range map[string]struct {
		want checksum.Sum
		ok   bool
	}{
		"SHA256":      {sumOf(checksum.SHA256, data), true},
		"OtherSHA256": {sumOf(checksum.SHA256, data[1:]), false},
		"CRC32C":      {sumOf(checksum.CRC32C, data), true},
		"OtherCRC32C": {sumOf(checksum.CRC32C, data[1:]), false},
	} {
		t.Run(name, func(t *testing.T) {
			report, err := Run(t.Context(), tiny(s, newDisk()), []Object{{Path: "object", Size: int64(len(data)), Want: tc.want}})
			if !tc.ok {
				require.ErrorIs(t, err, ErrIntegrity)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, report.Sums[0])
		})
	}
}
