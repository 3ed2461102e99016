package mlflow

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/pilotlight-dev/pilotlight/registry"
)

// maxOutputs bounds how many logged models of one run are looked at.
const maxOutputs = 20

// loggedModel is the part of MLflow's LoggedModelInfo that matters here.
type loggedModel struct {
	ID          string `json:"model_id"`
	Name        string `json:"name"`
	ArtifactURI string `json:"artifact_uri"`
	Status      string `json:"status"`
}

func (c *Client) loggedModel(ctx context.Context, id string) (loggedModel, error) {
	var out struct {
		Model struct {
			Info loggedModel `json:"info"`
		} `json:"model"`
	}
	err := c.get(ctx, c.tracking, "logged-models/"+url.PathEscape(id), nil, &out)
	return out.Model.Info, err
}

// run is the part of MLflow's Run that matters here.
type run struct {
	Info struct {
		ArtifactURI string `json:"artifact_uri"`
	} `json:"info"`
	Outputs struct {
		Models []struct {
			ID string `json:"model_id"`
		} `json:"model_outputs"`
	} `json:"outputs"`
}

func (c *Client) run(ctx context.Context, id string) (run, error) {
	var out struct {
		Run run `json:"run"`
	}
	err := c.get(ctx, c.tracking, "runs/get", url.Values{"run_id": {id}}, &out)
	return out.Run, err
}

// runURI turns runs:/<run id>/<path> into the folder that it means. MLflow 3
// keeps a model that a run logged apart from the run's own artifacts, and a
// runs:/ reference to it then leads to a folder that holds nothing. So when the
// run has logged a model of that name, and the run's folder has no MLmodel file,
// the logged model is meant.
func (c *Client) runURI(ctx context.Context, rest string) (string, error) {
	runID, sub, _ := strings.Cut(strings.TrimLeft(rest, "/"), "/")
	sub = strings.TrimRight(sub, "/")
	if runID == "" {
		return "", fmt.Errorf("%w: a runs:/ location names no run", registry.ErrBroken)
	}
	r, err := c.run(ctx, runID)
	if err != nil {
		return "", err
	}
	root := strings.TrimRight(r.Info.ArtifactURI, "/")
	switch {
	case root == "":
		return "", fmt.Errorf("%w: run %s has no artifact location", registry.ErrBroken, excerpt(runID))
	case sub == "":
		return root, nil
	}
	name, inside, _ := strings.Cut(sub, "/")
	m, ok, err := c.outputNamed(ctx, r, name)
	if err != nil {
		return "", err
	}
	if !ok || c.runHolds(ctx, runID, path.Join(name, "MLmodel")) {
		return root + "/" + sub, nil
	}
	if err := ctx.Err(); err != nil { // then nobody could say
		return "", classed(err)
	}
	if err := checkLoggedModel(m.ID, m); err != nil {
		return "", err
	}
	c.log.DebugContext(ctx, "the run's logged model is meant", "run", runID, "name", name, "model", m.ID)
	return strings.TrimRight(strings.TrimRight(m.ArtifactURI, "/")+"/"+inside, "/"), nil
}

// outputNamed finds the model that a run has logged under a name, the last one
// if there are several. Models that were deleted since are passed over.
func (c *Client) outputNamed(ctx context.Context, r run, name string) (found loggedModel, ok bool, err error) {
	outputs := r.Outputs.Models
	if len(outputs) > maxOutputs {
		outputs = outputs[len(outputs)-maxOutputs:]
	}
	for i := len(outputs) - 1; i >= 0; i-- {
		m, err := c.loggedModel(ctx, outputs[i].ID)
		switch {
		case errors.Is(err, registry.ErrNotFound):
		case err != nil:
			return loggedModel{}, false, err
		case m.Name == name:
			m.ID = outputs[i].ID
			return m, true, nil
		}
	}
	return loggedModel{}, false, nil
}

// runHolds reports whether the server lists a file among the run's own
// artifacts. It is asked once: a server that has no access to the store cannot
// say, and the logged model is the better guess then.
func (c *Client) runHolds(ctx context.Context, runID, file string) bool {
	var out struct {
		Files []struct {
			Path string `json:"path"`
		} `json:"files"`
	}
	query := url.Values{"run_id": {runID}, "path": {path.Dir(file)}}
	err := c.once(ctx, request{method: http.MethodGet, base: c.tracking, call: "artifacts/list", query: query}, &out)
	if err != nil {
		c.log.WarnContext(ctx, "the server cannot list a run's artifacts: its logged model is taken", "run", runID, "error", err)
		return false
	}
	for _, f := range out.Files {
		if f.Path == file {
			return true
		}
	}
	return false
}
