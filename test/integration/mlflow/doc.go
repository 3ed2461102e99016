// Package mlflow runs Pilotlight against MLflow itself: a server started from its
// Python package, its own client, and versitygw as the store.
//
//   - TestRealServer runs script.py, which does with the real client what people do
//     with a registry, against the real server and against internal/fake/mlflow:
//     both must have told the client the same, and both must answer the same raw
//     requests alike. Then it fetches what the script registered with the fetcher's
//     binary, moves and breaks the alias, and receives a webhook. Three agents
//     follow an alias, by webhook and by poll, and the command line waits for them.
//   - The other variants of a server that people run have a test each: artifacts
//     behind the server's proxy, and basic authentication.
//   - On each variant the registry's conformance suite runs, and the command line
//     as people type it (cli_test.go).
//   - hostile_test.go needs no MLflow: a registry that lies is a Go stub.
//
// `make integration` builds the environment (hack/venv.sh, requirements.txt) and
// the binaries and names them in PILOTLIGHT_MLFLOW, PILOTLIGHT_VERSITYGW,
// PILOTLIGHT_FETCHER and PILOTLIGHT_CLI; without these all but the hostile
// registry is skipped.
// Everything stays on loopback.
package mlflow
