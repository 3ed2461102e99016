// Command benchpolicy plays Pilotlight's policy and those of its peers in the
// eleven scenarios of the policy study, at two cold starts and with several
// seeds, and prints what everybody costs.
//
//	go run ./test/benchpolicy                                   everything, some minutes on two cores
//	go run ./test/benchpolicy -scenario flash -policy pilotlight -seeds 1
//	go run ./test/benchpolicy -quick                            without grids and clairvoyant
//	go run ./test/benchpolicy -from 96h                         other days of the ServeGen clients
//
// Only a run of everything writes the figures to -out. Peers play at their
// defaults and at every point of a small grid; the best point over all
// scenarios, found in hindsight, is the tuned peer. Ours is told the price, as
// its users tell it; peers have no such setting, so one run of theirs is priced
// three times.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/pilotlight-dev/pilotlight/test/internal/figures"
)

type options struct {
	scenario, policy string
	seeds            int
	quick            bool
	from             time.Duration
	traces, out      string
}

func main() {
	var o options
	flag.StringVar(&o.scenario, "scenario", "", "only scenarios whose name contains this")
	flag.StringVar(&o.policy, "policy", "", "only policies whose name contains this; ours at the middle price is always there")
	flag.IntVar(&o.seeds, "seeds", 3, "number of seeds")
	flag.BoolVar(&o.quick, "quick", false, "only ours and the peers at their defaults")
	flag.DurationVar(&o.from, "from", 0, "where the two days of the ServeGen clients begin")
	flag.StringVar(&o.traces, "traces", "test/traces", "folder of the traces")
	flag.StringVar(&o.out, "out", "build/bench/policy.json", "file for the figures")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchpolicy:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, out io.Writer) error {
	if o.seeds < 1 {
		return errors.New("-seeds must be at least 1")
	}
	began := time.Now()
	f := field{seeds: o.seeds, workloads: chosen(workloads(o.traces, o.from), o.scenario), contestants: o.contestants()}
	if len(f.workloads) == 0 {
		return fmt.Errorf("no scenario contains %q", o.scenario)
	}
	var err error
	if f.scenarios, err = prepare(f.workloads, o.seeds); err != nil {
		return err
	}
	var progress io.Writer
	if term.IsTerminal(int(os.Stderr.Fd())) {
		progress = os.Stderr
	}
	if f.outcomes, err = runAll(ctx, f.contestants, f.scenarios, progress); err != nil {
		return err
	}
	if err := errors.Join(f.totals(out), line(out), f.perScenario(out), line(out)); err != nil {
		return fmt.Errorf("printing the tables: %w", err)
	}
	if o.scenario != "" || o.policy != "" || o.quick {
		return nil
	}
	list := f.figures(float64(decideTime().Nanoseconds()))
	if err := figures.Print(out, list); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "%d runs in %v\n", len(f.contestants)*len(f.scenarios), time.Since(began).Round(time.Second)); err != nil {
		return fmt.Errorf("printing the figures: %w", err)
	}
	return figures.Save(o.out, list)
}

func line(out io.Writer) error {
	_, err := fmt.Fprintln(out)
	return err
}

func chosen(all []workload, part string) []workload {
	return slices.DeleteFunc(all, func(w workload) bool { return !strings.Contains(w.name, part) })
}

func (o options) contestants() []contestant {
	all := append(mine(), peers()...)
	if !o.quick {
		all = append(append(all, grid()...), schedules()...)
	}
	return slices.DeleteFunc(all, func(c contestant) bool {
		return !strings.Contains(c.name, o.policy) && (c.class != ours || c.price != middle)
	})
}
