// Package fetcher may import the types of registry, not its clients.
package fetcher

import (
	_ "example.com/bad/registry"
	_ "example.com/bad/registry/mlflow"
)
