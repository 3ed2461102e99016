#!/usr/bin/env bash
# cover.sh PACKAGE FOLDER: run the package's tests and fail when a statement is
# not reached, naming each one.
set -euo pipefail
package=$1 folder=$2
mkdir -p "$folder"
profile=$folder/$(basename "$package").out
"${GO:-go}" test -count=1 -coverprofile "$profile" "$package"
# Profile lines: file:line.column,line.column statements times-reached
missed=$(awk 'NR > 1 && $2 > 0 && $3 == 0 {print "  " $1}' "$profile")
if [ -n "$missed" ]; then
  printf 'statements of %s that no test reaches:\n%s\n' "$package" "$missed" >&2
  exit 1
fi
