package trace

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// The layouts of the Azure traces: of 2023, and of 2024 with an offset.
// Parsing accepts any number of decimals.
const (
	azure2023 = "2006-01-02 15:04:05"
	azure2024 = "2006-01-02 15:04:05Z07:00"
)

// azureRow reads TIMESTAMP,ContextTokens,GeneratedTokens.
func azureRow(line string) (at moment, input, output int, err error) {
	return row(line, func(s string) (moment, error) {
		t, err := time.Parse(azure2023, s)
		if err != nil {
			t, err = time.Parse(azure2024, s)
		}
		return momentOf(t, err)
	})
}

// plainRow reads timestamp,input,output with a timestamp in seconds (of any
// beginning, decimals allowed) or in RFC 3339.
func plainRow(line string) (at moment, input, output int, err error) {
	return row(line, func(s string) (moment, error) {
		if seconds, err := strconv.ParseFloat(s, 64); err == nil {
			return fromUnits(seconds, time.Second)
		}
		return momentOf(time.Parse(time.RFC3339, s))
	})
}

func isPlainRow(line string) bool {
	_, _, _, err := plainRow(line)
	return err == nil
}

// row reads a row of three fields.
func row(line string, when func(string) (moment, error)) (at moment, input, output int, err error) {
	fields := strings.Split(line, ",")
	if len(fields) != 3 {
		return 0, 0, 0, fmt.Errorf("%w: %d fields, want 3", ErrRow, len(fields))
	}
	at, errAt := when(strings.TrimSpace(fields[0]))
	input, errIn := tokens(fields[1])
	output, errOut := tokens(fields[2])
	if err := errors.Join(errAt, errIn, errOut); err != nil {
		return 0, 0, 0, fmt.Errorf("%w: %.200s", ErrRow, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return at, input, output, nil
}

// mooncakeRow reads {"timestamp": ms, "input_length": n, "output_length": n},
// whatever else the object holds.
func mooncakeRow(line string) (at moment, input, output int, err error) {
	var row struct {
		Timestamp *float64 `json:"timestamp"`
		Input     *int     `json:"input_length"`
		Output    *int     `json:"output_length"`
	}
	if err := json.Unmarshal([]byte(line), &row); err != nil {
		return 0, 0, 0, fmt.Errorf("%w: %.200s", ErrRow, err.Error())
	}
	if row.Timestamp == nil || row.Input == nil || row.Output == nil {
		return 0, 0, 0, fmt.Errorf("%w: timestamp, input_length and output_length are required", ErrRow)
	}
	at, errAt := fromUnits(*row.Timestamp, time.Millisecond)
	if err := errors.Join(errAt, inRange(*row.Input), inRange(*row.Output)); err != nil {
		return 0, 0, 0, fmt.Errorf("%w: %s", ErrRow, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return at, *row.Input, *row.Output, nil
}

func tokens(s string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil {
		return 0, fmt.Errorf("%.40q is not a number of tokens", s)
	}
	return n, inRange(n)
}

func inRange(n int) error {
	if n < 0 || n > MaxTokens {
		return fmt.Errorf("%d tokens are not between 0 and %d", n, MaxTokens)
	}
	return nil
}

// fromUnits is x units since whatever beginning. Half of what an int64 holds is
// left free, so that differences fit.
func fromUnits(x float64, unit time.Duration) (moment, error) {
	ns := x * float64(unit)
	if !(math.Abs(ns) < math.MaxInt64/2) {
		return 0, fmt.Errorf("time %v is out of range", x)
	}
	return moment(math.Round(ns)), nil
}

func momentOf(t time.Time, err error) (moment, error) {
	if err != nil {
		return 0, fmt.Errorf("%.120s", err.Error())
	}
	if y := t.Year(); y < 1900 || y > 2100 {
		return 0, fmt.Errorf("year %d is not between 1900 and 2100", y)
	}
	return moment(t.UnixNano()), nil
}
