package simulatecmd

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/internal/trigger"
	"github.com/pilotlight-dev/pilotlight/scaler/simulate"
)

const tuneLong = `Search the trigger's settings for a trace and print the better ones as a patch.

The prices in the ScaledObject say what better means: gpuHourlyCost and
waitCost, or priority. The search changes one key at a time, keeps what costs
less, and goes round until nothing does. Settings that lose more requests than
the present ones are never better, whatever they cost: no price says what a
lost request is worth. The frontier lists, of everything else that was tried,
what nothing beats on all of lost requests, the 95th percentile of the wait,
GPU-hours and cost; the best found is one of them.

A trace is the past: prefer a setting that is a little dearer and sane to one
that fits it exactly.`

// knob is a metadata key and the values that are tried.
type knob struct {
	key    string
	values []string
}

// knobs are the keys that trade waiting for GPU time. targetRequests is tried
// relative to what stands there, since engines differ.
func knobs(t trigger.Trigger) []knob {
	targets := []string{}
	for _, share := range []float64{0.5, 0.65, 0.8, 1, 1.25} {
		rounded, _ := strconv.ParseFloat(fmt.Sprintf("%.3g", max(1, share*t.TargetRequests)), 64) // a number just printed
		targets = append(targets, strconv.FormatFloat(rounded, 'f', -1, 64))
	}
	return []knob{
		{"targetRequests", targets},
		{"keepAlive", []string{"auto", "30s", "2m", "5m", "15m", "1h"}},
		{"scaleDownWindow", []string{"auto", "1m", "5m", "15m"}},
		{"drainWithin", []string{"auto", "5s", "10s", "20s", "1m"}},
		{"lookahead", []string{"auto", "off", "30s"}},
	}
}

// Tune makes the command; tty says whether stderr is a terminal.
func Tune(tty bool) *cobra.Command {
	o := Options{progress: tty}
	cmd := &cobra.Command{
		Use: "tune --scaledobject FILE --trace FILE", Short: "Search the trigger's settings for a trace and a price", Long: tuneLong, Args: cli.NoArgs,
		Example: "  pilotlight tune --scaledobject so.yaml --trace last-week.csv --cold-start p50=90s,p95=150s",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var f faults
			w := o.open(&f)
			if err := f.err(); err != nil {
				return err
			}
			if err := w.note(cmd.ErrOrStderr()); err != nil {
				return err
			}
			s := &search{world: w, seen: map[string]trial{}}
			best, err := s.run(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			return s.print(cmd.OutOrStdout(), best)
		},
	}
	o.add(cmd)
	return cmd
}

// A trial is one set of metadata values and what came of it.
type trial struct {
	changes map[string]string // against the ScaledObject
	lost    int
	cost    float64
	p95     float64
	gpu     float64
}

// A search is a coordinate descent that remembers everything it tried.
type search struct {
	*world
	seen  map[string]trial
	start trial // the settings as they are
}

// order puts the better trial first. Cost decides among those that lose no more
// requests than the settings as they are; of equal ones the one with fewer
// changes is better.
func (s *search) order(a, b trial) int {
	return cmp.Or(
		cmp.Compare(max(a.lost, s.start.lost), max(b.lost, s.start.lost)),
		cmp.Compare(a.cost, b.cost), cmp.Compare(a.lost, b.lost), cmp.Compare(a.p95, b.p95), cmp.Compare(a.gpu, b.gpu),
		cmp.Compare(len(a.changes), len(b.changes)), cmp.Compare(describe(a.changes), describe(b.changes)),
	)
}

func (s *search) run(ctx context.Context, stderr io.Writer) (trial, error) {
	ks := knobs(s.object.Trigger)
	const rounds = 3
	total := 1
	for _, k := range ks {
		total += rounds * len(k.values)
	}
	bar := newProgress(stderr, s.progress, total)
	defer bar.end()
	start, err := s.try(ctx, []map[string]string{{}}, bar)
	if err != nil {
		return trial{}, err
	}
	s.start = start[0]
	best := s.start
	for range rounds {
		before := best
		for _, k := range ks {
			var sets []map[string]string
			for _, v := range k.values {
				set := maps.Clone(best.changes)
				set[k.key] = v
				if v == s.object.Metadata[k.key] {
					delete(set, k.key)
				}
				sets = append(sets, set)
			}
			trials, err := s.try(ctx, sets, bar)
			if err != nil {
				return trial{}, err
			}
			best = slices.MinFunc(append(trials, best), s.order)
		}
		if maps.Equal(best.changes, before.changes) {
			break
		}
	}
	return best, nil
}

