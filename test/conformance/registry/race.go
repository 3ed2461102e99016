package registryconformance

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pilotlight-dev/pilotlight/registry"
)

const movers = 6

// race lets movers at once go to a version each ("2" and up).
func (b Backend) race(t *testing.T, move func(c Pointer, to string) error) []error {
	t.Helper()
	errs := make([]error, movers)
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range movers {
		c := b.Client(t)
		wg.Go(func() {
			<-start
			errs[i] = move(c, fmt.Sprint(i+2))
		})
	}
	close(start)
	wg.Wait()
	return errs
}

// targets are where done moves went, newest first.
func targets(history []registry.Entry) []string {
	var out []string
	for _, e := range history {
		if e.State == registry.StateDone && e.Action != registry.ActionInit {
			out = append(out, e.To)
		}
	}
	return out
}

func concurrentMovers(t *testing.T, b Backend) {
	c := b.Client(t)
	first := b.read(t, c, b.Make(t, "race", movers+1))
	errs := b.race(t, func(c Pointer, to string) error {
		_, err := c.Move(t.Context(), first.Ref, b.change(first, to))
		return err
	})
	var accepted []string
	for i, err := range errs {
		if err == nil || errors.Is(err, registry.ErrOvertaken) {
			accepted = append(accepted, fmt.Sprint(i+2))
			continue
		}
		require.ErrorIs(t, err, registry.ErrConflict)
	}
	pos := b.read(t, c, first.Ref)
	require.Contains(t, accepted, pos.Version, "who has the pointer was told so")
	if b.Exact {
		require.Len(t, accepted, 1, "all of them expected the same position")
		require.Equal(t, accepted, targets(pos.History))
	}
}

// patientMovers try again until they are accepted.
func patientMovers(t *testing.T, b Backend) {
	c := b.Client(t)
	first := b.read(t, c, b.Make(t, "patience", movers+1))
	errs := b.race(t, func(c Pointer, to string) error {
		for range 20 * movers {
			pos, err := c.Read(t.Context(), first.Ref)
			if err != nil {
				return err
			}
			_, err = c.Move(t.Context(), first.Ref, b.change(pos, to))
			switch {
			case errors.Is(err, registry.ErrOvertaken):
				return nil // it was made all the same
			case !errors.Is(err, registry.ErrConflict):
				return err
			}
		}
		return errors.New("never accepted")
	})
	require.NoError(t, errors.Join(errs...))
	pos := b.read(t, c, first.Ref)
	done := targets(pos.History)
	if !b.Exact {
		require.NotEmpty(t, done)
		return
	}
	require.Equal(t, pos.Version, done[0])
	slices.Sort(done)
	require.Equal(t, []string{"2", "3", "4", "5", "6", "7"}, done, "each accepted move is recorded, and nothing else")
	for i, e := range pos.History[:movers-1] {
		require.Equal(t, pos.History[i+1].To, e.From, "the record is a chain")
	}
}
