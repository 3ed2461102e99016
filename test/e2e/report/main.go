// Command report writes one HTML page from the timelines of a run of make e2e.
//
//	go run ./test/e2e/report -in build/e2e -out build/e2e/report.html
package main

import (
	"flag"
	"fmt"
	"html/template"
	"os"

	"github.com/pilotlight-dev/pilotlight/test/e2e/timeline"
)

func main() {
	in := flag.String("in", "build/e2e", "folder of the timelines")
	out := flag.String("out", "build/e2e/report.html", "the page")
	flag.Parse()
	if err := run(*in, *out); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

const page = `<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Pilotlight on real KEDA</title>
<style>body{font:15px sans-serif;max-width:960px;margin:2em auto;color:#222}h2{margin:1.6em 0 .2em;font-size:1.1em}.failed{color:#b00020}svg{width:100%}td,th{text-align:left;padding:1px 8px 1px 0;font-size:13px;vertical-align:top}</style>
<h1>Pilotlight on real KEDA</h1>
<p>What the scaler wanted, what the HPA wanted, what there was and what was ready, twice a second; requests in grey, and under them a bar while KEDA
calls the target active. The simulator has played each scenario again that load, start-up time and policy explain: the same requests, the same
start-up times, the same moments at which KEDA and the HPA look; replicas decided anew.</p>
<table><tr><th>scenario<th>replay</tr>
{{range .}}<tr><td><a href="#{{.Name}}">{{.Name}}</a><td>{{if .Replay}}{{.Replay.Says}}{{else}}<i>not replayed: {{.Apart}}</i>{{end}}</tr>
{{end}}</table>
{{range .}}<h2 id="{{.Name}}"{{if .Failed}} class="failed"{{end}}>{{.Name}}{{if .Failed}} (failed){{end}}</h2>{{.Picture}}
<details><summary>every change</summary><table>
<tr><th>s<th>wanted<th>reason<th>replicas<th>ready<th>waiting<th>KEDA<th>HPA<th>patched</tr>
{{range .Changes}}<tr><td>{{printf "%.1f" .Seconds}}<td>{{.Wanted}}<td>{{.Reason}}<td>{{.Replicas}}<td>{{.Ready}}<td>{{.Waiting}}<td>{{.KEDA}}<td>{{.HPA}}<td>{{.Patched}}</tr>
{{end}}</table></details>
{{end}}</html>
`

func run(in, out string) error {
	all, err := timeline.Load(in)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("no timelines in %s: run make e2e first", in)
	}
	type entry struct {
		*timeline.Timeline
		Picture template.HTML
	}
	var entries []entry
	for _, t := range all {
		entries = append(entries, entry{t, template.HTML(t.SVG())}) //nolint:gosec // drawn here, its texts are escaped
	}
	f, err := os.Create(out) //nolint:gosec // the caller names the file
	if err != nil {
		return err // names the file
	}
	if err := template.Must(template.New("page").Parse(page)).Execute(f, entries); err != nil {
		_ = f.Close() // the error before it says more
		return fmt.Errorf("writing %s: %w", out, err)
	}
	return f.Close() // names the file
}
