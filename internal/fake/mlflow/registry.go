package mlflow

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Version statuses and stages.
const (
	StatusReady   = "READY"
	StatusPending = "PENDING_REGISTRATION"
	StatusFailed  = "FAILED_REGISTRATION"

	stageNone     = "None"
	stageArchived = "Archived"
)

type model struct {
	name             string
	description      string
	created, updated int64 // Unix milliseconds
	versions         map[int]*version
	next             int
	aliases          map[string]int
	tags             map[string]string
}

type version struct {
	number           int
	source, location string
	runID, runLink   string
	stage, status    string
	description      string
	created, updated int64
	tags             map[string]string
}

// CreateModel adds a registered model; it is an error if the name is taken.
func (s *Server) CreateModel(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.createModel(name)
	return err
}

// CreateVersion adds a READY version whose files lie at source, creating the
// model if need be, and returns its number. A source models:/m-<id> of a known
// logged model is resolved, any other becomes the location as it is.
func (s *Server) CreateVersion(name, source string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.models[name] == nil {
		if _, err := s.createModel(name); err != nil {
			return "", err
		}
	}
	v, err := s.createVersion(s.models[name], source)
	if err != nil {
		return "", err
	}
	return strconv.Itoa(v.number), nil
}

// SetAlias creates or moves an alias.
func (s *Server) SetAlias(name, alias, number string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.setAlias(name, alias, number)
}

// SetStatus changes the status of a version (StatusPending, StatusFailed).
func (s *Server) SetStatus(name, number, status string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, v, err := s.find(name, number)
	if err == nil {
		v.status = status
	}
	return err
}

// SetStage changes the stage of a version.
func (s *Server) SetStage(name, number, stage string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, v, err := s.find(name, number)
	if err == nil {
		v.stage = stage
	}
	return err
}

// SetLocation changes what get-download-uri answers for a version, as a server
// does that resolved the source at creation.
func (s *Server) SetLocation(name, number, uri string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, v, err := s.find(name, number)
	if err == nil {
		v.location = uri
	}
	return err
}

// DeleteVersion removes a version; what becomes of its aliases is a matter of
// Options.Recent.
func (s *Server) DeleteVersion(name, number string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.deleteVersion(name, number)
}

// AddLoggedModel adds a ready logged model (m-<32 hex>) with its files at uri.
func (s *Server) AddLoggedModel(id, uri string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logged[id] = &loggedModel{id: id, location: uri, status: loggedReady, created: s.now(), updated: s.now(), tags: map[string]string{}}
}

// AddRun adds a run whose artifacts lie at uri.
func (s *Server) AddRun(id, uri string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs[id] = &run{id: id, location: uri, status: "FINISHED"}
}

func (s *Server) now() int64 { return s.opts.Now().UnixMilli() }

// checkName applies MLflow's rule for the names of registered models.
func checkName(name string) error {
	if strings.TrimSpace(name) == "" {
		return missing("name")
	}
	if strings.ContainsAny(name, "/:") {
		return invalid("Invalid model name '%s'. Names cannot contain '/' or ':'.", name)
	}
	return nil
}

func (s *Server) createModel(name string) (*model, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if s.models[name] != nil {
		return nil, exists("Registered Model (name=%s) already exists.", name)
	}
	m := &model{name: name, created: s.now(), updated: s.now(), versions: map[int]*version{}, aliases: map[string]int{}, tags: map[string]string{}}
	s.models[name] = m
	return m, nil
}

func (s *Server) createVersion(m *model, source string) (*version, error) {
	if source == "" {
		return nil, missing("source")
	}
	m.next++
	v := &version{
		number: m.next, source: source, location: source, stage: stageNone, status: StatusReady,
		created: s.now(), updated: s.now(), tags: map[string]string{},
	}
	if lm := s.logged[strings.TrimPrefix(source, "models:/")]; lm != nil {
		v.location = lm.location
	}
	m.versions[v.number] = v
	m.updated = v.updated
	return v, nil
}

