// Command benchfetch races pilotlight-fetcher against s5cmd (default, and with
// --concurrency 64), cp, cp and sync, and the AWS CLI if there is one, side by
// side: the same objects from the same versitygw on loopback, in alternating
// order, into fresh folders. It prints every run, and the medians of the ratios
// of pairs, ours over theirs, beside the goals.
//
//	go run ./test/benchfetch -versitygw BIN -s5cmd BIN -fetcher BIN [-size full|modest] [-rounds N] [-only NAMES] [-out FILE]
//
// The others verify nothing and sync nothing; the fetcher always verifies, and
// syncs where the name says durable. Slow links are played by a proxy of our own
// (40 ms round trip, 40 Mbit/s per connection). FILE gets a JSON list of
// {name, value, unit}; with -size modest names begin with modest_, since sizes
// are a quarter. Disks and neighbours drift: compare pairs, not runs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/pilotlight-dev/pilotlight/test/internal/figures"
)

// longest bounds the whole run; a full one takes some 15 minutes.
const longest = time.Hour

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	ctx, cancel := context.WithTimeout(ctx, longest)
	err := run(ctx, os.Args[1:], os.Stdout)
	cancel()
	stop()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "benchfetch:", err)
		os.Exit(1)
	}
}

type config struct {
	versitygw, s5cmd, fetcher, aws, out, dir, only string
	modest                                         bool
	rounds                                         int
}

func parse(args []string) (config, error) {
	var c config
	var size string
	f := flag.NewFlagSet("benchfetch", flag.ContinueOnError)
	f.StringVar(&c.versitygw, "versitygw", "", "binary of the S3 server (required)")
	f.StringVar(&c.s5cmd, "s5cmd", "", "binary of the peer (required)")
	f.StringVar(&c.fetcher, "fetcher", "", "binary of pilotlight-fetcher (required)")
	f.StringVar(&c.out, "out", "", "file for the figures")
	f.StringVar(&c.dir, "dir", "", "folder to work in (default: one below the system's for temporary files)")
	f.StringVar(&c.only, "only", "", "measure only these, by their names (comma-separated)")
	f.StringVar(&size, "size", "full", "full or modest")
	f.IntVar(&c.rounds, "rounds", 5, "pairs of each comparison")
	if err := f.Parse(args); err != nil {
		return c, err // it has printed the usage
	}
	if c.versitygw == "" || c.s5cmd == "" || c.fetcher == "" || c.rounds < 1 || size != "full" && size != "modest" {
		return c, errors.New("-versitygw, -s5cmd and -fetcher are required, -size is full or modest (see make bench-fetch)")
	}
	c.modest = size == "modest"
	c.aws, _ = exec.LookPath("aws") // optional
	return c, nil
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	c, err := parse(args)
	if err != nil {
		return err
	}
	b, err := newBench(ctx, c, out)
	if err != nil {
		return fmt.Errorf("preparing: %w", err)
	}
	defer func() { err = errors.Join(err, b.close()) }()
	var list []figures.Figure
	for _, s := range allSeries(c) {
		if c.only != "" && !slices.Contains(strings.Split(c.only, ","), s.name) {
			continue
		}
		got, err := b.measure(ctx, s)
		if err != nil {
			return fmt.Errorf("measuring %s: %w", s.name, err)
		}
		list = append(list, got...)
	}
	if c.modest {
		for i := range list {
			list[i].Name = "modest_" + list[i].Name
		}
	}
	return errors.Join(figures.Print(out, list), figures.Save(c.out, list))
}
