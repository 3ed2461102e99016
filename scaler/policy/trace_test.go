package policy

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A trace file tells a story over time, one moment a line:
//
//	config target=4 max=4 keepAlive=60s
//	at 30s waiting=12 running=4 ready=1 -> replicas=4 reason=load
//	every 1s until 90s arrived=2 done=2 -> offered=13.0
//
// A value stays until a later line changes it. `starting=` and `ready=` are
// numbers of pods: a larger `ready` makes the oldest starting pods Ready, a
// larger `starting` creates pods. `lost=` are of the ready pods those that have
// ceased to be Ready, at that moment. The load sits on the first readable pod.
type story struct {
	t       *testing.T
	config  Config
	sample  Sample
	state   State
	ready   []Pod
	start   []Pod
	failing int
	unread  int
	load    Load
	p95     time.Duration
	at      time.Duration
}

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestTraces(t *testing.T) {
	files, err := filepath.Glob("testdata/*.trace")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".trace"), func(t *testing.T) {
			body, err := os.ReadFile(file)
			require.NoError(t, err)
			s := newStory(t)
			for i, line := range strings.Split(string(body), "\n") {
				line, _, _ = strings.Cut(line, "#")
				if line = strings.TrimSpace(line); line != "" {
					s.play(fmt.Sprintf("%s:%d", file, i+1), line)
				}
			}
		})
	}
}

func newStory(t *testing.T) *story {
	t.Helper()
	return &story{
		t:      t,
		config: base(),
		sample: Sample{Demand: Demand{Known: true}},
		load:   Load{Known: true},
		p95:    2 * time.Minute,
	}
}

// base is a target of 4 requests at $2 per GPU-hour and $0.001 per
// request-second, with fixed times in place of the priced holds.
func base() Config {
	return Config{
		TargetRequests: 4, MaxReplicas: 4, WaitPrice: 0.001, GPUPrice: 2.0 / 3600,
		KeepAlive: time.Minute, ScaleDownWindow: 30 * time.Second, Lookahead: Auto, DrainWithin: Auto, StartDeadline: Auto, StaleAfter: time.Minute,
	}
}

func (s *story) play(place, line string) {
	if rest, ok := strings.CutPrefix(line, "config "); ok {
		s.configure(place, strings.Fields(rest))
		return
	}
	left, right, ok := strings.Cut(line, "->")
	require.True(s.t, ok, "%s: no -> in %q", place, line)
	words := strings.Fields(left)
	if words[0] == "every" { // every 1s until 60s ...: the same line again and again
		step, until := s.span(place, words[1]), s.span(place, words[3])
		for s.at+step < until {
			s.step(place, s.at+step, words[4:], "")
		}
		s.step(place, until, words[4:], right)
		return
	}
	require.Equal(s.t, "at", words[0], place)
	s.step(place, s.span(place, words[1]), words[2:], right)
}

func (s *story) step(place string, at time.Duration, words []string, right string) {
	now := epoch.Add(at)
	s.at = at
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		s.set(place, key, value, now)
	}
	before := s.sampleNow()
	d, next := Decide(s.config, s.state, before, now)
	again, _ := Decide(s.config, s.state, before, now)
	require.Equal(s.t, d, again, "%s: a second call disagrees", place)
	s.state = next
	for _, w := range strings.Fields(right) {
		key, want, _ := strings.Cut(w, "=")
		require.Equal(s.t, want, got(d, key), "%s: %s\n%+v", place, key, d)
	}
}

func got(d Decision, key string) string {
	switch key {
	case "replicas":
		return strconv.Itoa(d.Replicas)
	case "reason":
		return string(d.Reason)
	case "active":
		return strconv.FormatBool(d.Active)
	case "known":
		return strconv.FormatBool(d.Known)
	case "value":
		return strconv.FormatFloat(d.Value, 'g', -1, 64)
	case "load":
		return strconv.FormatFloat(d.Terms.Load, 'g', -1, 64)
	case "need":
		return strconv.Itoa(d.Terms.Need)
	case "holdLeft":
		return time.Duration(d.Terms.HoldLeft).Round(time.Second).String()
	case "offered":
		return strconv.FormatFloat(d.Terms.Offered, 'f', 1, 64)
	case "projected":
		return strconv.FormatFloat(d.Terms.Projected, 'f', 1, 64)
	case "backlog":
		return strconv.FormatFloat(d.Terms.Backlog, 'f', 0, 64)
	case "drain":
		return strconv.FormatFloat(d.Terms.Drain, 'f', 1, 64)
	case "lost":
		return strconv.Itoa(d.Terms.Lost)
	case "expired":
		return strconv.Itoa(d.Terms.Expired)
	case "stalled":
		return strconv.FormatBool(d.Terms.Stalled)
	case "leaseLeft":
		return time.Duration(d.Terms.LeaseLeft).String()
	case "backoffLeft":
		return time.Duration(d.Terms.BackoffLeft).String()
	}
	return "no such key"
}

