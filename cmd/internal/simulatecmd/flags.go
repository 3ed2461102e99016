package simulatecmd

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/scaler/simulate"
	"github.com/pilotlight-dev/pilotlight/scaler/simulate/trace"
)

// faults gathers everything that is wrong with the command line, so that it is
// told at once and before anything runs.
type faults []string

func (f *faults) add(err error) {
	if err != nil {
		*f = append(*f, strings.ReplaceAll(err.Error(), "\n", "; ")) // errors.Join puts them on lines
	}
}

func (f *faults) check(ok bool, format string, args ...any) {
	if !ok {
		*f = append(*f, fmt.Sprintf(format, args...))
	}
}

// span checks a duration.
func (f *faults) span(flag string, d, least time.Duration) {
	f.check(d >= least && d <= longest, "%s %v: must be %s", flag, d, within(least))
}

func (f faults) err() error {
	if len(f) == 0 {
		return nil
	}
	return cli.Usage("%s", strings.Join(f, "; "))
}

// longest is the longest duration that a flag takes: with more, sums of them
// could overflow.
const longest = 365 * 24 * time.Hour

// within says what a duration must be; a least of 1 ns stands for above 0.
func within(least time.Duration) string {
	if least == 1 {
		return fmt.Sprintf("above 0 and at most %v", longest)
	}
	return fmt.Sprintf("from %v to %v", least, longest)
}

// check is about the flags that mean something by themselves.
func (o *Options) check(f *faults) {
	f.check(o.rate > 0 && !math.IsInf(o.rate, 0), "--rate %v: must be a number above 0", o.rate)
	f.span("--from", o.from, 0)
	f.span("--for", o.length, 0)
	f.span("--patience", o.patience, 0)
	f.span("--slo", o.slo, 1)
	f.span("--gauge-lag", o.gaugeLag, 0)
	f.check(o.warm >= 0, "--warm %d: must not be negative", o.warm)
	for _, n := range o.failing {
		f.check(n >= 1, "--failing %d: starts are counted from 1", n)
	}
	for _, n := range o.stuck {
		f.check(n >= 1, "--stuck %d: starts are counted from 1", n)
		f.check(n < 1 || !slices.Contains(o.failing, n), "--stuck %d: --failing names the same start", n)
	}
}

// checkCompare is about --compare and --output; most is 0 while maxReplicaCount
// is unknown.
func (f *faults) checkCompare(compare []string, most int) {
	if len(compare) == 1 && (compare[0] == "all" || compare[0] == "none") {
		return
	}
	for _, name := range compare {
		if n, ok := strings.CutPrefix(name, "fixed-"); ok {
			count, err := strconv.Atoi(n)
			f.check(err == nil && count >= 1 && (most == 0 || count <= most), "--compare %s: N must be from 1 to maxReplicaCount, %d", name, most)
			continue
		}
		f.check(slices.Contains(names(), name), "--compare %s: must be one of %s, fixed-N, all or none", name, strings.Join(names(), ", "))
	}
}

// checkOutputs is about where the results go.
func (f *faults) checkOutputs(html, png, format string) {
	f.check(format == "table" || format == "json", "--output %q: must be table or json", format)
	f.check(html == "" || filepath.Clean(html) != filepath.Clean(png), "--png %s: --html names the same file", png)
}

// traceFlag is the flag to blame when the trace cannot be read.
func traceFlag(err error) string {
	if errors.Is(err, trace.ErrOptions) {
		return "--rate"
	}
	return "--trace"
}

// parseEngine reads --engine. The defaults are the simulator's own.
func parseEngine(s string, f *faults) simulate.Engine {
	e := simulate.Engine{Slots: 16, Prefill: 8000, DecodeAlone: 20 * time.Millisecond}
	ok := pairs("--engine", s, f, map[string]func(string) error{
		"slots":      whole(&e.Slots, 1),
		"prefill":    number(&e.Prefill, math.SmallestNonzeroFloat64, math.MaxFloat64, "a number above 0"),
		"decode":     span(&e.DecodeAlone, 1),
		"decodefull": span(&e.DecodeFull, 1),
		"kv":         whole(&e.KVTokens, 0),
	})
	if e.DecodeFull == 0 {
		e.DecodeFull = 2 * e.DecodeAlone
	}
	f.check(!ok || e.DecodeFull >= e.DecodeAlone, "--engine: decodefull %v must not be below decode %v", e.DecodeFull, e.DecodeAlone)
	return e
}

// parseStarts reads --cold-start; without it the trigger's coldStart is P50,
// and 0 stands for one that is unknown.
func parseStarts(s string, p50 time.Duration, f *faults) simulate.Starts {
	st := simulate.Starts{P50: p50}
	ok := pairs("--cold-start", s, f, map[string]func(string) error{
		"p50":       span(&st.P50, 1),
		"p95":       span(&st.P95, 1),
		"node":      number(&st.NodeChance, 0, 1, "a probability from 0 to 1"),
		"nodedelay": span(&st.NodeDelay, 0),
	})
	if st.P95 == 0 {
		st.P95 = st.P50 * 5 / 3
	}
	f.check(!ok || st.P95 >= st.P50, "--cold-start: p95 %v must not be below p50 %v", st.P95, st.P50)
	return st
}

func whole(dst *int, least int) func(string) error {
	return func(s string) error {
		v, err := strconv.Atoi(s)
		if err != nil || v < least {
			return fmt.Errorf("%q must be a whole number from %d", s, least)
		}
		*dst = v
		return nil
	}
}

func number(dst *float64, least, most float64, what string) func(string) error {
	return func(s string) error {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil || !(v >= least && v <= most) {
			return fmt.Errorf("%q must be %s", s, what)
		}
		*dst = v
		return nil
	}
}

func span(dst *time.Duration, least time.Duration) func(string) error {
	return func(s string) error {
		v, err := time.ParseDuration(s)
		if err != nil || v < least || v > longest {
			return fmt.Errorf("%q must be a duration such as 90s, %s", s, within(least))
		}
		*dst = v
		return nil
	}
}

// pairs reads key=value,key=value and says whether all were good.
func pairs(flag, s string, f *faults, set map[string]func(string) error) bool {
	before := len(*f)
	seen := map[string]bool{}
	for part := range strings.SplitSeq(s, ",") {
		if s == "" {
			break
		}
		key, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		read := set[key]
		switch {
		case !ok || read == nil:
			known := make([]string, 0, len(set))
			for k := range set {
				known = append(known, k)
			}
			slices.Sort(known)
			f.check(false, "%s: %q must be key=value with a key of %s", flag, part, strings.Join(known, ", "))
		case seen[key]:
			f.check(false, "%s: %s is given twice", flag, key)
		default:
			if err := read(value); err != nil {
				f.check(false, "%s: %s: %v", flag, key, err)
			}
		}
		seen[key] = true
	}
	return len(*f) == before
}
