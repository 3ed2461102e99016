package mlflow

import (
	"context"
	"fmt"

	"github.com/pilotlight-dev/pilotlight/registry"
)

// Peek says with one request which version ref names now, without asking where
// its files are. id is when that version was created: a number that is given
// out again, after the model was deleted and registered anew, has another one.
// Errors are those of Resolve.
func (c *Client) Peek(ctx context.Context, ref registry.Ref) (name, version, id string, err error) {
	mv, err := c.pick(ctx, ref)
	if err == nil {
		err = checkStatus(mv)
	}
	if err != nil {
		return "", "", "", fmt.Errorf("resolving %s at %s: %w", ref, c.Origin(), err)
	}
	return ref.Name, string(mv.Version), string(mv.Created), nil
}
