package mlflow

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// input is a call's fields: a GET's query or the JSON body of the rest.
type input map[string]any

func readInput(r *http.Request) (input, error) {
	in := input{}
	if r.Method == http.MethodGet {
		for key, values := range r.URL.Query() {
			if len(values) == 1 {
				in[key] = values[0]
			} else {
				in[key] = values
			}
		}
		return in, nil
	}
	dec := json.NewDecoder(io.LimitReader(r.Body, 1<<20))
	dec.UseNumber()
	var body any
	if err := dec.Decode(&body); err != nil {
		return in, nil // taken for an empty one
	}
	fields, ok := body.(map[string]any)
	if !ok {
		return nil, errNoObject
	}
	return fields, nil
}

// errNoObject: MLflow stumbles over a JSON body that is no object, and answers
// with a page.
var errNoObject = errors.New("the body is JSON, but no object")

// seeDocs ends MLflow's complaints about parameters.
const seeDocs = "See the API docs for more information about request parameters."

// require checks parameters that must be given, as strings.
func (in input) require(names []string) error {
	for _, name := range names {
		switch v := in[name].(type) {
		case string:
			if v == "" {
				return missing(name)
			}
		case nil:
			return missing(name)
		case json.Number:
			return invalid("Invalid value %s for parameter '%s' supplied:  Hint: Value was of type 'int'. %s", v, name, seeDocs)
		default:
			return invalid("Invalid value for parameter '%s' supplied. %s", name, seeDocs)
		}
	}
	return nil
}

func missing(name string) error {
	return invalid("Missing value for required parameter '%s'. %s", name, seeDocs)
}

func (in input) str(key string) string {
	switch v := in[key].(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	}
	return ""
}

func (in input) flag(key string) bool {
	on, _ := in[key].(bool)
	return on || in.str(key) == "true"
}

func (in input) list(key string) []string {
	switch v := in[key].(type) {
	case []string:
		return v
	case string:
		return []string{v}
	case []any:
		var out []string
		for _, e := range v {
			if text, ok := e.(string); ok {
				out = append(out, text)
			}
		}
		return out
	}
	return nil
}

// objects returns the elements of a list of JSON objects.
func (in input) objects(key string) []input {
	list, _ := in[key].([]any)
	var out []input
	for _, e := range list {
		if fields, ok := e.(map[string]any); ok {
			out = append(out, fields)
		}
	}
	return out
}

// limit reads max_results, which is 0 to most.
func (in input) limit(fallback, most int) (int, error) {
	text := in.str("max_results")
	if text == "" {
		return fallback, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > most {
		return 0, invalid("Invalid value \"%s\" for parameter 'max_results' supplied:  Hint: Value was of type 'str'. %s", text, seeDocs)
	}
	return n, nil
}

// apiError is an error in MLflow's JSON form.
type apiError struct {
	status  int
	code    string
	message string
}

func (e apiError) Error() string { return e.code + ": " + e.message }

func notFound(format string, args ...any) error {
	return apiError{404, "RESOURCE_DOES_NOT_EXIST", fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) error {
	return apiError{400, "INVALID_PARAMETER_VALUE", fmt.Sprintf(format, args...)}
}

func exists(format string, args ...any) error {
	return apiError{400, "RESOURCE_ALREADY_EXISTS", fmt.Sprintf(format, args...)}
}

func writeError(w http.ResponseWriter, err error) {
	var api apiError
	if !errors.As(err, &api) {
		api = apiError{500, "INTERNAL_ERROR", err.Error()}
	}
	writeJSON(w, api.status, map[string]string{"error_code": api.code, "message": api.message})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client has gone if this fails
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) // the client has gone if this fails
}

// writePage answers what is no call of the API, as a web framework does.
func writePage(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	title := http.StatusText(status)
	_, _ = fmt.Fprintf(w, "<!doctype html>\n<html lang=en>\n<title>%d %s</title>\n<h1>%s</h1>\n", status, title, title) // as above
}
