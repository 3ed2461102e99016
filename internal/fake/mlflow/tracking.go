package mlflow

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"strings"
)

type experiment struct {
	name, location string
	created        int64
}

type loggedModel struct {
	id, name, location string
	experiment         string
	kind, runID        string
	status             string
	created, updated   int64
	tags               map[string]string
}

const (
	loggedPending = "LOGGED_MODEL_PENDING"
	loggedReady   = "LOGGED_MODEL_READY"
)

type run struct {
	id, name, location string
	experiment         string
	status             string
	started            int64
}

// newID returns 32 hexadecimal digits, as runs and logged models have.
func newID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

func (s *Server) callCreateExperiment(in input) (any, error) {
	name := in.str("name")
	for _, e := range s.experiments {
		if e.name == name {
			return nil, exists("Experiment(name=%s) already exists. Error: it is taken", name)
		}
	}
	id := strconv.Itoa(len(s.experiments))
	location := in.str("artifact_location")
	if location == "" {
		location = s.opts.ArtifactRoot + "/" + id
	}
	s.experiments = append(s.experiments, &experiment{name: name, location: strings.TrimRight(location, "/"), created: s.now()})
	return map[string]string{"experiment_id": id}, nil
}

func (s *Server) experiment(id string) (*experiment, error) {
	n, err := strconv.Atoi(id)
	if err != nil || n < 0 || n >= len(s.experiments) {
		return nil, notFound("No Experiment with id=%s exists", id)
	}
	return s.experiments[n], nil
}

func viewExperiment(id string, e *experiment) any {
	return map[string]any{"experiment": map[string]any{
		"experiment_id": id, "name": e.name, "artifact_location": e.location, "lifecycle_stage": "active",
		"creation_time": e.created, "last_update_time": e.created,
	}}
}

func (s *Server) callGetExperiment(in input) (any, error) {
	e, err := s.experiment(in.str("experiment_id"))
	if err != nil {
		return nil, err
	}
	return viewExperiment(in.str("experiment_id"), e), nil
}

func (s *Server) callExperimentByName(in input) (any, error) {
	for id, e := range s.experiments {
		if e.name == in.str("experiment_name") {
			return viewExperiment(strconv.Itoa(id), e), nil
		}
	}
	return nil, notFound("Could not find experiment with name '%s'", in.str("experiment_name"))
}

func (s *Server) callCreateLogged(in input) (any, error) {
	e, err := s.experiment(in.str("experiment_id"))
	if err != nil {
		return nil, err
	}
	id := "m-" + newID()
	lm := &loggedModel{
		id: id, name: in.str("name"), experiment: in.str("experiment_id"), location: e.location + "/models/" + id + "/artifacts",
		kind: in.str("model_type"), runID: in.str("source_run_id"), status: loggedPending,
		created: s.now(), updated: s.now(), tags: map[string]string{},
	}
	putTags(lm.tags, in)
	s.logged[id] = lm
	return viewLogged(lm), nil
}

func viewLogged(lm *loggedModel) any {
	type info struct {
		ID         string    `json:"model_id"`
		Experiment string    `json:"experiment_id"`
		Name       string    `json:"name"`
		Created    int64     `json:"creation_timestamp_ms"`
		Updated    int64     `json:"last_updated_timestamp_ms"`
		Location   string    `json:"artifact_uri"`
		Status     string    `json:"status"`
		Kind       string    `json:"model_type"`
		RunID      string    `json:"source_run_id"`
		Tags       []tagJSON `json:"tags,omitempty"`
	}
	return map[string]any{"model": map[string]any{
		"info": info{lm.id, lm.experiment, lm.name, lm.created, lm.updated, lm.location, lm.status, lm.kind, lm.runID, tags(lm.tags)},
		"data": empty,
	}}
}

func (s *Server) loggedByID(in input) (*loggedModel, error) {
	if lm := s.logged[in.str("id")]; lm != nil {
		return lm, nil
	}
	return nil, notFound("Logged model with ID '%s' not found.", in.str("id"))
}

func (s *Server) callGetLogged(in input) (any, error) {
	lm, err := s.loggedByID(in)
	if err != nil {
		return nil, err
	}
	return viewLogged(lm), nil
}

func (s *Server) callFinalizeLogged(in input) (any, error) {
	lm, err := s.loggedByID(in)
	if err != nil {
		return nil, err
	}
	lm.status, lm.updated = in.str("status"), s.now()
	return viewLogged(lm), nil
}

func (s *Server) callTagLogged(in input) (any, error) {
	lm, err := s.loggedByID(in)
	if err != nil {
		return nil, err
	}
	putTags(lm.tags, in)
	return empty, nil
}

func (s *Server) callCreateRun(in input) (any, error) {
	e, err := s.experiment(in.str("experiment_id"))
	if err != nil {
		return nil, err
	}
	id := newID()
	r := &run{id: id, name: in.str("run_name"), experiment: in.str("experiment_id"), location: e.location + "/" + id + "/artifacts", status: "RUNNING", started: s.now()}
	s.runs[id] = r
	return map[string]any{"run": viewRun(r)}, nil
}

func viewRun(r *run) any {
	return map[string]any{"info": map[string]any{
		"run_id": r.id, "run_uuid": r.id, "run_name": r.name, "experiment_id": r.experiment, "user_id": "",
		"artifact_uri": r.location, "status": r.status, "start_time": r.started, "lifecycle_stage": "active",
	}, "data": empty}
}

func (s *Server) runByID(in input) (*run, error) {
	if r := s.runs[in.str("run_id")]; r != nil {
		return r, nil
	}
	return nil, notFound("Run with id=%s not found", in.str("run_id"))
}

func (s *Server) callGetRun(in input) (any, error) {
	r, err := s.runByID(in)
	if err != nil {
		return nil, err
	}
	return map[string]any{"run": viewRun(r)}, nil
}

func (s *Server) callUpdateRun(in input) (any, error) {
	r, err := s.runByID(in)
	if err != nil {
		return nil, err
	}
	if status := in.str("status"); status != "" {
		r.status = status
	}
	info := viewRun(r).(map[string]any)["info"]
	return map[string]any{"run_info": info}, nil
}
