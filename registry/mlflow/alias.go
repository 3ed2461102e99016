package mlflow

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/pilotlight-dev/pilotlight/registry"
)

// errDangling marks an alias that names a version which was deleted.
var errDangling = errors.New("it points to a deleted version")

// byAlias finds the version that an alias names. An alias that does not exist
// is registry.ErrNotFound; one whose version was deleted is registry.ErrBroken
// and errDangling.
func (c *Client) byAlias(ctx context.Context, ref registry.Ref) (modelVersion, error) {
	mv, err := c.versionByAlias(ctx, ref.Name, ref.Selector)
	switch {
	case err == nil:
		return mv, nil
	case errors.Is(err, registry.ErrNotFound) && strings.Contains(err.Error(), "Model Version"):
		return modelVersion{}, fmt.Errorf("%w: alias %s of %s: %w: set the alias to one that exists (%s)", registry.ErrBroken, ref.Selector, ref.Name, errDangling, err.Error()) // one class only
	case errors.Is(err, errInvalid):
		return modelVersion{}, c.explainInvalid(ctx, ref, err)
	}
	return modelVersion{}, err
}

// explainInvalid looks behind a 400 whose text says nothing known: servers say
// so about an alias that does not exist, and the wording is theirs.
func (c *Client) explainInvalid(ctx context.Context, ref registry.Ref, err error) error {
	m, merr := c.model(ctx, ref.Name)
	if merr != nil {
		return err
	}
	if _, ok := m.alias(ref.Selector); ok {
		return err
	}
	return fmt.Errorf("%w: %s has no alias %s: %s", registry.ErrNotFound, ref.Name, ref.Selector, err.Error()) // its class was a guess
}
