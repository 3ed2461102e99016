package trace

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// longestLine bounds a line. Mooncake's carry a list of hashes, some 20 KB for
// the longest prompts.
const longestLine = 1 << 20

// A reader takes the rows of one format.
type reader interface {
	// row adds what line holds. Its error needs no position.
	row(line string) error
	// requests returns what was read, in order.
	requests() []Request
}

// Read reads a trace of any of the known formats. Requests are in order of
// arrival. Its errors are those of r, or a *LineError around ErrFormat, ErrRow,
// ErrOrder, ErrEmpty, ErrLimit or ErrOptions.
func Read(r io.Reader, o Options) ([]Request, error) {
	o, err := o.check()
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), longestLine)
	var rows reader
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if n == 1 {
			line = strings.TrimPrefix(line, "\ufeff")
		}
		if line == "" {
			continue
		}
		header := false
		if rows == nil {
			if rows, header, err = detect(line, o); err != nil {
				return nil, &LineError{o.Name, n, err}
			}
		}
		if header {
			continue
		}
		if err := rows.row(line); err != nil {
			return nil, &LineError{o.Name, n, err}
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, &LineError{o.Name, 0, fmt.Errorf("%w: a line is longer than %d bytes", ErrRow, longestLine)}
	} else if err != nil {
		return nil, fmt.Errorf("reading %s: %w", o.Name, err)
	}
	if rows == nil {
		return nil, &LineError{o.Name, 0, ErrEmpty}
	}
	requests := o.cut(rows.requests())
	if len(requests) == 0 {
		return nil, &LineError{o.Name, 0, ErrEmpty}
	}
	return requests, nil
}

// detect tells the format by the first line, which is a header or already a
// row.
func detect(line string, o Options) (rows reader, header bool, err error) {
	names := strings.ToLower(strings.ReplaceAll(line, " ", ""))
	switch {
	case strings.HasPrefix(line, "{"):
		rows = &recorded{parse: mooncakeRow, limit: o.Limit}
	case names == "timestamp,contexttokens,generatedtokens":
		rows, header = &recorded{parse: azureRow, limit: o.Limit}, true
	case names == "timestamp,input,output":
		rows, header = &recorded{parse: plainRow, limit: o.Limit}, true
	case names == "timestamp_s,rate_rps,cv,pattern,param0,param1":
		rows, header = newServeGen(o), true
	case isPlainRow(line):
		rows = &recorded{parse: plainRow, limit: o.Limit}
	case isWindow(line):
		rows = newServeGen(o)
	default:
		return nil, false, fmt.Errorf("%w: the first line is neither a known header nor a row: %.80q", ErrFormat, line)
	}
	if _, drawn := rows.(*serveGen); !drawn && o.Rate != 1 {
		return nil, false, fmt.Errorf("%w: a rate multiplies ServeGen windows only, and these are recorded requests", ErrOptions)
	}
	return rows, header, nil
}

// recorded collects the requests of the formats that have one in each row.
type recorded struct {
	parse func(line string) (at moment, input, output int, err error)
	limit int
	first moment
	all   []Request
}

// A moment is a time on some clock: nanoseconds since some beginning.
type moment int64

func (r *recorded) row(line string) error {
	at, input, output, err := r.parse(line)
	if err != nil {
		return err
	}
	if len(r.all) == r.limit {
		return fmt.Errorf("%w: more than %d", ErrLimit, r.limit)
	}
	if len(r.all) == 0 {
		r.first = at
	}
	since := time.Duration(at - r.first)
	if n := len(r.all); n > 0 && since < r.all[n-1].At {
		return fmt.Errorf("%w: %v earlier than the row before it", ErrOrder, r.all[n-1].At-since)
	}
	r.all = append(r.all, Request{since, input, output})
	return nil
}

func (r *recorded) requests() []Request { return r.all }
