package mlflow

import "strings"

func (s *Server) callCreateModel(in input) (any, error) {
	m, err := s.createModel(in.str("name"))
	if err != nil {
		return nil, err
	}
	m.description = in.str("description")
	putTags(m.tags, in)
	s.announce(entityModel, actionCreated, pairs{{"name", m.name}, {"tags", asPairs(m.tags)}, {"description", orNull(m.description)}})
	return modelAnswer{viewModel(m)}, nil
}

func (s *Server) callGetModel(in input) (any, error) {
	m, err := s.model(in.str("name"))
	if err != nil {
		return nil, err
	}
	return modelAnswer{viewModel(m)}, nil
}

func (s *Server) callUpdateModel(in input) (any, error) {
	m, err := s.model(in.str("name"))
	if err != nil {
		return nil, err
	}
	m.description, m.updated = in.str("description"), s.now()
	return modelAnswer{viewModel(m)}, nil
}

func (s *Server) callRenameModel(in input) (any, error) {
	to := in.str("new_name")
	if strings.TrimSpace(to) == "" {
		return nil, missing("new_name")
	}
	if err := checkName(to); err != nil {
		return nil, err
	}
	m, err := s.model(in.str("name"))
	if err != nil {
		return nil, err
	}
	if s.models[to] != nil {
		return nil, exists("Registered Model (name=%s) already exists. Error: it is taken", to)
	}
	delete(s.models, m.name)
	s.models[to] = m
	m.name, m.updated = to, s.now()
	for _, v := range m.versions {
		v.updated = m.updated
	}
	return modelAnswer{viewModel(m)}, nil
}

func (s *Server) callDeleteModel(in input) (any, error) {
	m, err := s.model(in.str("name"))
	if err != nil {
		return nil, err
	}
	delete(s.models, m.name)
	return empty, nil
}

func (s *Server) callGetAlias(in input) (any, error) {
	m, v, err := s.byAlias(in.str("name"), in.str("alias"))
	if err != nil {
		return nil, err
	}
	return versionAnswer{view(m, v, true)}, nil
}

func (s *Server) callSetAlias(in input) (any, error) {
	return empty, s.setAlias(in.str("name"), in.str("alias"), in.str("version"))
}

func (s *Server) callDeleteAlias(in input) (any, error) {
	m, err := s.model(in.str("name"))
	if err != nil {
		return nil, err
	}
	delete(m.aliases, in.str("alias")) // one that is not there is no error
	s.announce(entityAlias, actionDeleted, pairs{{"name", m.name}, {"alias", in.str("alias")}})
	return empty, nil
}

func (s *Server) callLatest(in input) (any, error) {
	stages := in.list("stages")
	for i, name := range stages {
		stage, err := canonicalStage(name)
		if err != nil {
			return nil, err
		}
		stages[i] = stage
	}
	m, err := s.model(in.str("name"))
	if err != nil {
		return nil, err
	}
	var out versionsAnswer
	for _, v := range m.latest(stages) {
		out.Versions = append(out.Versions, view(m, v, true))
	}
	return out, nil
}

// Bounds of tags, in characters.
const (
	maxTagKey      = 250
	maxTag         = 5_000
	maxTagRecently = 100_000
)

func (s *Server) setTag(into map[string]string, in input) (any, error) {
	key, value := in.str("key"), in.str("value")
	most := maxTag
	if s.opts.Recent {
		most = maxTagRecently
	}
	if len([]rune(key)) > maxTagKey {
		return nil, invalid("'key' exceeds the maximum length of %d characters", maxTagKey)
	}
	if len([]rune(value)) > most {
		return nil, invalid("'value' exceeds the maximum length of %d characters", most)
	}
	into[key] = value
	return empty, nil
}

func (s *Server) callSetModelTag(in input) (any, error) {
	m, err := s.model(in.str("name"))
	if err != nil {
		return nil, err
	}
	return s.setTag(m.tags, in)
}

func (s *Server) callDeleteModelTag(in input) (any, error) {
	m, err := s.model(in.str("name"))
	if err != nil {
		return nil, err
	}
	delete(m.tags, in.str("key"))
	return empty, nil
}

func asPairs(m map[string]string) pairs {
	var out pairs
	for _, t := range tags(m) {
		out = append(out, pair{t.Key, t.Value})
	}
	return out
}
