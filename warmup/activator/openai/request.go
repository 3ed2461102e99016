package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/multipart"
)

// What may be wrong with a request. For errors.Is.
var (
	ErrNoModel  = errors.New("the request names no model: set the top-level field \"model\"")
	ErrBadModel = errors.New("the field \"model\" must be a string")
	ErrTwice    = errors.New("the field \"model\" is given twice")
	ErrNotJSON  = errors.New("the body is not a JSON object")
	ErrNotForm  = errors.New("the body is not a form")
)

// Request is what a body says.
type Request struct {
	Model  string // "" where it names none
	Stream bool   // the answer shall be a stream of events
}

// Read reads a multipart form or, whatever else the content type says, a JSON
// object that must be whole: half a request wakes nothing. The field "model"
// counts only at the top level and spelled exactly so; two of them are refused,
// because an engine might take the other one. ErrNoModel comes with whatever
// else the body said.
func Read(contentType string, body []byte) (Request, error) {
	kind, params, err := mime.ParseMediaType(contentType)
	if err == nil && kind == "multipart/form-data" {
		return readForm(multipart.NewReader(bytes.NewReader(body), params["boundary"]))
	}
	return readJSON(body)
}

func readJSON(body []byte) (Request, error) {
	var out Request
	found := false
	err := fields(body, func(key, value []byte) error {
		switch {
		case is(key, "stream"):
			out.Stream = string(value) == "true"
		case is(key, "model"):
			if found {
				return ErrTwice
			}
			found = true
			name, ok := text(value)
			if !ok {
				return ErrBadModel
			}
			out.Model = name
		}
		return nil
	})
	if err == nil && out.Model == "" {
		err = ErrNoModel
	}
	return out, err
}

// longestField bounds the fields of a form that are read.
const longestField = 4 << 10

func readForm(form *multipart.Reader) (Request, error) {
	var out Request
	found := false
	for parts := 0; ; parts++ {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) && parts > 0 {
			break
		}
		if err != nil {
			return out, ErrNotForm
		}
		name := part.FormName()
		if name != "model" && name != "stream" {
			continue
		}
		value, err := io.ReadAll(io.LimitReader(part, longestField))
		switch {
		case err != nil:
			return out, ErrNotForm
		case name == "stream":
			out.Stream = string(value) == "true"
		case found:
			return out, ErrTwice
		default:
			out.Model, found = string(value), true
		}
	}
	if out.Model == "" {
		return out, ErrNoModel
	}
	return out, nil
}

// is compares a raw JSON string with a name.
func is(raw []byte, name string) bool {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1:len(raw)-1]) == name
	}
	s, ok := text(raw)
	return ok && s == name
}

// text returns the value of a raw JSON string.
func text(raw []byte) (string, bool) {
	if plain(raw) {
		return string(raw[1 : len(raw)-1]), true
	}
	var s string
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return "", false
	}
	return s, true
}

// plain reports whether a raw JSON string means just what it says, as almost
// every name of a model does: printable ASCII without a backslash.
func plain(raw []byte) bool {
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' {
		return false
	}
	for _, c := range raw[1 : len(raw)-1] {
		if c < ' ' || c > '~' || c == '\\' || c == '"' {
			return false
		}
	}
	return true
}
