package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// An event is one line of `go test -json` (see `go doc test2json`).
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build-output and build-fail
	Test        string
	Output      string
	Elapsed     float64 // seconds
	FailedBuild string
}

// A total is what the last line says.
type total struct{ passed, failed, skipped, packages int }

func (t total) String() string {
	line := fmt.Sprintf("%d passed, %d failed", t.passed, t.failed)
	if t.skipped > 0 {
		line += fmt.Sprintf(", %d skipped", t.skipped)
	}
	return line
}

// A result is how one test, or a package's own part, went.
type result struct {
	action string // pass, fail or skip; "" while it runs
	output strings.Builder
}

// A report is one package.
type report struct {
	tests map[string]*result
	order []string
	own   result
}

func (r *report) test(name string) *result {
	if name == "" {
		return &r.own
	}
	if r.tests[name] == nil {
		r.tests[name] = &result{}
		r.order = append(r.order, name)
	}
	return r.tests[name]
}

// A summary turns events into lines on out. A package is forgotten once it has
// been reported.
type summary struct {
	out      io.Writer
	packages map[string]*report
	builds   map[string]*strings.Builder // output of the compiler, by import path
	sum      total
	err      error // the first of writing
}

func newSummary(out io.Writer) *summary {
	return &summary{out: out, packages: map[string]*report{}, builds: map[string]*strings.Builder{}}
}

// read takes in events to their end. A line that is no event is passed on as
// it is: go test prints such lines for faults of its own.
func (s *summary) read(events io.Reader) error {
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) == nil {
				s.take(e)
			} else {
				s.print("%s", line)
			}
		}
		if errors.Is(err, io.EOF) {
			return s.err
		}
		if err != nil {
			return fmt.Errorf("reading the events of go test: %w", err)
		}
	}
}

func (s *summary) take(e event) {
	if e.ImportPath != "" {
		s.build(e)
		return
	}
	if s.packages[e.Package] == nil {
		s.packages[e.Package] = &report{tests: map[string]*result{}}
	}
	r := s.packages[e.Package].test(e.Test)
	switch e.Action {
	case "output":
		r.output.WriteString(e.Output)
	case "pass", "fail", "skip":
		r.action = e.Action
		if e.Test == "" {
			s.ended(e, s.packages[e.Package])
			delete(s.packages, e.Package)
		}
	}
}

func (s *summary) build(e event) {
	out := s.builds[e.ImportPath]
	if out == nil {
		out = &strings.Builder{}
		s.builds[e.ImportPath] = out
	}
	out.WriteString(e.Output)
}

// ended counts a package and prints its line.
func (s *summary) ended(e event, r *report) {
	t := r.count()
	s.sum.passed += t.passed
	s.sum.skipped += t.skipped
	s.sum.failed += t.failed
	s.sum.packages++
	switch {
	case e.Action == "fail":
		s.failed(e, r)
	case t.passed+t.skipped == 0:
		s.print("--    %s  no tests\n", e.Package)
	default:
		s.print("ok    %s  %d in %.1fs\n", e.Package, t.passed, e.Elapsed)
	}
}

func (s *summary) failed(e event, r *report) {
	s.print("FAIL  %s  %.1fs\n", e.Package, e.Elapsed)
	if b := s.builds[e.FailedBuild]; b != nil {
		s.print("%s", b)
	}
	for _, name := range r.order {
		if t := r.tests[name]; t.action != "pass" && t.action != "skip" {
			s.print("%s", &t.output)
		}
	}
	s.print("%s", &r.own.output)
}

// count counts the leaves, and a parent that failed by itself. A test that
// never ended (the program died) failed. A package that failed without a test
// that did is one failure.
func (r *report) count() total {
	parent, broken := map[string]bool{}, map[string]bool{}
	for _, name := range r.order {
		for i, c := range name {
			if c == '/' {
				parent[name[:i]] = true
				broken[name[:i]] = broken[name[:i]] || r.tests[name].ranBadly()
			}
		}
	}
	var t total
	for _, name := range r.order {
		switch test := r.tests[name]; {
		case test.ranBadly() && !broken[name]:
			t.failed++
		case parent[name]:
		case test.action == "pass":
			t.passed++
		case test.action == "skip":
			t.skipped++
		}
	}
	if r.own.action == "fail" && t.failed == 0 {
		t.failed = 1
	}
	return t
}

func (r *result) ranBadly() bool { return r.action != "pass" && r.action != "skip" }

func (s *summary) print(format string, args ...any) {
	if _, err := fmt.Fprintf(s.out, format, args...); err != nil && s.err == nil {
		s.err = err
	}
}

// total is the count so far. A package that go test did not finish counts as
// one failure.
func (s *summary) total() total {
	t := s.sum
	t.failed += len(s.packages)
	return t
}
