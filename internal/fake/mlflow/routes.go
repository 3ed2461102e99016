package mlflow

import "context"

// A handler answers one call with what is to be encoded as JSON. It runs under
// the server's lock.
type handler func(*Server, input) (any, error)

// afterwards is what a handler returns that has I/O to do: it runs without the
// lock and gives the answer.
type afterwards func(context.Context) any

type route struct {
	handler  handler
	required []string // parameters that must be strings with something in them
}

// routes lists the calls below /api/2.0/mlflow/.
func routes() map[string]route {
	version := []string{"name", "version"}
	return map[string]route{
		"POST registered-models/create":              {(*Server).callCreateModel, []string{"name"}},
		"GET registered-models/get":                  {(*Server).callGetModel, []string{"name"}},
		"GET registered-models/search":               {(*Server).callSearchModels, nil},
		"POST registered-models/rename":              {(*Server).callRenameModel, []string{"name"}},
		"PATCH registered-models/update":             {(*Server).callUpdateModel, []string{"name"}},
		"DELETE registered-models/delete":            {(*Server).callDeleteModel, []string{"name"}},
		"GET registered-models/alias":                {(*Server).callGetAlias, []string{"name", "alias"}},
		"POST registered-models/alias":               {(*Server).callSetAlias, []string{"name", "alias", "version"}},
		"DELETE registered-models/alias":             {(*Server).callDeleteAlias, []string{"name", "alias"}},
		"POST registered-models/set-tag":             {(*Server).callSetModelTag, []string{"name", "key"}},
		"DELETE registered-models/delete-tag":        {(*Server).callDeleteModelTag, []string{"name", "key"}},
		"GET registered-models/get-latest-versions":  {(*Server).callLatest, []string{"name"}},
		"POST registered-models/get-latest-versions": {(*Server).callLatest, []string{"name"}},

		"POST model-versions/create":           {(*Server).callCreateVersion, []string{"name", "source"}},
		"GET model-versions/get":               {(*Server).callGetVersion, version},
		"GET model-versions/get-download-uri":  {(*Server).callDownloadURI, version},
		"GET model-versions/search":            {(*Server).callSearchVersions, nil},
		"PATCH model-versions/update":          {(*Server).callUpdateVersion, version},
		"POST model-versions/transition-stage": {(*Server).callTransition, append([]string{"stage"}, version...)},
		"DELETE model-versions/delete":         {(*Server).callDeleteVersion, version},
		"POST model-versions/set-tag":          {(*Server).callSetVersionTag, append([]string{"key"}, version...)},
		"DELETE model-versions/delete-tag":     {(*Server).callDeleteVersionTag, append([]string{"key"}, version...)},

		"POST experiments/create":       {(*Server).callCreateExperiment, []string{"name"}},
		"GET experiments/get":           {(*Server).callGetExperiment, []string{"experiment_id"}},
		"GET experiments/get-by-name":   {(*Server).callExperimentByName, []string{"experiment_name"}},
		"POST logged-models":            {(*Server).callCreateLogged, []string{"experiment_id"}},
		"GET logged-models/{id}":        {(*Server).callGetLogged, nil},
		"PATCH logged-models/{id}":      {(*Server).callFinalizeLogged, []string{"status"}},
		"PATCH logged-models/{id}/tags": {(*Server).callTagLogged, nil},
		"POST runs/create":              {(*Server).callCreateRun, []string{"experiment_id"}},
		"GET runs/get":                  {(*Server).callGetRun, []string{"run_id"}},
		"POST runs/update":              {(*Server).callUpdateRun, []string{"run_id"}},

		"POST webhooks":           {(*Server).callCreateHook, []string{"name", "url"}},
		"GET webhooks":            {(*Server).callListHooks, nil},
		"GET webhooks/{id}":       {(*Server).callGetHook, nil},
		"PATCH webhooks/{id}":     {(*Server).callUpdateHook, nil},
		"DELETE webhooks/{id}":    {(*Server).callDeleteHook, nil},
		"POST webhooks/{id}/test": {(*Server).callTestHook, nil},
	}
}

// empty is the answer of calls that have none.
var empty = struct{}{}
