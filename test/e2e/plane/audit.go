package plane

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
)

// auditPolicy notes what ServiceAccounts ask for, and nothing of the plane's own
// parts, which are in system:masters.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, userGroups: ["system:serviceaccounts"]}
- {level: None}
`

// Asked is a request that a ServiceAccount has made of the API server.
type Asked struct {
	Verb, Resource, Namespace, Name string
	Denied                          bool // by RBAC
}

// String renders "get secrets ai/token".
func (a Asked) String() string {
	return fmt.Sprintf("%s %s %s/%s", a.Verb, a.Resource, a.Namespace, a.Name)
}

func (p *Plane) auditLog() string { return p.file("audit.log") }

// AskedBy lists what a ServiceAccount has asked of the API server so far, as its
// audit log has it.
func (p *Plane) AskedBy(namespace, name string) (asked []Asked, err error) {
	f, err := os.Open(p.auditLog())
	if err != nil {
		return nil, err // names the file
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	user := "system:serviceaccount:" + namespace + ":" + name
	for lines := bufio.NewReader(f); ; {
		line, rerr := lines.ReadBytes('\n')
		if errors.Is(rerr, io.EOF) {
			return asked, nil // what follows the last newline is being written
		}
		if rerr != nil {
			return nil, fmt.Errorf("reading %s: %w", p.auditLog(), rerr)
		}
		var event struct {
			Verb           string
			User           struct{ Username string }
			ObjectRef      struct{ Resource, Subresource, Namespace, Name string }
			ResponseStatus struct{ Code int }
		}
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("reading %s: %w", p.auditLog(), err)
		}
		if event.User.Username != user {
			continue
		}
		o := event.ObjectRef
		if o.Subresource != "" {
			o.Resource += "/" + o.Subresource
		}
		asked = append(asked, Asked{event.Verb, o.Resource, o.Namespace, o.Name, event.ResponseStatus.Code == http.StatusForbidden})
	}
}
