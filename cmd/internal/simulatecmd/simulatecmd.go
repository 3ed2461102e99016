// Package simulatecmd is `pilotlight simulate` and `pilotlight tune` without
// their process: what a ScaledObject would have done with a trace, beside what
// others would have, and which settings would have been better.
package simulatecmd

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/pilotlight-dev/pilotlight/cmd/internal/cli"
	"github.com/pilotlight-dev/pilotlight/scaler/simulate"
)

// Options are the flags that simulate and tune share.
type Options struct {
	scaledObject, trace, engine, coldStart string
	rate                                   float64
	from, length                           time.Duration
	patience, slo                          time.Duration
	seed                                   uint64
	unbounded                              bool
	stuck, failing                         []int
	gaugeLag                               time.Duration
	warm                                   int
	progress                               bool // Stderr is a terminal
}

func (o *Options) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&o.scaledObject, "scaledobject", "", "YAML file with the ScaledObject (required)")
	fs.StringVar(&o.trace, "trace", "", "trace file: Azure CSV, ServeGen windows, Mooncake JSONL, or timestamp,input,output (required)")
	fs.Float64Var(&o.rate, "rate", 1, "multiply the rates of a ServeGen trace")
	fs.DurationVar(&o.from, "from", 0, "leave out the beginning of the trace")
	fs.DurationVar(&o.length, "for", 0, "leave out what comes later than this (default: keep all)")
	fs.StringVar(&o.engine, "engine", "", "slots=16,prefill=8000,decode=20ms,decodefull=40ms,kv=0: requests at a time, prompt tokens per second, time per token alone and in a full batch, KV tokens")
	fs.StringVar(&o.coldStart, "cold-start", "", "p50=90s,p95=150s,node=0.2,nodedelay=2m: time from created to ready (default: the trigger's coldStart)")
	fs.DurationVar(&o.patience, "patience", 0, "clients without a first token leave after this (default: never)")
	fs.DurationVar(&o.slo, "slo", simulate.DefaultSLO, "wait for the first token that is still good")
	fs.BoolVar(&o.unbounded, "unbounded", false, "let requests queue inside pods instead of at the activator")
	fs.IntSliceVar(&o.stuck, "stuck", nil, "numbers of the starts that never get ready, 1 is the first")
	fs.IntSliceVar(&o.failing, "failing", nil, "numbers of the starts that crash")
	fs.DurationVar(&o.gaugeLag, "gauge-lag", 0, "how long after its first request an engine's gauges read 0 (vLLM: up to 20s)")
	fs.IntVar(&o.warm, "warm", 0, "replicas that are ready at the beginning")
	fs.Uint64Var(&o.seed, "seed", 1, "of everything drawn")
}

const simulateLong = `What a ScaledObject would have done with a trace, beside what others would have.

Ours is the very policy that the scaler runs, behind a model of KEDA and of the
HPA that obeys the rest of the ScaledObject. The others are short
re-implementations with their defaults; all of them get requests held and
counted at zero, which few of them have by themselves.`

// Simulate makes the command; tty says whether stderr is a terminal.
func Simulate(tty bool) *cobra.Command {
	o := Options{progress: tty}
	var compare []string
	var html, png, format string
	cmd := &cobra.Command{
		Use: "simulate --scaledobject FILE --trace FILE", Short: "What a ScaledObject would have done with a trace", Long: simulateLong, Args: cli.NoArgs,
		Example: `  pilotlight simulate --scaledobject so.yaml --trace trace.csv
  pilotlight simulate --scaledobject so.yaml --trace trace.csv --compare http-add-on,knative,fixed-4 --html out.html --png out.png`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var f faults
			w := o.open(&f)
			f.checkCompare(compare, w.object.MaxReplicas)
			f.checkOutputs(html, png, format)
			page, err := openOutput("--html", html)
			f.add(err)
			defer page.discard()
			picture, err := openOutput("--png", png)
			f.add(err)
			defer picture.discard()
			if err := f.err(); err != nil {
				return err
			}
			if err := w.note(cmd.ErrOrStderr()); err != nil {
				return err
			}
			results, err := w.run(cmd.Context(), w.controllers(compare), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if err := w.draw(results, page, picture); err != nil {
				return err
			}
			return w.print(cmd.OutOrStdout(), results, format)
		},
	}
	o.add(cmd)
	cmd.Flags().StringSliceVar(&compare, "compare", []string{"all"}, "policies beside ours: "+strings.Join(names(), ", ")+", fixed-N, all or none")
	cmd.Flags().StringVar(&html, "html", "", "write the timelines and the table to this page")
	cmd.Flags().StringVar(&png, "png", "", "write the timelines to this picture")
	cmd.Flags().StringVarP(&format, "output", "o", "table", "table or json")
	return cmd
}

