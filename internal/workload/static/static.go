// Package static reads workloads from a file, for use without a cluster. The
// file is looked at again whenever it is asked about and has changed, so that
// whatever starts and stops the engines can keep it up to date. It should be
// replaced by a rename, never written in place; a file that cannot be read or
// parsed leaves the last good one standing.
//
//	targets:
//	- namespace: demo
//	  name: llama
//	  minReplicaCount: 0
//	  maxReplicaCount: 4
//	  cooldownPeriod: 30                # seconds; what KEDA adds to the last replica's hold
//	  tolerance: 0                      # of the HPA
//	  replicas: 1                       # default: the number of pods
//	  metadata: {targetRequests: "4", modelName: llama}
//	  pods:
//	  - {name: llama-1, host: 127.0.0.1, port: 8001, created: 2026-01-02T03:04:05Z, readyAt: 2026-01-02T03:05:35Z}
//	  - {name: llama-2, host: 127.0.0.1, port: 8002, created: 2026-01-02T03:04:05Z, lostAt: 2026-01-02T05:00:00Z} # was Ready until then
package static

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/pilotlight-dev/pilotlight/internal/workload"
)

// File is the content of a targets file.
type File struct {
	Targets []Target `json:"targets"`
}

// Target is one workload.
type Target struct {
	Namespace   string            `json:"namespace"`
	Name        string            `json:"name"`
	MinReplicas int               `json:"minReplicaCount,omitempty"`
	MaxReplicas int               `json:"maxReplicaCount"`
	Cooldown    int               `json:"cooldownPeriod,omitempty"` // seconds
	Tolerance   float64           `json:"tolerance,omitempty"`
	Replicas    *int              `json:"replicas,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
	Pods        []Pod             `json:"pods,omitempty"`
}

// Pod is one engine.
type Pod struct {
	Name        string           `json:"name"`
	Host        string           `json:"host"`
	Port        int              `json:"port,omitempty"`
	Created     time.Time        `json:"created,omitzero"`
	Scheduled   time.Time        `json:"scheduled,omitzero"`
	Initialised time.Time        `json:"initialised,omitzero"`
	ReadyAt     time.Time        `json:"readyAt,omitzero"`
	LostAt      time.Time        `json:"lostAt,omitzero"`
	Template    string           `json:"template,omitempty"`
	Terminating bool             `json:"terminating,omitempty"`
	Failure     workload.Failure `json:"failure,omitempty"`
	Detail      string           `json:"detail,omitempty"`
	Cost        *int             `json:"cost,omitempty"`
}

// Source serves the workloads of one file.
type Source struct {
	path string
	log  *slog.Logger

	mu       sync.Mutex
	modified time.Time
	size     int64
	file     File
	broken   error  // what the present file is refused for
	problem  string // as last logged
}

// Open reads path for the first time. A nil logger discards.
func Open(path string, log *slog.Logger) (*Source, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Source{path: path, log: log}
	if err := s.load(); err != nil {
		return nil, err
	}
	return s, nil
}

// Workload returns the target ref as the file has it now. podSelector is not
// used: the file names the pods.
func (s *Source) Workload(_ context.Context, ref workload.Ref, _ string) (workload.Workload, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refresh()
	for _, t := range s.file.Targets {
		if t.Namespace == ref.Namespace && t.Name == ref.Name {
			return t.workload(), nil
		}
	}
	return workload.Workload{}, fmt.Errorf("%w: %s is not in %s", workload.ErrNotFound, ref, s.path)
}

// All returns every target of the file as it is now. It does not fail: a file
// that has become unreadable leaves the last good one standing.
func (s *Source) All(context.Context) ([]workload.Workload, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refresh()
	out := make([]workload.Workload, len(s.file.Targets))
	for i, t := range s.file.Targets {
		out[i] = t.workload()
	}
	return out, nil
}

// Triggers lists what every target of the file says in its metadata.
func (s *Source) Triggers(ctx context.Context) ([]workload.Trigger, error) {
	all, err := s.All(ctx)
	var out []workload.Trigger
	for _, w := range all {
		if w.Metadata != nil {
			out = append(out, workload.Trigger{Ref: w.Ref, Metadata: w.Metadata})
		}
	}
	return out, err
}

// refresh loads the file, and logs what is wrong with it when that changes.
func (s *Source) refresh() {
	text := ""
	if err := s.load(); err != nil {
		text = err.Error()
	}
	if text != s.problem {
		if s.problem = text; text != "" {
			s.log.Warn("keeping the last good targets", "error", text)
		}
	}
}

// load reads the file if it has changed. A broken file is reported once for
// each change.
func (s *Source) load() error {
	info, err := os.Stat(s.path)
	if err != nil {
		return fmt.Errorf("reading targets: %w", err)
	}
	if info.ModTime().Equal(s.modified) && info.Size() == s.size {
		return s.broken
	}
	body, err := os.ReadFile(s.path)
	if err != nil {
		return fmt.Errorf("reading targets: %w", err)
	}
	s.modified, s.size, s.broken = info.ModTime(), info.Size(), nil
	f, err := parse(body)
	if err != nil {
		s.broken = fmt.Errorf("reading targets: %s: %w", s.path, err)
		return s.broken
	}
	s.file = f
	return nil
}

func parse(body []byte) (File, error) {
	var f File
	if err := yaml.UnmarshalStrict(body, &f); err != nil {
		return File{}, err
	}
	seen := map[workload.Ref]bool{}
	for i, t := range f.Targets {
		ref := workload.Ref{Namespace: t.Namespace, Name: t.Name}
		switch {
		case t.Namespace == "" || t.Name == "":
			return File{}, fmt.Errorf("targets[%d]: namespace and name are required", i)
		case t.Cooldown < 0 || t.Tolerance < 0 || t.Tolerance > 0.5:
			return File{}, fmt.Errorf("targets[%d]: %s: cooldownPeriod must not be negative, tolerance must lie between 0 and 0.5", i, ref)
		case seen[ref]:
			return File{}, fmt.Errorf("targets[%d]: %s is listed twice", i, ref)
		case t.MaxReplicas < 1 || t.MaxReplicas < t.MinReplicas || t.MinReplicas < 0:
			return File{}, fmt.Errorf("targets[%d]: %s: 0 <= minReplicaCount <= maxReplicaCount and maxReplicaCount >= 1 must hold", i, ref)
		}
		seen[ref] = true
		for j, p := range t.Pods {
			if p.Name == "" || p.Port < 0 || p.Port > 65535 {
				return File{}, fmt.Errorf("targets[%d].pods[%d]: %s: a name, and a port from 1 to 65535 if any, are required", i, j, ref)
			}
		}
	}
	return f, nil
}

func (t Target) workload() workload.Workload {
	w := workload.Workload{
		Ref:         workload.Ref{Namespace: t.Namespace, Name: t.Name},
		Metadata:    t.Metadata,
		MinReplicas: t.MinReplicas, MaxReplicas: t.MaxReplicas,
		Replicas: len(t.Pods), Cooldown: time.Duration(t.Cooldown) * time.Second, Tolerance: t.Tolerance,
	}
	if t.Replicas != nil {
		w.Replicas = *t.Replicas
	}
	for _, p := range t.Pods {
		w.Pods = append(w.Pods, workload.Pod(p))
	}
	slices.SortFunc(w.Pods, func(a, b workload.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return w
}
