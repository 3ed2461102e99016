#!/usr/bin/env bash
# generate.sh BIN PROTOC GO GRPC: regenerate internal/demandpb with protoc and
# the plugins of those versions; the plugins are built into BIN when it has
# none.
set -euo pipefail
bin=$1 want=$2 plugin_go=$3 plugin_grpc=$4
if ! command -v protoc >/dev/null; then
  echo "make generate needs protoc $want (Debian: apt-get install protobuf-compiler)" >&2
  exit 1
fi
have=$(protoc --version | awk '{print $2}')
if [ "$have" != "$want" ]; then
  echo "note: protoc is $have, the committed code was made with $want" >&2
fi
install() {
  [ -x "$bin/$1" ] || GOFLAGS='' GOBIN=$bin "${GO:-go}" install -trimpath "$2"
}
install protoc-gen-go "google.golang.org/protobuf/cmd/protoc-gen-go@$plugin_go"
install protoc-gen-go-grpc "google.golang.org/grpc/cmd/protoc-gen-go-grpc@$plugin_grpc"
cd "$(dirname "$0")/../internal/demandpb"
PATH=$bin:$PATH protoc --go_out=. --go_opt=paths=source_relative \
  --go-grpc_out=. --go-grpc_opt=paths=source_relative demand.proto
