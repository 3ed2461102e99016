// Package mlflow imports what cannot be downloaded.
package mlflow

import _ "github.com/mlflow/mlflow-go/pkg/client"
