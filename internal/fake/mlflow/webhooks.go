package mlflow

import (
	"context"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// What webhooks hear of, as their payloads write it.
const (
	entityModel      = "registered_model"
	entityVersion    = "model_version"
	entityVersionTag = "model_version_tag"
	entityAlias      = "model_version_alias"

	actionCreated = "created"
	actionDeleted = "deleted"
	actionSet     = "set"
)

// actions are those that there are of each entity.
var actions = map[string][]string{
	entityModel: {actionCreated}, entityVersion: {actionCreated},
	entityVersionTag: {actionDeleted, actionSet}, entityAlias: {actionCreated, actionDeleted},
}

const hookActive, hookDisabled = "ACTIVE", "DISABLED"

type eventJSON struct {
	Entity string `json:"entity"`
	Action string `json:"action"`
}

type hook struct {
	ID          string      `json:"webhook_id"`
	Name        string      `json:"name"`
	Description string      `json:"description,omitempty"`
	URL         string      `json:"url"`
	Events      []eventJSON `json:"events"`
	Status      string      `json:"status"`
	Created     int64       `json:"creation_timestamp"`
	Updated     int64       `json:"last_updated_timestamp"`
	secret      string      // written, never read back
}

type hookAnswer struct {
	Hook hook `json:"webhook"`
}

var hookName = regexp.MustCompile(`^(?i)[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$`)

// check refuses what MLflow refuses. Unlike the real server's default it lets in
// http and private addresses, as with MLFLOW_WEBHOOK_ALLOWED_SCHEMES=http,https
// and MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS=true.
func (h *hook) check() error {
	if !hookName.MatchString(h.Name) {
		return invalid("Webhook name '%s' is invalid. It must start and end with a letter or digit, be less than 63 characters long, and contain only letters, digits, dots (.), underscores (_), and hyphens (-).", h.Name)
	}
	u, err := url.Parse(h.URL)
	if err != nil {
		return invalid("Invalid webhook URL '%s'", h.URL)
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return invalid("Invalid webhook URL scheme: '%s'. Allowed schemes are: http, https.", u.Scheme)
	}
	if u.Hostname() == "" {
		return invalid("Webhook URL must include a hostname: '%s'", h.URL)
	}
	if len(h.Events) == 0 {
		return invalid("Webhook events must be a non-empty list of WebhookEvent objects: [].")
	}
	for _, e := range h.Events {
		if err := e.check(); err != nil {
			return err
		}
	}
	if h.Status != hookActive && h.Status != hookDisabled {
		return invalid("Invalid webhook status: %s", h.Status)
	}
	return nil
}

func (e eventJSON) check() error {
	entity, action := strings.ToLower(e.Entity), strings.ToLower(e.Action)
	if !slices.Contains(actions[entity], action) {
		return invalid("Invalid action '%s' for entity '%s'. Valid actions are: ['%s']", action, entity, strings.Join(actions[entity], "', '"))
	}
	return nil
}

func readEvents(in input) []eventJSON {
	var out []eventJSON
	for _, e := range in.objects("events") {
		out = append(out, eventJSON{strings.ToUpper(e.str("entity")), strings.ToUpper(e.str("action"))})
	}
	return out
}

func (s *Server) callCreateHook(in input) (any, error) {
	h := &hook{
		ID: newUUID(), Name: in.str("name"), Description: in.str("description"), URL: in.str("url"), Events: readEvents(in),
		Status: in.str("status"), Created: s.now(), Updated: s.now(), secret: in.str("secret"),
	}
	if h.Status == "" {
		h.Status = hookActive
	}
	if err := h.check(); err != nil {
		return nil, err
	}
	s.hooks = append(s.hooks, h)
	return hookAnswer{*h}, nil
}

func (s *Server) hookByID(in input) (*hook, error) {
	for _, h := range s.hooks {
		if h.ID == in.str("id") {
			return h, nil
		}
	}
	return nil, notFound("Webhook with ID %s not found.", in.str("id"))
}

func (s *Server) callListHooks(in input) (any, error) {
	size, err := in.limit(100, 1000)
	if err != nil {
		return nil, err
	}
	var all []hook
	for _, h := range slices.Backward(s.hooks) { // the newest first
		all = append(all, *h)
	}
	var out struct {
		Hooks []hook `json:"webhooks,omitempty"`
		Next  string `json:"next_page_token,omitempty"`
	}
	out.Hooks, out.Next, err = page(all, in.str("page_token"), size)
	return out, err
}

func (s *Server) callGetHook(in input) (any, error) {
	h, err := s.hookByID(in)
	if err != nil {
		return nil, err
	}
	return hookAnswer{*h}, nil
}

func (s *Server) callUpdateHook(in input) (any, error) {
	h, err := s.hookByID(in)
	if err != nil {
		return nil, err
	}
	changed := *h
	for key, field := range map[string]*string{"name": &changed.Name, "description": &changed.Description, "url": &changed.URL, "status": &changed.Status, "secret": &changed.secret} {
		if _, given := in[key]; given {
			*field = in.str(key)
		}
	}
	if events := readEvents(in); len(events) > 0 {
		changed.Events = events
	}
	if err := changed.check(); err != nil {
		return nil, err
	}
	changed.Updated = s.now()
	*h = changed
	return hookAnswer{*h}, nil
}

func (s *Server) callDeleteHook(in input) (any, error) {
	h, err := s.hookByID(in)
	if err != nil {
		return nil, err
	}
	s.hooks = slices.DeleteFunc(s.hooks, func(other *hook) bool { return other == h })
	return empty, nil
}

// examples are what a test of a webhook sends.
var examples = map[string]pairs{
	entityModel + "." + actionCreated: {{"name", "example_model"}, {"tags", pairs{{"example_key", "example_value"}}}, {"description", "An example registered model"}},
	entityVersion + "." + actionCreated: {
		{"name", "example_model"},
		{"version", "1"},
		{"source", "models:/123"},
		{"run_id", "abcd1234abcd5678"},
		{"tags", pairs{{"example_key", "example_value"}}},
		{"description", "An example model version"},
	},
	entityVersionTag + "." + actionSet:     {{"name", "example_model"}, {"version", "1"}, {"key", "example_key"}, {"value", "example_value"}},
	entityVersionTag + "." + actionDeleted: {{"name", "example_model"}, {"version", "1"}, {"key", "example_key"}},
	entityAlias + "." + actionCreated:      {{"name", "example_model"}, {"alias", "example_alias"}, {"version", "1"}},
	entityAlias + "." + actionDeleted:      {{"name", "example_model"}, {"alias", "example_alias"}},
}

func (s *Server) callTestHook(in input) (any, error) {
	h, err := s.hookByID(in)
	if err != nil {
		return nil, err
	}
	event := h.Events[0]
	if fields, ok := in["event"].(map[string]any); ok {
		event = eventJSON{strings.ToUpper(input(fields).str("entity")), strings.ToUpper(input(fields).str("action"))}
		if err := event.check(); err != nil {
			return nil, err
		}
	}
	entity, action := strings.ToLower(event.Entity), strings.ToLower(event.Action)
	d := s.delivery(h, entity, action, examples[entity+"."+action])
	return afterwards(func(ctx context.Context) any { return map[string]any{"result": s.post.try(ctx, d)} }), nil
}

// announce sends an event to the webhooks that listen to it. It is called with
// the lock held and waits for nobody.
func (s *Server) announce(entity, action string, data pairs) {
	if s.post.client == nil {
		return
	}
	event := eventJSON{strings.ToUpper(entity), strings.ToUpper(action)}
	for _, h := range s.hooks {
		if h.Status == hookActive && slices.Contains(h.Events, event) {
			s.post.send(s.delivery(h, entity, action, data))
		}
	}
}

func (s *Server) delivery(h *hook, entity, action string, data pairs) delivery {
	now := s.opts.Now()
	body := pairs{
		{"entity", entity},
		{"action", action},
		{"timestamp", now.UTC().Format("2006-01-02T15:04:05.000000-07:00")},
		{"data", data},
	}
	return delivery{url: h.URL, secret: h.secret, id: newUUID(), at: now.Unix(), body: body.python()}
}
