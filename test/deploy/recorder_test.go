package deploy

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	prommodel "github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
)

// A recorder scrapes pages of metrics once a second, as Prometheus would, and
// keeps what the dashboard asks about.
type recorder struct {
	wanted *regexp.Regexp
	mu     sync.Mutex
	began  time.Time
	looks  int
	series map[string][]float64 // by name and labels; NaN where there was none
}

// A scraped page. Labels are added unless the page has them (honorLabels).
type scraped struct {
	url    string
	labels map[string]string
}

// record scrapes until stopped, and then writes the recording.
func record(t *testing.T, pages func() []scraped) {
	t.Helper()
	data, err := os.ReadFile(files + "/dashboard.json")
	require.NoError(t, err)
	names := regexp.MustCompile(`(?:pilotlight_|vllm:)[a-z_]+`).FindAllString(string(data), -1)
	for i, name := range names {
		names[i] = regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
	}
	r := &recorder{began: time.Now(), wanted: regexp.MustCompile("^(" + strings.Join(names, "|") + ")$"), series: map[string][]float64{}}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			r.look(ctx, pages())
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	t.Cleanup(func() {
		stop()
		<-ended
		if !t.Failed() {
			require.NoError(t, os.WriteFile(recording, []byte(r.text()), 0o600))
		}
	})
}

func (r *recorder) look(ctx context.Context, pages []scraped) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, page := range pages {
		for _, family := range scrape(ctx, page.url) {
			if r.wanted.MatchString(family.GetName()) {
				for _, m := range family.GetMetric() {
					r.metric(family, m, page.labels)
				}
			}
		}
	}
	r.looks++
	for name, values := range r.series {
		if len(values) < r.looks {
			r.series[name] = append(values, math.NaN())
		}
	}
}

func scrape(ctx context.Context, url string) map[string]*dto.MetricFamily {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil // it does not run: a gap
	}
	defer func() { _ = resp.Body.Close() }()
	parser := expfmt.NewTextParser(prommodel.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return nil
	}
	return families
}

func (r *recorder) metric(family *dto.MetricFamily, m *dto.Metric, added map[string]string) {
	labels := map[string]string{}
	for k, v := range added {
		labels[k] = v
	}
	for _, l := range m.GetLabel() {
		labels[l.GetName()] = l.GetValue()
	}
	name := family.GetName()
	switch {
	case m.GetHistogram() != nil:
		h := m.GetHistogram()
		r.add(name+"_sum", labels, h.GetSampleSum())
		r.add(name+"_count", labels, float64(h.GetSampleCount()))
		for _, bucket := range h.GetBucket() {
			labels["le"] = strconv.FormatFloat(bucket.GetUpperBound(), 'g', -1, 64)
			r.add(name+"_bucket", labels, float64(bucket.GetCumulativeCount()))
		}
		labels["le"] = "+Inf"
		r.add(name+"_bucket", labels, float64(h.GetSampleCount()))
	case m.GetGauge() != nil:
		r.add(name, labels, m.GetGauge().GetValue())
	case m.GetCounter() != nil:
		r.add(name, labels, m.GetCounter().GetValue())
	case m.GetUntyped() != nil:
		r.add(name, labels, m.GetUntyped().GetValue())
	}
}

func (r *recorder) add(name string, labels map[string]string, value float64) {
	if strings.HasSuffix(name, "_timestamp_seconds") && value > 0 {
		value -= float64(r.began.Unix()) // the recording begins at 0
	}
	var parts []string
	for _, k := range sortedKeys(labels) {
		parts = append(parts, fmt.Sprintf("%s=%q", k, labels[k]))
	}
	key := name + "{" + strings.Join(parts, ",") + "}"
	values := r.series[key]
	for len(values) < r.looks {
		values = append(values, math.NaN())
	}
	r.series[key] = append(values[:r.looks], value)
}

// text writes the series in the language of Prometheus' tests. Those that no
// panel could tell from nothing are left out: zero from beginning to end.
func (r *recorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "# %d seconds of TestAPodOfTheChartServesScalesAndRollsBack, recorded by record.\nload 1s\n", r.looks-1)
	for _, key := range sortedKeys(r.series) {
		values := r.series[key]
		if !strings.Contains(key, "_count{") && !slices.ContainsFunc(values, func(v float64) bool { return v != 0 && !math.IsNaN(v) }) {
			continue
		}
		b.WriteString("  " + key)
		for i := 0; i < len(values); {
			n := i + 1
			for n < len(values) && (values[n] == values[i] || math.IsNaN(values[n]) && math.IsNaN(values[i])) {
				n++
			}
			b.WriteString(run(values[i], n-i, i > 0 && !math.IsNaN(values[i-1])))
			i = n
		}
		b.WriteString("\n")
	}
	return b.String()
}

// run writes one value so many times; a gap after values is their end.
func run(v float64, times int, after bool) string {
	text := strconv.FormatFloat(v, 'g', 6, 64)
	switch {
	case math.IsNaN(v) && after && times > 1:
		return fmt.Sprintf(" stale _x%d", times-1)
	case math.IsNaN(v) && after:
		return " stale"
	case math.IsNaN(v):
		return fmt.Sprintf(" _x%d", times)
	case times > 1:
		return fmt.Sprintf(" %sx%d", text, times-1)
	}
	return " " + text
}
