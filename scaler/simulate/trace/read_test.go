package trace

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

func TestReadFormats(t *testing.T) {
	want := []Request{{0, 4808, 10}, {52 * time.Millisecond, 3180, 8}, {90 * time.Second, 1, 0}}
	cases := map[string]string{
		"Azure2023": "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n" +
			"2023-11-16 18:17:04.0319600,3180,8\r\n2023-11-16 18:18:33.9799600,1,0",
		"Azure2024": "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.01+00:00,4808,10\n" +
			"2024-05-10 00:00:00.062+00:00,3180,8\n2024-05-10 00:01:30.01+00:00,1,0\n",
		"Mooncake": `{"timestamp": 27482, "input_length": 4808, "output_length": 10, "hash_ids": [1, 2]}` + "\n" +
			`{"timestamp": 27534, "input_length": 3180, "output_length": 8}` + "\n\n" +
			`{"timestamp": 117482, "input_length": 1, "output_length": 0}` + "\n",
		"PlainSeconds":         "timestamp,input,output\n5,4808,10\n5.052,3180,8\n95,1,0\n",
		"PlainRFC3339":         "\ufeffTimestamp, Input, Output\n2026-01-02T03:04:05Z,4808,10\n2026-01-02T03:04:05.052Z,3180,8\n2026-01-02T04:05:35+01:00,1,0\n",
		"PlainWithoutHeader":   "5,4808,10\n5.052,3180,8\n95,1,0\n",
		"PlainWithEmptyLines":  "\n\ntimestamp,input,output\n\n5,4808,10\n5.052 , 3180 , 8\n\n95,1,0\n\n",
		"PlainUnixNanoseconds": "timestamp,input,output\n1700000000,4808,10\n1700000000.052,3180,8\n1700000090,1,0\n",
	}
	for name, content := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Read(strings.NewReader(content), Options{})
			require.NoError(t, err)
			for i := range got { // a float64 of Unix seconds is exact to some 200 ns
				got[i].At = got[i].At.Round(time.Millisecond)
			}
			require.Empty(t, cmp.Diff(want, got))
		})
	}
}

