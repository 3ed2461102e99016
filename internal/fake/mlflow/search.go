package mlflow

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Bounds of one page.
const (
	defaultModels, mostModels     = 100, 1_000
	defaultVersions, mostVersions = 10_000, 200_000
)

// A condition is one clause of a filter: name = 'x', version_number >= 2,
// tags.kind LIKE 'raw%'.
type condition struct {
	key, operator, value string
	isTag                bool
}

var clause = regexp.MustCompile("(?i)^\\s*(?:(tags?)\\.)?([\\w.-]+|`[^`]+`|\"[^\"]+\")\\s*(!=|>=|<=|=|>|<|\\bI?LIKE\\b)\\s*('[^']*'|\"[^\"]*\"|\\d+)\\s*(?:\\band\\b|$)")

// parseFilter reads clauses joined by AND. keys are the attributes that there are.
func parseFilter(text string, keys ...string) ([]condition, error) {
	var out []condition
	for rest := strings.TrimSpace(text); rest != ""; {
		m := clause.FindStringSubmatch(rest)
		if m == nil {
			return nil, invalid("Invalid clause(s) in filter string: %s", rest)
		}
		c := condition{key: strings.Trim(m[2], "`\""), operator: strings.ToUpper(m[3]), value: strings.Trim(m[4], `'"`), isTag: m[1] != ""}
		if !c.isTag && !slices.Contains(keys, c.key) {
			return nil, invalid("Invalid attribute key '%s' specified. Valid keys are '%s'", c.key, strings.Join(keys, ", "))
		}
		out = append(out, c)
		rest = rest[len(m[0]):]
	}
	return out, nil
}

// holds reports whether a text satisfies the condition; numbers are compared as
// such.
func (c condition) holds(text string) bool {
	order := strings.Compare(text, c.value)
	if a, err := strconv.Atoi(text); err == nil {
		if b, err := strconv.Atoi(c.value); err == nil {
			order = cmp.Compare(a, b)
		}
	}
	switch c.operator {
	case "=":
		return order == 0
	case "!=":
		return order != 0
	case ">":
		return order > 0
	case ">=":
		return order >= 0
	case "<":
		return order < 0
	case "<=":
		return order <= 0
	}
	pattern := strings.NewReplacer("%", ".*", "_", ".").Replace(regexp.QuoteMeta(c.value))
	if c.operator == "ILIKE" {
		pattern = "(?i)" + pattern
	}
	return regexp.MustCompile("^(?s:" + pattern + ")$").MatchString(text)
}

// promptTag marks what MLflow keeps among the models but shows as a prompt. Its
// client asks for models by demanding that it is not 'true'.
const promptTag = "mlflow.prompt.is_prompt"

// matches applies conditions to something's attributes and tags. A tag that is
// not there satisfies nothing, but for the one that all but prompts lack.
func matches(conditions []condition, attributes, tags map[string]string) bool {
	return !slices.ContainsFunc(conditions, func(c condition) bool {
		if c.isTag {
			value, ok := tags[c.key]
			return !ok && c.key != promptTag || !c.holds(value)
		}
		return !c.holds(attributes[c.key])
	})
}

func (s *Server) callSearchModels(in input) (any, error) {
	size, err := in.limit(defaultModels, mostModels)
	if err != nil {
		return nil, err
	}
	conditions, err := parseFilter(in.str("filter"), "name")
	if err != nil {
		return nil, err
	}
	var all []modelJSON
	for _, name := range slices.Sorted(maps.Keys(s.models)) {
		m := s.models[name]
		if matches(conditions, map[string]string{"name": m.name}, m.tags) {
			all = append(all, viewModel(m))
		}
	}
	err = sortBy(all, "order by", in.list("order_by"), map[string]func(a, b modelJSON) int{
		"name":                   func(a, b modelJSON) int { return strings.Compare(a.Name, b.Name) },
		"timestamp":              func(a, b modelJSON) int { return cmp.Compare(a.Updated, b.Updated) },
		"last_updated_timestamp": func(a, b modelJSON) int { return cmp.Compare(a.Updated, b.Updated) },
	})
	if err != nil {
		return nil, err
	}
	var out modelsAnswer
	out.Models, out.Next, err = page(all, in.str("page_token"), size)
	return out, err
}

