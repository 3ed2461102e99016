package pointercmd

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// document is a result that can be printed.
type document interface {
	// table prints it for people.
	table(p *page)
}

// documentVersion is the format of every JSON document: fields are added to it,
// never changed.
const documentVersion = 1

// print writes the result as the user asked for it.
func (a *app) print(doc document) error {
	var data []byte
	var err error
	switch a.output {
	case "json":
		data, err = json.MarshalIndent(doc, "", "  ")
		data = append(data, '\n')
	case "yaml":
		data, err = yaml.Marshal(doc)
	default:
		p := &page{color: a.colors(a.StdoutTTY)}
		doc.table(p)
		data = []byte(p.String())
	}
	if err == nil {
		_, err = a.out.Write(data)
	}
	if err != nil {
		return fmt.Errorf("printing the result: %w", err)
	}
	return nil
}

// colors reports whether a stream may get them (https://no-color.org).
func (a *app) colors(tty bool) bool {
	return tty && a.Getenv("NO_COLOR") == "" && a.Getenv("TERM") != "dumb"
}

// color is an SGR parameter.
type color string

const (
	plain  color = ""
	bold   color = "1"
	dim    color = "2"
	red    color = "31"
	green  color = "32"
	yellow color = "33"
)

// cell is a field of a table.
type cell struct {
	text string
	color
}

// page is text with tables. Foreign text is cleaned when it enters.
type page struct {
	strings.Builder
	color bool
}

func (p *page) paint(c color, s string) string {
	if !p.color || c == plain || s == "" {
		return s
	}
	return "\x1b[" + string(c) + "m" + s + "\x1b[0m"
}

// line prints one line.
func (p *page) line(format string, args ...any) {
	fmt.Fprintln(&p.Builder, clean(fmt.Sprintf(format, args...)))
}

// fields prints names and values, one a line; empty values are left out.
func (p *page) fields(pairs ...string) {
	width := 0
	for i := 0; i < len(pairs); i += 2 {
		width = max(width, len(pairs[i]))
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			fmt.Fprintf(&p.Builder, "%s  %s\n", p.paint(dim, fmt.Sprintf("%-*s", width, pairs[i])), clean(pairs[i+1]))
		}
	}
}

// table prints rows in columns under a heading.
func (p *page) table(heading []string, rows [][]cell) {
	all := [][]cell{{}}
	for _, h := range heading {
		all[0] = append(all[0], cell{h, bold})
	}
	all = append(all, rows...)
	widths := make([]int, len(heading))
	for _, row := range all {
		for i := range row {
			row[i].text = clean(row[i].text)
			if row[i].text == "" {
				row[i].text = "-"
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i].text))
		}
	}
	for _, row := range all {
		var b strings.Builder
		for i, c := range row {
			b.WriteString(p.paint(c.color, c.text))
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.text)+2))
			}
		}
		fmt.Fprintln(&p.Builder, b.String())
	}
}

// say writes a line of progress or prompt to stderr.
func say(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format, args...) // nowhere left to say so
}

// short is how people see a digest.
func short(digest string) string { return digest[:min(12, len(digest))] }

// size writes bytes for people.
func size(n int64) string {
	const unit = 1000
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	div, exp := int64(unit), 0
	for m := n / unit; m >= unit; m /= unit {
		div *= unit
		exp++
	}
	return fmt.Sprintf("%.1f %cB", float64(n)/float64(div), "kMGTPE"[exp])
}
