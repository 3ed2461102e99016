package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pilotlight-dev/pilotlight/test/internal/figures"
)

// A pair compares one of our runs with one of theirs.
type pair struct {
	name         string
	ours, theirs string // names of contenders
	goal         float64
}

// series are runs of several contenders over the same objects, in rounds.
type series struct {
	name    string
	prefix  string // of the objects
	count   int
	size    int64
	slow    bool // through the proxy
	entries []string
	pairs   []pair
	// extra are figures of our own runs.
	extra func(runs map[string][]sample, bytes int64) []figures.Figure
}

// quarter makes a series, smaller if that is asked for.
func quarter(c config, name string, count int, size int64) series {
	if c.modest {
		if size > 1<<20 {
			size /= 4
		} else {
			count /= 4
		}
	}
	return series{name: name, prefix: name, count: count, size: size}
}

// allSeries lists what is measured.
func allSeries(c config) []series {
	big := quarter(c, "4x1g", 4, 1<<30)
	big.entries = []string{"durable", "s5cmd", "cp+sync", "ephemeral+read", "s5cmd+read", "s5cmd64", "cp", "durable16"}
	if c.aws != "" {
		big.entries = append(big.entries, "aws")
	}
	big.pairs = []pair{
		{"fetch_vs_s5cmd_4x1g", "durable", "s5cmd", 0.80},
		{"fetch_vs_s5cmd64_4x1g", "durable", "s5cmd64", 1.0},
		{"fetch_vs_cp_sync_4x1g", "durable", "cp+sync", 0.9},
		{"fetch_vs_awscli_4x1g", "durable", "aws", 0.8},
		{"fetch_and_read_vs_s5cmd_4x1g", "ephemeral+read", "s5cmd+read", 1.0},
	}
	big.extra = func(runs map[string][]sample, bytes int64) []figures.Figure {
		return []figures.Figure{
			{Name: "fetch_rss_mib_16", Value: most(runs["durable16"], rss), Unit: "MiB", Goal: figures.AtMost(64), Note: "the most of all rounds"},
			{Name: "fetch_cpu_s_per_gib", Value: median(each(runs["durable"], cpu)) / (float64(bytes) / (1 << 30)), Unit: "s/GiB", Goal: figures.AtMost(0.45), Note: "on loopback part of the server's sending is charged to the reader"},
			{Name: "s5cmd_cpu_s_per_gib", Value: median(each(runs["s5cmd"], cpu)) / (float64(bytes) / (1 << 30)), Unit: "s/GiB", Note: "for comparison, from the same runs"},
		}
	}
	one := quarter(c, "1x4g", 1, 4<<30)
	one.entries = []string{"durable", "s5cmd", "s5cmd64"}
	one.pairs = []pair{{"fetch_vs_s5cmd_1x4g", "durable", "s5cmd", 0.80}, {"fetch_vs_s5cmd64_1x4g", "durable", "s5cmd64", 1.0}}
	many := quarter(c, "2000x256k", 2000, 256<<10)
	many.entries = []string{"durable", "s5cmd", "ephemeral"}
	many.pairs = []pair{{"fetch_vs_s5cmd_2000x256k", "durable", "s5cmd", 0.9}, {"fetch_ephemeral_vs_s5cmd_2000x256k", "ephemeral", "s5cmd", 0.9}}
	far := quarter(c, "latency_1x1g", 1, 1<<30)
	far.slow, far.entries = true, []string{"durable", "s5cmd", "s5cmd64"}
	far.pairs = []pair{{"fetch_vs_s5cmd_latency_1x1g", "durable", "s5cmd", 0.1}, {"fetch_vs_s5cmd64_latency_1x1g", "durable", "s5cmd64", 1.0}}
	far.extra = func(runs map[string][]sample, _ int64) []figures.Figure {
		return []figures.Figure{{Name: "fetch_rss_mib_256", Value: most(runs["durable"], rss), Unit: "MiB", Goal: figures.AtMost(192), Note: "the most of all rounds"}}
	}
	farMany := many
	farMany.name, farMany.slow, farMany.entries, farMany.extra = "latency_2000x256k", true, []string{"durable", "s5cmd", "s5cmd64"}, nil
	farMany.pairs = []pair{{"fetch_vs_s5cmd_latency_2000x256k", "durable", "s5cmd", 1.0}, {"fetch_vs_s5cmd64_latency_2000x256k", "durable", "s5cmd64", 1.0}}
	return []series{big, one, many, far, farMany, {name: "rollback"}}
}

// measure runs a series and computes its figures.
func (b *bench) measure(ctx context.Context, s series) ([]figures.Figure, error) {
	if s.name == "rollback" {
		return b.rollback(ctx)
	}
	if err := b.upload(ctx, s); err != nil {
		return nil, err
	}
	runs := map[string][]sample{}
	for round := range b.rounds {
		order := slices.Clone(s.entries)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, name := range order {
			got, err := b.contend(ctx, s, name, round)
			if err != nil {
				return nil, fmt.Errorf("%s in round %d: %w", name, round, err)
			}
			runs[name] = append(runs[name], got)
			_, _ = fmt.Fprintf(b.log, "%-18s round %d  %-15s %6.2f s  cpu %5.2f s  rss %4.0f MiB\n", s.name, round, name, got.wall.Seconds(), got.cpu.Seconds(), got.rss) // progress
		}
	}
	var list []figures.Figure
	for _, p := range s.pairs {
		if len(runs[p.theirs]) == 0 {
			continue
		}
		var ratios []float64
		for i, ours := range runs[p.ours] {
			ratios = append(ratios, ours.wall.Seconds()/runs[p.theirs][i].wall.Seconds())
		}
		list = append(list, figures.Figure{
			Name: p.name, Value: median(ratios), Unit: "ratio", Goal: figures.AtMost(p.goal),
			Note: fmt.Sprintf("[%.2f-%.2f], medians %.2f s and %.2f s", slices.Min(ratios), slices.Max(ratios), median(each(runs[p.ours], wall)), median(each(runs[p.theirs], wall))),
		})
	}
	if s.extra != nil {
		list = append(list, s.extra(runs, int64(s.count)*s.size)...)
	}
	return list, nil
}

// sample is one run of one contender.
type sample struct {
	wall, cpu time.Duration
	rss       float64 // MiB
}

func wall(s sample) float64 { return s.wall.Seconds() }
func cpu(s sample) float64  { return s.cpu.Seconds() }
func rss(s sample) float64  { return s.rss }

func each(samples []sample, of func(sample) float64) []float64 {
	out := make([]float64, 0, len(samples))
	for _, s := range samples {
		out = append(out, of(s))
	}
	return out
}

func most(samples []sample, of func(sample) float64) float64 {
	values := each(samples, of)
	if len(values) == 0 {
		return 0
	}
	return slices.Max(values)
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
