package mlflow

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
)

// text is a JSON string that some servers write as a number: versions and
// int64 values come either way.
type text string

func (t *text) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		var s string
		if err := json.Unmarshal(b, &s); err != nil {
			return fmt.Errorf("reading a string: %w", err)
		}
		*t = text(s)
		return nil
	}
	if string(b) == "null" {
		return nil
	}
	var n json.Number
	if err := json.Unmarshal(b, &n); err != nil {
		return fmt.Errorf("reading a number: %w", err)
	}
	*t = text(n.String())
	return nil
}

// modelVersion is the part of MLflow's ModelVersion that matters here.
type modelVersion struct {
	Created text   `json:"creation_timestamp"`
	Name    string `json:"name"`
	Version text   `json:"version"`
	Status  string `json:"status"`
	Message string `json:"status_message"`
	// Description is what its owner wrote about it.
	Description string `json:"description"`
}

func (c *Client) versionByAlias(ctx context.Context, name, alias string) (modelVersion, error) {
	var out struct {
		ModelVersion modelVersion `json:"model_version"`
	}
	err := c.get(ctx, c.registry, "registered-models/alias", url.Values{"name": {name}, "alias": {alias}}, &out)
	return out.ModelVersion, err
}

func (c *Client) version(ctx context.Context, name, version string) (modelVersion, error) {
	var out struct {
		ModelVersion modelVersion `json:"model_version"`
	}
	err := c.get(ctx, c.registry, "model-versions/get", url.Values{"name": {name}, "version": {version}}, &out)
	return out.ModelVersion, err
}

// latestVersions returns the newest version of each stage; stages narrows it.
func (c *Client) latestVersions(ctx context.Context, name string, stages ...string) ([]modelVersion, error) {
	query := url.Values{"name": {name}}
	if len(stages) > 0 {
		query["stages"] = stages
	}
	var out struct {
		ModelVersions []modelVersion `json:"model_versions"`
	}
	err := c.get(ctx, c.registry, "registered-models/get-latest-versions", query, &out)
	return out.ModelVersions, err
}

func (c *Client) downloadURI(ctx context.Context, name, version string) (string, error) {
	var out struct {
		ArtifactURI string `json:"artifact_uri"`
	}
	err := c.get(ctx, c.registry, "model-versions/get-download-uri", url.Values{"name": {name}, "version": {version}}, &out)
	return out.ArtifactURI, err
}

// registeredModel is the part of MLflow's RegisteredModel that matters here.
// Its aliases are complete, which those of versions in search results are not.
type registeredModel struct {
	Aliases []struct {
		Alias   string `json:"alias"`
		Version text   `json:"version"`
	} `json:"aliases"`
	Tags []struct {
		Key   string `json:"key"`
		Value string `json:"value"`
	} `json:"tags"`
}

// alias returns the version that an alias names, even a deleted one.
func (m registeredModel) alias(name string) (version string, ok bool) {
	for _, a := range m.Aliases {
		if a.Alias == name {
			return string(a.Version), true
		}
	}
	return "", false
}

func (m registeredModel) tag(key string) string {
	for _, t := range m.Tags {
		if t.Key == key {
			return t.Value
		}
	}
	return ""
}

func (c *Client) model(ctx context.Context, name string) (registeredModel, error) {
	var out struct {
		RegisteredModel registeredModel `json:"registered_model"`
	}
	err := c.get(ctx, c.registry, "registered-models/get", url.Values{"name": {name}}, &out)
	return out.RegisteredModel, err
}

func (c *Client) setModelTag(ctx context.Context, name, key, value string) error {
	return c.post(ctx, "registered-models/set-tag", map[string]string{"name": name, "key": key, "value": value})
}