func (s *story) configure(place string, words []string) {
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "target":
			s.config.TargetRequests = s.number(place, value)
		case "min":
			s.config.MinReplicas = int(s.number(place, value))
		case "max":
			s.config.MaxReplicas = int(s.number(place, value))
		case "keepAlive":
			s.config.KeepAlive = s.span(place, value)
		case "window":
			s.config.ScaleDownWindow = s.span(place, value)
		case "deadline":
			s.config.StartDeadline = s.span(place, value)
		case "stale":
			s.config.StaleAfter = s.span(place, value)
		case "cooldown":
			s.config.Cooldown = s.span(place, value)
		case "tolerance":
			s.config.Tolerance = s.number(place, value)
		case "lookahead":
			s.config.Lookahead = s.span(place, value)
		case "drain":
			s.config.DrainWithin = s.span(place, value)
		case "waitCost":
			s.config.WaitPrice = s.number(place, value)
		case "shrinkStalled":
			s.config.ShrinkStalled = value == "true"
		case "lag":
			s.config.GaugeLag = s.span(place, value)
		case "p95":
			s.p95 = s.span(place, value)
		default:
			s.t.Fatalf("%s: unknown setting %q", place, key)
		}
	}
	require.NoError(s.t, s.config.Validate(), place)
}

func (s *story) set(place, key, value string, now time.Time) {
	switch key {
	case "running":
		s.load.Running = s.number(place, value)
	case "waiting":
		s.load.Waiting = s.number(place, value)
	case "held":
		s.sample.Demand.Held = s.number(place, value)
	case "inflight":
		s.sample.Demand.InFlight = s.number(place, value)
	case "demand":
		s.sample.Demand.Known = value != "unknown"
	case "arrived":
		s.sample.Traffic.Known = true
		s.sample.Traffic.Arrivals += s.number(place, value)
	case "done": // how many, each 6.5 s long
		s.sample.Traffic.Known = true
		s.sample.Traffic.Completions += s.number(place, value)
		s.sample.Traffic.ServiceSeconds += 6.5 * s.number(place, value)
	case "tokens":
		s.sample.Traffic.TokensKnown = true
		s.sample.Traffic.Tokens += s.number(place, value)
	case "replicas":
		s.sample.Replicas = int(s.number(place, value))
	case "asked":
		s.sample.Asked = Count{Known: value != "unknown"}
		if s.sample.Asked.Known {
			s.sample.Asked.Replicas = int(s.number(place, value))
		}
	case "lost":
		n := int(s.number(place, value))
		for i := range s.ready {
			switch p := &s.ready[i]; {
			case i < n && p.LostAt.IsZero():
				p.ReadyAt, p.LostAt = time.Time{}, now
			case i >= n && !p.LostAt.IsZero():
				p.ReadyAt, p.LostAt = now, time.Time{}
			}
		}
	case "unread":
		s.unread = int(s.number(place, value))
	case "failing":
		s.failing = int(s.number(place, value))
	case "starting":
		n := int(s.number(place, value))
		for len(s.start) < n {
			s.start = append(s.start, Pod{Created: now})
		}
		s.start = s.start[:n]
	case "ready":
		n := int(s.number(place, value))
		for len(s.ready) < n {
			p := Pod{Created: now, ReadyAt: now}
			if len(s.start) > 0 {
				p.Created, s.start = s.start[0].Created, s.start[1:]
			}
			s.ready = append(s.ready, p)
		}
		s.ready = s.ready[:n]
	default:
		s.t.Fatalf("%s: unknown key %q", place, key)
	}
}

func (s *story) sampleNow() Sample {
	in := s.sample
	in.ColdStart = ColdStart{P50: s.p95 * 3 / 5, P95: s.p95}
	carried := false
	for i, p := range s.ready {
		if !p.LostAt.IsZero() {
			in.Pods = append(in.Pods, p)
			continue
		}
		p.Load = Load{Known: i >= s.unread}
		if p.Load.Known && !carried {
			p.Load, carried = s.load, true
		}
		if s.unread == len(s.ready) && i == 0 {
			p.Load = Load{Running: s.load.Running, Waiting: s.load.Waiting}
		}
		in.Pods = append(in.Pods, p)
	}
	for i, p := range s.start {
		p.Failing = i < s.failing
		in.Pods = append(in.Pods, p)
	}
	return in
}

func (s *story) number(place, v string) float64 {
	f, err := strconv.ParseFloat(v, 64)
	require.NoError(s.t, err, place)
	return f
}

func (s *story) span(place, v string) time.Duration {
	if v == "auto" {
		return Auto
	}
	d, err := time.ParseDuration(v)
	require.NoError(s.t, err, place)
	return d
}
