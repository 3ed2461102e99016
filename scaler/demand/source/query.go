package source

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/pilotlight-dev/pilotlight/internal/trigger"
	"github.com/pilotlight-dev/pilotlight/internal/workload"
)

// A query is a template of PromQL with the placeholders {{namespace}},
// {{scaledObject}} and {{modelName}}. What they stand for comes from tenants,
// so that two rules keep it data:
//
//   - a placeholder must be the whole value of an equality matcher:
//     label="{{modelName}}" or label!="{{modelName}}". In a regular expression
//     a name such as .* would match everybody's series;
//   - a value may hold letters, digits and . _ : / @ + - only, none of which
//     can end a string.
//
// There are no loops, conditions or functions.

var (
	placeholder = regexp.MustCompile(`\{\{([^{}]*)\}\}`)
	plainValue  = regexp.MustCompile(`^[A-Za-z0-9._:/@+-]{1,253}$`)
)

const maxQuery = 4096 // bytes, before and after filling in

// checkTemplate says what is wrong with a template.
func checkTemplate(query string) error {
	if len(query) > maxQuery {
		return fmt.Errorf("is longer than %d bytes", maxQuery)
	}
	for _, at := range placeholder.FindAllStringSubmatchIndex(query, -1) {
		name := query[at[2]:at[3]]
		if _, known := values(question{})[name]; !known {
			return fmt.Errorf("{{%s}} is not known: there are {{namespace}}, {{scaledObject}} and {{modelName}}", name)
		}
		if before, after := query[:at[0]], query[at[1]:]; !strings.HasSuffix(before, `="`) || !strings.HasPrefix(after, `"`) {
			return fmt.Errorf(`{{%s}} must be the whole of an equality matcher: label="{{%s}}"`, name, name)
		}
	}
	if rest := placeholder.ReplaceAllString(query, ""); strings.Contains(rest, "{{") || strings.Contains(rest, "}}") {
		return fmt.Errorf("has braces that do not pair up")
	}
	return nil
}

// A question is what one target asks of a source. Equal questions share one
// answer.
type question struct {
	ref   workload.Ref
	model string
	query string // of a prometheus source: filled in; of the HTTP add-on: the route
}

func values(q question) map[string]string {
	return map[string]string{"namespace": q.ref.Namespace, "scaledObject": q.ref.Name, "modelName": q.model}
}

// fill puts the values in. The template has passed checkTemplate.
func fill(template string, q question) (string, error) {
	given := values(q)
	var bad error
	out := placeholder.ReplaceAllStringFunc(template, func(match string) string {
		name := match[2 : len(match)-2]
		if v := given[name]; plainValue.MatchString(v) {
			return v
		}
		bad = fmt.Errorf("%s %q cannot be put into a query: only letters, digits and . _ : / @ + - can", name, given[name])
		return ""
	})
	if bad == nil && len(out) > maxQuery {
		bad = fmt.Errorf("the query is longer than %d bytes when filled in", maxQuery)
	}
	return out, bad
}

var validRoute = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)

// ask makes the question of a trigger, or says by key why it cannot be asked.
func (e Entry) ask(ref workload.Ref, t trigger.Trigger) (question, []trigger.Fault) {
	q := question{ref: ref, model: t.ModelName, query: t.DemandQuery}
	fault := func(key, format string, args ...any) []trigger.Fault {
		return []trigger.Fault{{Key: key, Problem: fmt.Sprintf(format, args...)}}
	}
	switch e.Type {
	case EPP, Router:
		if t.DemandQuery != "" {
			return q, fault("demandQuery", "demand source %s takes none: it is asked about modelName", e.Name)
		}
		if t.ModelName == "" {
			return q, fault("modelName", "is required: demand source %s is asked by it", e.Name)
		}
	case HTTPAddon:
		if q.query == "" {
			q.query = ref.Name
		}
		if !validRoute.MatchString(q.query) {
			return q, fault("demandQuery", "%q is not the name of a route in this namespace", q.query)
		}
	case Prometheus:
		return e.askPrometheus(q, fault)
	}
	return q, nil
}

func (e Entry) askPrometheus(q question, fault func(key, format string, args ...any) []trigger.Fault) (question, []trigger.Fault) {
	template := e.Query
	switch {
	case q.query != "" && !e.AllowDemandQuery:
		return q, fault("demandQuery", "demand source %s has a query of its own and takes no other", e.Name)
	case q.query != "":
		if err := checkTemplate(q.query); err != nil {
			return q, fault("demandQuery", "%v", err)
		}
		template = q.query
	case template == "":
		return q, fault("demandQuery", "is required: demand source %s has no query of its own", e.Name)
	}
	filled, err := fill(template, q)
	if err != nil {
		return q, fault("demandQuery", "%v", err)
	}
	q.query = filled
	return q, nil
}
