package mlflow

import (
	"slices"
	"strings"
)

func (s *Server) callCreateVersion(in input) (any, error) {
	m, err := s.model(in.str("name"))
	if err != nil {
		return nil, err
	}
	if err := s.checkSource(in); err != nil {
		return nil, err
	}
	location, err := s.locate(in.str("source"))
	if err != nil {
		return nil, err
	}
	v, err := s.createVersion(m, in.str("source"))
	if err != nil {
		return nil, err
	}
	if location != v.source {
		v.location = location
	}
	v.runID, v.runLink, v.description = in.str("run_id"), in.str("run_link"), in.str("description")
	putTags(v.tags, in)
	s.announce(entityVersion, actionCreated, pairs{
		{"name", m.name},
		{"version", view(m, v, false).Version},
		{"source", v.source},
		{"run_id", orNull(v.runID)},
		{"tags", asPairs(v.tags)},
		{"description", orNull(v.description)},
	})
	return versionAnswer{view(m, v, true)}, nil
}

// checkSource refuses sources that could be somebody else's: recent releases want
// to be told what a reference belongs to.
func (s *Server) checkSource(in input) error {
	source := in.str("source")
	if !s.opts.Recent {
		return nil
	}
	if id, ok := strings.CutPrefix(source, "models:/"); ok && !strings.Contains(id, "/") && in.str("model_id") != id {
		return invalid("Invalid model version source: '%s'. The model_id request parameter must identify the resource that contains the source.", source)
	}
	if strings.HasPrefix(source, "runs:/") && in.str("run_id") == "" {
		return invalid("Invalid model version source: '%s'. The run_id request parameter must identify the resource that contains the source.", source)
	}
	if strings.HasPrefix(source, "/") {
		return invalid("Invalid model version source: '%s'. To use a local path as a model version source, the run_id request parameter has to be specified and the local path has to be contained within the artifact directory of the run specified by the run_id.", source)
	}
	return nil
}

func (s *Server) callGetVersion(in input) (any, error) {
	m, v, err := s.find(in.str("name"), in.str("version"))
	if err != nil {
		return nil, err
	}
	return versionAnswer{view(m, v, true)}, nil
}

func (s *Server) callDownloadURI(in input) (any, error) {
	_, v, err := s.find(in.str("name"), in.str("version"))
	if err != nil {
		return nil, err
	}
	return map[string]string{"artifact_uri": v.location}, nil
}

func (s *Server) callUpdateVersion(in input) (any, error) {
	m, v, err := s.find(in.str("name"), in.str("version"))
	if err != nil {
		return nil, err
	}
	v.description, v.updated = in.str("description"), s.now()
	return versionAnswer{view(m, v, true)}, nil
}

func (s *Server) callDeleteVersion(in input) (any, error) {
	return empty, s.deleteVersion(in.str("name"), in.str("version"))
}

var stages = []string{stageNone, "Staging", "Production", stageArchived}

func canonicalStage(name string) (string, error) {
	for _, stage := range stages {
		if strings.EqualFold(stage, name) {
			return stage, nil
		}
	}
	return "", invalid("Invalid Model Version stage: %s. Value must be one of %s.", name, strings.Join(stages, ", "))
}

func (s *Server) callTransition(in input) (any, error) {
	stage, err := canonicalStage(in.str("stage"))
	if err != nil {
		return nil, err
	}
	archive := in.flag("archive_existing_versions")
	if active := stages[1:3]; archive && !slices.Contains(active, stage) {
		return nil, apiError{500, "INTERNAL_ERROR", "Model version transition cannot archive existing model versions because '" + in.str("stage") + "' is not an Active stage. Valid stages are ['Staging', 'Production']"}
	}
	m, v, err := s.find(in.str("name"), in.str("version"))
	if err != nil {
		return nil, err
	}
	now := s.now()
	for _, other := range m.versions {
		if archive && other != v && other.stage == stage {
			other.stage, other.updated = stageArchived, now
		}
	}
	v.stage, v.updated, m.updated = stage, now, now
	return versionAnswer{view(m, v, true)}, nil
}

func (s *Server) callSetVersionTag(in input) (any, error) {
	m, v, err := s.find(in.str("name"), in.str("version"))
	if err != nil {
		return nil, err
	}
	out, err := s.setTag(v.tags, in)
	if err == nil {
		s.announce(entityVersionTag, actionSet, pairs{{"name", m.name}, {"version", in.str("version")}, {"key", in.str("key")}, {"value", in.str("value")}})
	}
	return out, err
}

func (s *Server) callDeleteVersionTag(in input) (any, error) {
	m, v, err := s.find(in.str("name"), in.str("version"))
	if err != nil {
		return nil, err
	}
	delete(v.tags, in.str("key"))
	s.announce(entityVersionTag, actionDeleted, pairs{{"name", m.name}, {"version", in.str("version")}, {"key", in.str("key")}})
	return empty, nil
}
