#!/usr/bin/env bash
# fuzz.sh TIME PACKAGES...: run every fuzz target for TIME, one after the
# other. What breaks one is written to its testdata/fuzz and belongs in the
# fix's commit.
set -euo pipefail
time=$1
shift
go=${GO:-go}
found=0
for package in $("$go" list "$@"); do
  targets=$("$go" test -list '^Fuzz' "$package" | grep '^Fuzz' || true)
  for target in $targets; do
    found=$((found + 1))
    printf '== %s %s\n' "$package" "$target"
    "$go" test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 10x "$package"
  done
done
if [ "$found" -eq 0 ]; then
  echo "no fuzz target in $*" >&2
  exit 1
fi
printf '%d fuzz targets, nothing found\n' "$found"