func (s *Server) callSearchVersions(in input) (any, error) {
	size, err := in.limit(defaultVersions, mostVersions)
	if err != nil {
		return nil, err
	}
	if size == 0 { // which a search for models takes for a page, and the next begins where it did
		return nil, invalid("Invalid value for max_results. It must be a positive integer, but got 0")
	}
	conditions, err := parseFilter(in.str("filter"), "name", "run_id", "source_path", "version_number")
	if err != nil {
		return nil, err
	}
	var all []versionJSON
	for _, m := range s.models {
		for _, v := range m.versions {
			attributes := map[string]string{"name": m.name, "run_id": v.runID, "source_path": v.source, "version_number": strconv.Itoa(v.number)}
			if matches(conditions, attributes, v.tags) {
				all = append(all, view(m, v, false))
			}
		}
	}
	number := func(v versionJSON) int {
		n, _ := strconv.Atoi(v.Version) // we wrote it
		return n
	}
	orders := in.list("order_by")
	if len(orders) == 0 {
		orders = []string{"last_updated_timestamp DESC"}
	}
	err = sortBy(all, "attribute", append(orders, "name ASC", "version_number DESC"), map[string]func(a, b versionJSON) int{
		"name":                   func(a, b versionJSON) int { return strings.Compare(a.Name, b.Name) },
		"version_number":         func(a, b versionJSON) int { return cmp.Compare(number(a), number(b)) },
		"creation_timestamp":     func(a, b versionJSON) int { return cmp.Compare(a.Created, b.Created) },
		"last_updated_timestamp": func(a, b versionJSON) int { return cmp.Compare(a.Updated, b.Updated) },
	})
	if err != nil {
		return nil, err
	}
	var out versionsAnswer
	out.Versions, out.Next, err = page(all, in.str("page_token"), size)
	return out, err
}

// sortBy sorts by clauses such as "version_number DESC", the first counting most.
// what is MLflow's word for their keys.
func sortBy[T any](all []T, what string, clauses []string, keys map[string]func(a, b T) int) error {
	var by []func(a, b T) int
	for _, text := range clauses {
		key, direction, _ := strings.Cut(strings.TrimSpace(text), " ")
		compare, ok := keys[key]
		if !ok {
			return invalid("Invalid %s key '%s' specified. Valid keys are %s", what, key, strings.Join(slices.Sorted(maps.Keys(keys)), ", "))
		}
		if strings.EqualFold(strings.TrimSpace(direction), "DESC") {
			compare = func(a, b T) int { return keys[key](b, a) }
		}
		by = append(by, compare)
	}
	slices.SortStableFunc(all, func(a, b T) int {
		for _, compare := range by {
			if c := compare(a, b); c != 0 {
				return c
			}
		}
		return 0
	})
	return nil
}

// page cuts a list; the token is opaque to clients.
func page[T any](all []T, token string, size int) (part []T, next string, err error) {
	var at struct {
		Offset int `json:"offset"`
	}
	if token != "" {
		raw, err := base64.StdEncoding.DecodeString(token)
		if err != nil {
			return nil, "", invalid("Invalid page token, could not base64-decode")
		}
		if err := json.Unmarshal(raw, &at); err != nil || at.Offset < 0 {
			return nil, "", invalid("Invalid page token, decoded value=b'%s'", raw)
		}
	}
	at.Offset = min(at.Offset, len(all))
	end := min(at.Offset+size, len(all))
	part = all[at.Offset:end]
	if end == len(all) {
		return part, "", nil
	}
	return part, base64.StdEncoding.EncodeToString(fmt.Appendf(nil, `{"offset": %d}`, end)), nil
}