// locate resolves a source that names another version, as the REST API does; the
// Go API leaves it, for tests of what follows such chains.
func (s *Server) locate(source string) (string, error) {
	name, number, ok := strings.Cut(strings.TrimPrefix(source, "models:/"), "/")
	if !ok || !strings.HasPrefix(source, "models:/") {
		return source, nil
	}
	_, v, err := s.find(name, number)
	if err != nil {
		return "", apiError{500, "INTERNAL_ERROR", "Unable to fetch model from model URI source artifact location '" + source + "'.Error: " + err.Error()}
	}
	return v.location, nil
}

func (s *Server) deleteVersion(name, number string) error {
	m, v, err := s.find(name, number)
	if err != nil {
		return err
	}
	delete(m.versions, v.number)
	m.updated = s.now()
	if s.opts.Recent {
		maps.DeleteFunc(m.aliases, func(_ string, n int) bool { return n == v.number })
	}
	return nil
}

func (s *Server) model(name string) (*model, error) {
	if m := s.models[name]; m != nil {
		return m, nil
	}
	return nil, notFound("Registered Model with name=%s not found", name)
}

func (s *Server) find(name, number string) (*model, *version, error) {
	n, err := strconv.Atoi(number)
	if err != nil {
		return nil, nil, invalid("Parameter 'version' must be an integer, got '%s'.", number)
	}
	m := s.models[name]
	if m == nil || m.versions[n] == nil {
		return nil, nil, notFound("Model Version (name=%s, version=%s) not found", name, number)
	}
	return m, m.versions[n], nil
}

var (
	aliasPattern  = regexp.MustCompile(`^[\p{L}\p{N}_-]+$`)
	numberedAlias = regexp.MustCompile(`^[vV]\d+$`)
)

func checkAlias(alias string) error {
	switch {
	case !aliasPattern.MatchString(alias):
		return invalid("Invalid alias name: '%s'. Names may only contain alphanumerics, underscores (_), and dashes (-).", alias)
	case len([]rune(alias)) > 255:
		return invalid("'Registered model alias name' exceeds the maximum length of 255 characters")
	case strings.EqualFold(alias, "latest"):
		return invalid("'latest' alias name (case insensitive) is reserved.")
	case numberedAlias.MatchString(alias):
		return invalid("Version alias name '%s' is reserved.", alias)
	}
	return nil
}

func (s *Server) setAlias(name, alias, number string) error {
	if err := checkAlias(alias); err != nil {
		return err
	}
	m, v, err := s.find(name, number)
	if err != nil {
		return err
	}
	m.aliases[alias] = v.number // last_updated_timestamp stays, as with SQL stores
	s.announce(entityAlias, actionCreated, pairs{{"name", name}, {"alias", alias}, {"version", number}})
	return nil
}

func (s *Server) byAlias(name, alias string) (*model, *version, error) {
	m, err := s.model(name)
	if err != nil {
		return nil, nil, err
	}
	if strings.EqualFold(alias, "latest") {
		if latest := m.latest(nil); len(latest) > 0 {
			return m, slices.MaxFunc(latest, func(a, b *version) int { return a.number - b.number }), nil
		}
		return nil, nil, notFound("Latest version not found for model %s.", name)
	}
	number, ok := m.aliases[alias]
	if !ok {
		return nil, nil, invalid("Registered model alias %s not found.", alias)
	}
	return s.find(name, strconv.Itoa(number))
}

// latest returns the newest version of each stage, or of the given stages.
func (m *model) latest(stages []string) []*version {
	newest := map[string]*version{}
	for _, v := range m.versions {
		wanted := len(stages) == 0 || slices.ContainsFunc(stages, func(st string) bool { return strings.EqualFold(st, v.stage) })
		if old := newest[v.stage]; wanted && (old == nil || v.number > old.number) {
			newest[v.stage] = v
		}
	}
	return slices.SortedFunc(maps.Values(newest), func(a, b *version) int { return a.number - b.number })
}
