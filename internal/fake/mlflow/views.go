package mlflow

import (
	"maps"
	"slices"
	"strconv"
)

type tagJSON struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

type aliasJSON struct {
	Alias   string `json:"alias"`
	Version string `json:"version"`
}

type versionJSON struct {
	Name        string    `json:"name"`
	Version     string    `json:"version"`
	Created     int64     `json:"creation_timestamp"`
	Updated     int64     `json:"last_updated_timestamp"`
	Stage       string    `json:"current_stage"`
	Description string    `json:"description"`
	Source      string    `json:"source"`
	RunID       string    `json:"run_id"`
	Status      string    `json:"status"`
	Tags        []tagJSON `json:"tags,omitempty"`
	RunLink     string    `json:"run_link"`
	Aliases     []string  `json:"aliases,omitempty"`
}

type modelJSON struct {
	Name        string        `json:"name"`
	Created     int64         `json:"creation_timestamp"`
	Updated     int64         `json:"last_updated_timestamp"`
	Description string        `json:"description,omitempty"`
	Latest      []versionJSON `json:"latest_versions,omitempty"`
	Tags        []tagJSON     `json:"tags,omitempty"`
	Aliases     []aliasJSON   `json:"aliases,omitempty"`
}

// Answers with one thing in them.
type (
	versionAnswer struct {
		Version versionJSON `json:"model_version"`
	}
	modelAnswer struct {
		Model modelJSON `json:"registered_model"`
	}
	versionsAnswer struct {
		Versions []versionJSON `json:"model_versions,omitempty"`
		Next     string        `json:"next_page_token,omitempty"`
	}
	modelsAnswer struct {
		Models []modelJSON `json:"registered_models,omitempty"`
		Next   string      `json:"next_page_token,omitempty"`
	}
)

func tags(m map[string]string) []tagJSON {
	var out []tagJSON
	for _, key := range slices.Sorted(maps.Keys(m)) {
		out = append(out, tagJSON{key, m[key]})
	}
	return out
}

// putTags reads tags as creation calls give them: [{"key":k,"value":v}].
func putTags(into map[string]string, in input) {
	for _, tag := range in.objects("tags") {
		into[tag.str("key")] = tag.str("value")
	}
}

// view renders a version; searches leave the aliases out, as MLflow does.
func view(m *model, v *version, withAliases bool) versionJSON {
	out := versionJSON{
		Name: m.name, Version: strconv.Itoa(v.number), Created: v.created, Updated: v.updated,
		Stage: v.stage, Description: v.description, Source: v.source, RunID: v.runID,
		Status: v.status, Tags: tags(v.tags), RunLink: v.runLink,
	}
	if withAliases {
		for _, a := range slices.Sorted(maps.Keys(m.aliases)) {
			if m.aliases[a] == v.number {
				out.Aliases = append(out.Aliases, a)
			}
		}
	}
	return out
}

func viewModel(m *model) modelJSON {
	out := modelJSON{Name: m.name, Created: m.created, Updated: m.updated, Description: m.description, Tags: tags(m.tags)}
	for _, v := range m.latest(nil) {
		out.Latest = append(out.Latest, view(m, v, false))
	}
	for _, a := range slices.Sorted(maps.Keys(m.aliases)) {
		out.Aliases = append(out.Aliases, aliasJSON{a, strconv.Itoa(m.aliases[a])})
	}
	return out
}
