#!/usr/bin/env bash
# Checks everything under deploy/: renders the charts, and asks a real API server
# about every document. Arguments go to go test (-update writes golden files).
set -euo pipefail
cd "$(dirname "$0")/.."

tools=$(./hack/e2e-tools.sh)
PILOTLIGHT_E2E_BIN=$(sed -n 1p <<<"$tools")
PILOTLIGHT_E2E_CRDS=$(sed -n 2p <<<"$tools")
export PILOTLIGHT_E2E_BIN PILOTLIGHT_E2E_CRDS

cd test/deploy
go=${GO:-go}
$go vet ./...
$go test -count=1 -timeout=10m -parallel=8 . "$@"