// run simulates every controller on all cores. The clairvoyant schedules are
// tried one by one, and only the cheapest is kept of those that lose no more
// requests than ours.
func (w *world) run(ctx context.Context, groups []candidates, stderr io.Writer) ([]*simulate.Result, error) {
	total := 0
	for _, g := range groups {
		total += len(g.tries)
	}
	bar := newProgress(stderr, w.progress, total)
	defer bar.end()
	results := make([][]*simulate.Result, len(groups))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, g := range groups {
		results[i] = make([]*simulate.Result, len(g.tries))
		for j, c := range g.tries {
			group.Go(func() error {
				r, err := simulate.Run(ctx, w.scenario, c)
				results[i][j] = r
				bar.step()
				return err
			})
		}
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	best := make([]*simulate.Result, len(groups))
	for i, tries := range results {
		lost := results[0][0].Lost
		best[i] = slices.MinFunc(tries, func(a, b *simulate.Result) int {
			return cmp.Or(cmp.Compare(max(a.Lost, lost), max(b.Lost, lost)), cmp.Compare(a.Cost(w.prices), b.Cost(w.prices)))
		})
		best[i].Controller = groups[i].name
	}
	return best, nil
}

// row is one line of the table, and one object of the JSON.
type row struct {
	Policy       string  `json:"policy"`
	WaitMean     float64 `json:"firstTokenMeanSeconds"`
	WaitP95      float64 `json:"firstTokenP95Seconds"`
	WaitP99      float64 `json:"firstTokenP99Seconds"`
	OverSLO      int     `json:"overSLO"`
	Lost         int     `json:"lost"`
	GPUHours     float64 `json:"gpuHours"`
	Starts       int     `json:"starts"`
	Flaps        int     `json:"flaps"`
	PeakReplicas int     `json:"peakReplicas"`
	Cost         float64 `json:"costDollars"`
}

func (w *world) rows(results []*simulate.Result) []row {
	rows := make([]row, len(results))
	for i, r := range results {
		rows[i] = row{
			Policy: r.Controller, WaitMean: r.FirstToken.Mean, WaitP95: r.FirstToken.P95, WaitP99: r.FirstToken.P99,
			OverSLO: r.OverSLO, Lost: r.Lost, GPUHours: r.GPUHours(), Starts: r.Starts, Flaps: r.Flaps,
			PeakReplicas: r.PeakReplicas, Cost: r.Cost(w.prices),
		}
	}
	return rows
}

var columns = []string{"policy", "mean s", "p95 s", "p99 s", "over SLO", "lost", "GPU-h", "starts", "flaps", "peak", "cost $"}

func (r row) cells() []string {
	f := func(x float64, digits int) string { return fmt.Sprintf("%.*f", digits, x) }
	return []string{
		r.Policy, f(r.WaitMean, 1), f(r.WaitP95, 1), f(r.WaitP99, 1), fmt.Sprint(r.OverSLO), fmt.Sprint(r.Lost),
		f(r.GPUHours, 2), fmt.Sprint(r.Starts), fmt.Sprint(r.Flaps), fmt.Sprint(r.PeakReplicas), f(r.Cost, 2),
	}
}

func (w *world) print(out io.Writer, results []*simulate.Result, format string) error {
	rows := w.rows(results)
	if format == "json" {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(map[string]any{"trace": w.scenario.Name, "requests": len(w.scenario.Requests), "policies": rows})
	}
	_, err := fmt.Fprintf(out, "%s; time is until the first token, cost is $%.2f per GPU-hour and $%g per request-second of waiting\n\n", w.headline(), w.prices.GPUHour, w.prices.WaitSeconds)
	if err != nil {
		return err
	}
	table := [][]string{columns}
	for _, r := range rows {
		table = append(table, r.cells())
	}
	if err := writeTable(out, table); err != nil || !anyLost(results) {
		return err
	}
	_, err = fmt.Fprintln(out, "\n"+lostNote)
	return err
}

// lostNote stands below every table in which requests were lost.
const lostNote = "Requests were lost: cost counts the waiting of lost requests only until they left, and nothing for losing them."

func anyLost(results []*simulate.Result) bool {
	return slices.ContainsFunc(results, func(r *simulate.Result) bool { return r.Lost > 0 })
}

// note says on stderr what in the ScaledObject is not simulated.
func (w *world) note(stderr io.Writer) error {
	for _, n := range w.object.Notes {
		if _, err := fmt.Fprintln(stderr, "note: "+n); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) headline() string {
	reqs := w.scenario.Requests
	span := reqs[len(reqs)-1].At
	return fmt.Sprintf("%s: %d requests in %s, at most %d replicas of %g", w.scenario.Name, len(reqs), span.Round(time.Second), w.scenario.MaxReplicas, w.scenario.TargetRequests)
}

// writeTable aligns columns: the first to the left, numbers to the right.
func writeTable(out io.Writer, table [][]string) error {
	widths := make([]int, len(table[0]))
	for _, cells := range table {
		for i, c := range cells {
			widths[i] = max(widths[i], len(c))
		}
	}
	for _, cells := range table {
		line := fmt.Sprintf("%-*s", widths[0], cells[0])
		for i, c := range cells[1:] {
			line += fmt.Sprintf("  %*s", widths[i+1], c)
		}
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	return nil
}

// readFile is a file that a flag names.
func readFile(flag, path string) ([]byte, error) {
	if path == "" {
		return nil, cli.Usage("%s is required", flag)
	}
	body, err := os.ReadFile(path) //nolint:gosec // the user names the file
	if err != nil {
		return nil, cli.Usage("%s: %w", flag, err)
	}
	return body, nil
}
