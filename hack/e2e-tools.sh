#!/usr/bin/env bash
# Builds the control plane of the end-to-end tests from its modules, once for each
# set of versions, and prints two lines: the folder with the binaries, and the one
# with KEDA's CustomResourceDefinitions.
set -euo pipefail
cd "$(dirname "$0")/../test/e2e/tools"

go=${GO:-go}
key=$({ cat ./*/go.mod; $go env GOVERSION GOARCH; } | sha256sum | cut -c1-12)
out=${XDG_CACHE_HOME:-$HOME/.cache}/pilotlight/e2e/$key
done_marker=$out/complete
mkdir -p "$out"
exec 9>"$out/lock"
if command -v flock >/dev/null; then flock 9; fi # two builds at once would be slower than one

version() { # of a module, as its go.mod here pins it
  (cd "$1" && $go list -m -f '{{.Version}}' "$2")
}

build() { # folder, package, binary, linker flags
  [ -x "$out/$3" ] && return
  echo "building $3 (once)" >&2
  local began=$SECONDS
  (cd "$1" && $go build -trimpath -ldflags "-s -w ${4:-}" -o "$out/$3.new" "$2") >&2
  mv "$out/$3.new" "$out/$3"
  echo "built $3 in $((SECONDS - began)) s" >&2
}

if [ ! -e "$done_marker" ]; then
  build etcd go.etcd.io/etcd/server/v3 etcd
  # Clients cannot parse the version that a server reports without these.
  v=$(version kubernetes k8s.io/kubernetes)
  minor=${v#v1.} minor=${minor%%.*}
  p=k8s.io/component-base/version
  stamp="-X $p.gitVersion=$v -X $p.gitMajor=1 -X $p.gitMinor=$minor -X $p.gitTreeState=clean -X $p.gitCommit=unknown"
  for name in kube-apiserver kube-controller-manager kube-scheduler; do
    build kubernetes "k8s.io/kubernetes/cmd/$name" "$name" "$stamp"
  done
  build keda github.com/kedacore/keda/v2/cmd/operator keda-operator
  build keda github.com/kedacore/keda/v2/cmd/adapter keda-adapter
  touch "$done_marker"
fi
echo "$out"
(cd keda && $go mod download github.com/kedacore/keda/v2 && $go list -m -f '{{.Dir}}/config/crd/bases' github.com/kedacore/keda/v2)
