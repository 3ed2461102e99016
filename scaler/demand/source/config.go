package source

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/pilotlight-dev/pilotlight/internal/trigger"
)

// Type says what kind of program a source is.
type Type string

// The kinds.
const (
	EPP        Type = "epp"        // endpoint picker with flow control: llm-d router, Gateway API inference extension
	Router     Type = "router"     // production-stack's router
	HTTPAddon  Type = "http-addon" // interceptors of KEDA's HTTP add-on
	Prometheus Type = "prometheus" // a Prometheus server, or what answers like one
)

// Sight says what a source's number counts.
type Sight string

// The kinds of sight.
const (
	SeesHeld     Sight = "held"     // requests that wait for capacity, and nothing else
	SeesAll      Sight = "all"      // waiting and running together
	SeesArrivals Sight = "arrivals" // requests that came, wherever they are now
)

// Defaults and bounds of an Entry.
const (
	DefaultInterval = time.Second
	DefaultTimeout  = time.Second

	leastInterval = 200 * time.Millisecond
	mostInterval  = 5 * time.Second // a third of the shortest window in which the policy counts arrivals
	mostTimeout   = 10 * time.Second
	maxEntries    = 100
)

// Entry is one source of the file.
type Entry struct {
	Name            string   `json:"name"`
	Type            Type     `json:"type"`
	URL             string   `json:"url"`                       // of the metrics page, of /queue, or the base of a Prometheus server
	BearerTokenFile string   `json:"bearerTokenFile,omitempty"` // read anew whenever it has changed
	CAFile          string   `json:"caFile,omitempty"`          // PEM; default: the system's roots
	Namespaces      []string `json:"namespaces"`                // whose targets may ask; "*" = all
	Interval        Duration `json:"interval,omitempty"`        // between polls, 200ms to 5s; default 1s
	Timeout         Duration `json:"timeout,omitempty"`         // of one answer, up to 10s; default 1s

	// Of a prometheus source only:
	Query            string `json:"query,omitempty"`            // template, see query.go
	AllowDemandQuery bool   `json:"allowDemandQuery,omitempty"` // triggers may bring their own (demandQuery)
	Counts           Sight  `json:"counts,omitempty"`           // held (default) or all
}

// Sees says what e's number counts.
func (e Entry) Sees() Sight {
	switch e.Type {
	case Router:
		return SeesArrivals
	case HTTPAddon:
		return SeesAll
	case Prometheus:
		return e.Counts
	}
	return SeesHeld
}

// Blind says in words what e cannot see.
func (e Entry) Blind() string {
	switch e.Sees() {
	case SeesArrivals:
		return "counts arrivals: sees neither what waits nor what runs"
	case SeesAll:
		return "cannot tell waiting from running: without a Ready pod all of it waits, with one none of it"
	}
	return "sees what waits, not what runs"
}

// Stale is how old a number may be before it is unknown.
func (e Entry) Stale() time.Duration {
	return 3*time.Duration(e.Interval) + time.Duration(e.Timeout)
}

// allows reports whether targets of a namespace may ask.
func (e Entry) allows(namespace string) bool {
	return slices.Contains(e.Namespaces, "*") || slices.Contains(e.Namespaces, namespace)
}

// Duration is a time.Duration that is written as text.
type Duration time.Duration

// UnmarshalJSON reads a string such as "1s".
func (d *Duration) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("%s must be a duration such as \"1s\"", b)
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("%q must be a duration such as 1s", s)
	}
	*d = Duration(v)
	return nil
}

// ErrConfig is wrapped by every error of Parse.
var ErrConfig = errors.New("demand sources")

// Parse reads a file of sources, strictly, and reports every fault at once,
// each with its place.
func Parse(body []byte) ([]Entry, error) {
	var file struct {
		Sources []Entry `json:"sources"`
	}
	if err := yaml.UnmarshalStrict(body, &file); err != nil {
		return nil, fmt.Errorf("%w: %s", ErrConfig, strings.TrimPrefix(err.Error(), "error unmarshaling JSON: "))
	}
	if len(file.Sources) == 0 || len(file.Sources) > maxEntries {
		return nil, fmt.Errorf("%w: sources: 1 to %d entries are needed, there are %d", ErrConfig, maxEntries, len(file.Sources))
	}
	var faults []error
	seen := map[string]bool{}
	for i := range file.Sources {
		e := &file.Sources[i]
		fault := func(key, format string, args ...any) {
			faults = append(faults, fmt.Errorf("%w: sources[%d].%s: %s", ErrConfig, i, key, fmt.Sprintf(format, args...)))
		}
		if seen[e.Name] {
			fault("name", "%q is given twice", e.Name)
		}
		seen[e.Name] = true
		e.check(fault)
	}
	return file.Sources, errors.Join(faults...)
}

var validName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// check fills in the defaults of e and reports what is wrong with it.
func (e *Entry) check(fault func(key, format string, args ...any)) {
	switch {
	case !validName.MatchString(e.Name):
		fault("name", "%q must be lower-case letters, digits and dashes, at most 63", e.Name)
	case e.Name == trigger.DemandActivator || e.Name == trigger.DemandNone:
		fault("name", "%q is built in: choose another", e.Name)
	}
	types := []Type{EPP, Router, HTTPAddon, Prometheus}
	if !slices.Contains(types, e.Type) {
		fault("type", "%q must be one of %v", e.Type, types)
	}
	e.checkURL(fault)
	if len(e.Namespaces) == 0 {
		fault("namespaces", "say whose targets may ask, or \"*\" for all")
	}
	bounded := func(key string, d *Duration, def, least, most time.Duration) {
		if *d == 0 {
			*d = Duration(def)
		}
		if v := time.Duration(*d); v < least || v > most {
			fault(key, "%v must lie between %v and %v", v, least, most)
		}
	}
	bounded("interval", &e.Interval, DefaultInterval, leastInterval, mostInterval)
	bounded("timeout", &e.Timeout, DefaultTimeout, 10*time.Millisecond, mostTimeout)
	if e.Type == Prometheus {
		e.checkQuery(fault)
		return
	}
	if e.Query != "" || e.AllowDemandQuery || e.Counts != "" {
		fault("query", "query, allowDemandQuery and counts are for type prometheus only")
	}
}

func (e *Entry) checkURL(fault func(key, format string, args ...any)) {
	u, err := url.Parse(e.URL)
	switch {
	case err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https":
		fault("url", "must be an http or https URL") // its text may hold a secret
	case u.User != nil:
		fault("url", "must not hold a user or password: give bearerTokenFile")
	case u.RawQuery != "" || u.Fragment != "":
		fault("url", "must not have a query or fragment")
	case e.CAFile != "" && u.Scheme == "http":
		fault("caFile", "is of no use with http")
	}
}

func (e *Entry) checkQuery(fault func(key, format string, args ...any)) {
	if e.Counts == "" {
		e.Counts = SeesHeld
	}
	if e.Counts != SeesHeld && e.Counts != SeesAll {
		fault("counts", "%q must be %s or %s", e.Counts, SeesHeld, SeesAll)
	}
	if e.Query == "" && !e.AllowDemandQuery {
		fault("query", "is required unless allowDemandQuery is set")
	}
	if err := checkTemplate(e.Query); err != nil {
		fault("query", "%v", err)
	}
}
