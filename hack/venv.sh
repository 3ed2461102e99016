#!/bin/sh
# Prints the path of a Python virtual environment that holds what a requirements
# file names, building it first if it is not there:
#
#   venv.sh REQUIREMENTS
#
# It lies in the user's cache, named by a hash of the file's requirements and
# Python's version, so that other pins make another environment and the same
# pins are built once. Nothing but python3 is needed. A virtual environment
# cannot be moved, so it is built where it stays; the file `complete`, written
# last, tells a whole one from one whose build was interrupted, which is then
# built anew.
set -eu

if [ $# -ne 1 ] || [ ! -r "$1" ]; then
	echo "usage: venv.sh REQUIREMENTS (a file for pip)" >&2
	exit 2
fi
requirements=$1
if ! command -v python3 >/dev/null; then
	echo "venv.sh: python3 is not installed" >&2
	exit 1
fi
if ! python3 -c 'import venv, ensurepip' 2>/dev/null; then
	echo "venv.sh: this python3 lacks the modules venv and ensurepip: install them (Debian and Ubuntu: the package python3-venv)" >&2
	exit 1
fi

# Comments do not count: rewording one must not cost a download.
key=$(python3 -c '
import hashlib, sys
lines = [line.split("#")[0].strip() for line in open(sys.argv[1], encoding="utf-8")]
text = "\n".join([sys.version, *filter(None, lines)])
print(hashlib.sha256(text.encode()).hexdigest()[:12])' "$requirements")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/pilotlight
dir=$cache/venv-$key
if [ -f "$dir/complete" ]; then
	echo "$dir"
	exit 0
fi

# One build at a time; a lock whose owner is gone is taken over.
mkdir -p "$cache"
lock=$dir.lock
waited=0
until ln -s "$$" "$lock" 2>/dev/null; do
	owner=$(readlink "$lock" || true)
	if [ -n "$owner" ] && ! kill -0 "$owner" 2>/dev/null; then
		rm -f "$lock"
		continue
	fi
	if [ $waited -ge 900 ]; then
		echo "venv.sh: process $owner has been building $dir for 15 minutes: end it, or remove $lock" >&2
		exit 1
	fi
	sleep 1
	waited=$((waited + 1))
done
trap 'rm -f "$lock"' EXIT
trap 'exit 1' HUP INT TERM

if [ ! -f "$dir/complete" ]; then
	echo "building the Python environment of $requirements in $dir, once" >&2
	rm -rf "$dir"
	python3 -m venv "$dir" >&2
	"$dir/bin/python" -m pip install --quiet --disable-pip-version-check --no-input -r "$requirements" >&2
	"$dir/bin/python" -m pip freeze --disable-pip-version-check >"$dir/installed.txt"
	touch "$dir/complete"
fi
echo "$dir"