// try simulates every set of changes, each once ever.
func (s *search) try(ctx context.Context, sets []map[string]string, bar *progress) ([]trial, error) {
	out := make([]trial, len(sets))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, set := range sets {
		if known, ok := s.seen[fmt.Sprint(set)]; ok {
			out[i] = known
			bar.step()
			continue
		}
		group.Go(func() error {
			metadata := maps.Clone(s.object.Metadata)
			maps.Copy(metadata, set)
			t, err := trigger.Parse(metadata)
			if err != nil {
				return err
			}
			scenario := s.scenario
			scenario.SampleEvery, scenario.TargetRequests = 0, t.TargetRequests
			through := *s.through
			through.Target = t.TargetRequests
			w := *s.world
			w.through = &through
			r, err := simulate.Run(ctx, scenario, w.ours(t))
			if err != nil {
				return err
			}
			out[i] = trial{set, r.Lost, r.Cost(s.prices), r.FirstToken.P95, r.GPUHours()}
			bar.step()
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for i, set := range sets {
		s.seen[fmt.Sprint(set)] = out[i]
	}
	return out, nil
}

func (s *search) print(out io.Writer, best trial) error {
	table := [][]string{{"settings", "lost", "p95 s", "GPU-h", "cost $"}, s.start.cells("as they are"), best.cells("best found")}
	front := s.frontier()
	for _, t := range front {
		name := "  frontier: " + describe(t.changes)
		if maps.Equal(t.changes, best.changes) {
			name += " (best found)"
		}
		table = append(table, t.cells(name))
	}
	var b bytes.Buffer
	b.WriteString(s.headline() + "\n\n")
	if err := writeTable(&b, table); err != nil {
		return err
	}
	if s.start.lost > 0 || slices.ContainsFunc(front, func(t trial) bool { return t.lost > 0 }) {
		b.WriteString("\n" + lostNote + "\n")
	}
	b.WriteString("\n" + s.verdict(best) + "\n")
	for _, key := range slices.Sorted(maps.Keys(best.changes)) {
		fmt.Fprintf(&b, "      %s: %q\n", key, best.changes[key])
	}
	_, err := out.Write(b.Bytes())
	return err
}

// verdict is the sentence above the patch, or instead of it.
func (s *search) verdict(best trial) string {
	if len(best.changes) == 0 {
		for _, t := range s.seen {
			if t.cost < s.start.cost {
				return "Nothing tried is cheaper than the settings as they are without losing more requests."
			}
		}
		return "Nothing tried is cheaper than the settings as they are."
	}
	gain := fmt.Sprintf("%.0f %% cheaper", 100*(1-best.cost/s.start.cost))
	switch {
	case best.cost >= s.start.cost:
		gain = "as cheap, and otherwise better"
	case best.cost > 0.99*s.start.cost:
		gain = "less than 1 % cheaper"
	}
	return fmt.Sprintf("Patch for the trigger's metadata in ScaledObject %s/%s (%s on this trace):\n", s.object.Namespace, s.object.Name, gain)
}

func (t trial) cells(name string) []string {
	return []string{name, fmt.Sprint(t.lost), fmt.Sprintf("%.1f", t.p95), fmt.Sprintf("%.2f", t.gpu), fmt.Sprintf("%.2f", t.cost)}
}

func describe(changes map[string]string) string {
	if len(changes) == 0 {
		return "as they are"
	}
	parts := make([]string, 0, len(changes))
	for _, key := range slices.Sorted(maps.Keys(changes)) {
		parts = append(parts, key+"="+changes[key])
	}
	return strings.Join(parts, " ")
}

// beats says that t is nowhere worse than b, and somewhere better.
func (t trial) beats(b trial) bool {
	worse := t.lost > b.lost || t.p95 > b.p95 || t.gpu > b.gpu || t.cost > b.cost
	return !worse && !t.same(b)
}

func (t trial) same(b trial) bool {
	return t.lost == b.lost && t.p95 == b.p95 && t.gpu == b.gpu && t.cost == b.cost
}

// frontier is what no other trial beats, the quickest first. What loses more
// requests than the settings as they are is not on it. The best trial is:
// nothing on it costs less.
func (s *search) frontier() []trial {
	all := slices.SortedFunc(maps.Values(s.seen), s.order)
	var out []trial
	for _, t := range all {
		// Of those with the same figures the first in order is listed.
		known := slices.ContainsFunc(out, t.same)
		if known || t.lost > s.start.lost || slices.ContainsFunc(all, func(o trial) bool { return o.beats(t) }) {
			continue
		}
		out = append(out, t)
	}
	slices.SortStableFunc(out, func(a, b trial) int { return cmp.Or(cmp.Compare(a.p95, b.p95), cmp.Compare(a.gpu, b.gpu)) })
	return out
}