func TestReadRefuses(t *testing.T) {
	const plain, azure = "timestamp,input,output\n", "TIMESTAMP,ContextTokens,GeneratedTokens\n"
	const windows = "timestamp_s,rate_rps,cv,pattern,param0,param1\n"
	cases := map[string]struct {
		content string
		o       Options
		is      error
		says    string
	}{
		"Empty":             {"", Options{}, ErrEmpty, "my.csv: no requests"},
		"OnlyHeader":        {plain, Options{}, ErrEmpty, "my.csv: no requests"},
		"OnlyIdleWindows":   {windows + "0,0,0,,0,0\n", Options{}, ErrEmpty, "no requests"},
		"UnknownHeader":     {"time,prompt\n1,2\n", Options{}, ErrFormat, "my.csv:1: unknown trace format"},
		"TooFewFields":      {plain + "1,2,3\n1,2\n", Options{}, ErrRow, "my.csv:3: malformed row: 2 fields, want 3"},
		"NotANumber":        {plain + "1,2,3\n2,many,3\n", Options{}, ErrRow, `my.csv:3: malformed row: "many" is not a number of tokens`},
		"Negative":          {plain + "1,-2,3\n", Options{}, ErrRow, "my.csv:2: malformed row: -2 tokens"},
		"EveryFault":        {plain + "x,-2,y\n", Options{}, ErrRow, `"y" is not`},
		"BadTime":           {azure + "yesterday,2,3\n", Options{}, ErrRow, "my.csv:2: malformed row"},
		"TimeOutOfRange":    {plain + "1e300,2,3\n", Options{}, ErrRow, "out of range"},
		"NaN":               {plain + "NaN,2,3\n", Options{}, ErrRow, "out of range"},
		"OutOfOrder":        {plain + "5,2,3\n4.5,2,3\n", Options{}, ErrOrder, "my.csv:3: out of order: 500ms earlier"},
		"BrokenJSON":        {`{"timestamp": 1, "input_length": 2, "output_length": 3}` + "\n{\n", Options{}, ErrRow, "my.csv:2: malformed row"},
		"IncompleteJSON":    {`{"timestamp": 1}`, Options{}, ErrRow, "are required"},
		"TooMany":           {plain + "1,2,3\n1,2,3\n", Options{Limit: 1}, ErrLimit, "my.csv:3: too many requests"},
		"WindowsOverlap":    {windows + "0,1,1,Gamma,1,1\n300,1,1,Gamma,1,1\n", Options{}, ErrOrder, "my.csv:3: out of order"},
		"UnknownPattern":    {windows + "0,1,1,Poisson,1,1\n", Options{}, ErrRow, "my.csv:2: malformed row"},
		"NoShape":           {windows + "0,1,1,Gamma,0,1\n", Options{}, ErrRow, "a shape"},
		"WindowTooMany":     {windows + "0,1e8,1,Gamma,1,1\n", Options{}, ErrLimit, "my.csv:2: too many"},
		"RateOfRecorded":    {plain + "1,2,3\n", Options{Rate: 2}, ErrOptions, "ServeGen windows only"},
		"NegativeRate":      {plain + "1,2,3\n", Options{Rate: -2}, ErrOptions, "rate -2"},
		"NothingInThatSpan": {plain + "1,2,3\n", Options{From: time.Hour}, ErrEmpty, "no requests"},
		"LineTooLong":       {plain + strings.Repeat("1", longestLine+1), Options{}, ErrRow, "longer than"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.o.Name = "my.csv"
			_, err := Read(strings.NewReader(tc.content), tc.o)
			require.ErrorIs(t, err, tc.is)
			require.ErrorContains(t, err, tc.says)
			var at *LineError
			require.ErrorAs(t, err, &at)
		})
	}
	broken := errors.New("disk on fire")
	_, err := Read(io.MultiReader(strings.NewReader(plain), iotest.ErrReader(broken)), Options{})
	require.ErrorIs(t, err, broken)
}

func TestCut(t *testing.T) {
	const rows = "0,1,1\n10,2,2\n20,3,3\n30,4,4\n"
	got, err := Read(strings.NewReader(rows), Options{From: 10 * time.Second, For: 20 * time.Second})
	require.NoError(t, err)
	require.Empty(t, cmp.Diff([]Request{{0, 2, 2}, {10 * time.Second, 3, 3}}, got))
}

// The traces that the project ships are read whole: row counts, spans and means
// are those of their README.
func TestShippedTraces(t *testing.T) {
	cases := map[string]struct {
		o        Options
		requests int
		span     time.Duration
		input    float64
	}{
		"azure-code.csv":         {Options{}, 8819, 3436 * time.Second, 2048},
		"azure-conv.csv":         {Options{}, 19366, 3502 * time.Second, 1155},
		"servegen-large-133.csv": {Options{For: 24 * time.Hour}, 51301, 24 * time.Hour, 1155},
		"servegen-mid-46.csv":    {Options{For: 24 * time.Hour, Rate: 2}, 2 * 14312, 24 * time.Hour, 1155},
		"servegen-small-1.csv":   {Options{For: 24 * time.Hour}, 33064, 24 * time.Hour, 1155},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f, err := os.Open("../../../test/traces/" + name)
			require.NoError(t, err)
			defer func() { require.NoError(t, f.Close()) }()
			got, err := Read(f, tc.o)
			require.NoError(t, err)
			require.InDelta(t, tc.requests, len(got), 100, "windows are rounded to whole requests")
			last := got[len(got)-1].At
			require.LessOrEqual(t, last, tc.span+time.Second)
			require.Greater(t, last, tc.span*9/10)
			total := 0
			for _, q := range got {
				total += q.Input
			}
			require.InEpsilon(t, tc.input, float64(total)/float64(len(got)), 0.03)
		})
	}
}
