// Package figures is what the benches have in common: a figure with its goal,
// the table in which figures are printed, and the JSON list in which they are
// kept.
//
// A bench measures, makes a Figure of each result, prints all of them and saves
// them. The goal and the note are for the reader of the table; the file holds
// name, value and unit only, so that runs can be compared by machine.
package figures

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
)

// A Figure is one thing measured.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`

	Goal Goal   `json:"-"` // zero: none
	Note string `json:"-"` // how it was measured, one line
}

// A Goal is what a value should not pass. The zero Goal is none.
type Goal struct {
	limit float64
	sign  string
}

// Below is the goal of a value less than limit.
func Below(limit float64) Goal { return Goal{limit, "<"} }

// AtMost is the goal of a value of limit or less.
func AtMost(limit float64) Goal { return Goal{limit, "<="} }

// Met renders the goal and whether the value reaches it; "-" without a goal.
// Not a number reaches none.
func (f Figure) Met() string {
	if f.Goal.sign == "" {
		return "-"
	}
	verdict := "MISSED"
	if f.Value < f.Goal.limit || f.Goal.sign == "<=" && f.Value == f.Goal.limit {
		verdict = "met"
	}
	return fmt.Sprintf("%s %g %s: %s", f.Goal.sign, f.Goal.limit, f.Unit, verdict)
}

// Print writes a table of list.
func Print(out io.Writer, list []Figure) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	_, err := fmt.Fprintln(w, "name\tvalue\tunit\tgoal\tnote")
	for _, f := range list {
		_, rowErr := fmt.Fprintf(w, "%s\t%.5g\t%s\t%s\t%s\n", f.Name, f.Value, f.Unit, f.Met(), f.Note)
		err = errors.Join(err, rowErr)
	}
	if err := errors.Join(err, w.Flush()); err != nil {
		return fmt.Errorf("printing the figures: %w", err)
	}
	return nil
}

// Save writes list to file as JSON, making its folder. Without a file it does
// nothing.
func Save(file string, list []Figure) error {
	if file == "" {
		return nil
	}
	content, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the figures: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
		return fmt.Errorf("writing the figures: %w", err)
	}
	if err := os.WriteFile(file, append(content, '\n'), 0o600); err != nil {
		return fmt.Errorf("writing the figures: %w", err)
	}
	return nil
}

// Quantile is the smallest value that at least that share (above 0, at most 1)
// of all do not pass; zero of none.
func Quantile[T cmp.Ordered](all []T, share float64) T {
	if len(all) == 0 {
		var zero T
		return zero
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[max(int(math.Ceil(share*float64(len(sorted)))), 1)-1]
}
