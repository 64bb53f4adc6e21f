#!/usr/bin/env bash
# Makes the lock files, each for the platform it is for, with nothing downloaded but metadata.
#
#   tools/lock.sh UV [--check | --upgrade]
#
#   UV         the resolver, https://docs.astral.sh/uv
#   --check    change nothing; fail if a lock would change: a pin is gone, contradicts another, or its source changed
#   --upgrade  take the newest versions that the sources allow; else those that are there stay where they still resolve
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
UV=$1 MODE=${2:-} FAILED=0
case $MODE in '' | --check | --upgrade) ;; *) echo "error: $MODE is neither --check nor --upgrade" >&2; exit 2 ;; esac
for name in ${!UV_*}; do unset "$name"; done  # a lock says nothing about who made it
WORK=$(mktemp -d) && trap 'rm -rf "$WORK"' EXIT

# Of everything wheels but of these, which are pure Python: the machine may have no compiler.
wheels() { printf -- '--only-binary\n:all:\n'; printf -- '--no-binary\n%s\n' "$@"; }

lock() { # lock NAME HEADER SOURCES OPTIONS...
  local path=requirements/$1.txt header=$2 sources=$3 made=$WORK/$1.txt; shift 3
  [ "$MODE" = --upgrade ] || cp "$path" "$made" 2>/dev/null
  # shellcheck disable=SC2086  # the sources are several words
  if ! "$UV" pip compile $sources "$@" --no-header --annotation-style line --quiet --python-version 3.11 --output-file "$made"; then
    echo "$path: does not resolve" >&2; FAILED=1; return
  fi
  printf '# %s\n# Made by `make lock` from %s; do not edit.\n' "$header" "${sources// /, }" | cat - "$made" > "$made.whole"
  if [ "$MODE" = --check ]; then diff -U0 "$path" "$made.whole" || { FAILED=1; return; }; else mv "$made.whole" "$path"; fi
  echo "$path: $(grep -c '^[a-zA-Z0-9].*==' "$path") packages" >&2
}

# Ubuntu 20.04 and newer: a dependency of vLLM (llguidance) has no wheel for anything older.
LINUX=(--python-platform x86_64-manylinux_2_31)
CPU=("${LINUX[@]}" --excludes requirements/train-cpu.exclude)
EXACT=(--universal --generate-hashes --only-binary :all:)
mapfile -t TRAINING < <(wheels cellpylib zss deepspeed)
mapfile -t SWIFT < <(wheels cellpylib zss crcmod oss2 transformers-stream-generator)
mapfile -t VERL < <(wheels antlr4-python3-runtime)
NO_HASHES="No hashes: torch's wheel differs from machine to machine."

lock dev "The tool and what develops it, for Python 3.11 and newer." pyproject.toml --extra dev "${EXACT[@]}"
lock train-cpu "The training stack without a GPU. $NO_HASHES" requirements/train-cpu.in \
  --override requirements/train-cpu.override "${CPU[@]}" "${TRAINING[@]}"
lock train-gpu "The training stack with an NVIDIA GPU: CUDA 13, driver 580 or newer." requirements/train-gpu.in \
  --excludes requirements/train-gpu.exclude "${LINUX[@]}" "${TRAINING[@]}"
lock open-r1 "Open-R1's versions without a GPU. $NO_HASHES" requirements/open-r1.in "${CPU[@]}" --only-binary :all:
lock search-peers "The tool and what peers of its search need. $NO_HASHES" \
  "pyproject.toml requirements/search-peers.in" "${CPU[@]}" --only-binary :all:
lock ms-swift "ms-swift without a GPU. $NO_HASHES" requirements/ms-swift.in "${CPU[@]}" "${SWIFT[@]}"
lock verl "verl without a GPU: what composes and checks its configuration. No hashes, as torch's wheel differs." requirements/verl.in \
  --excludes requirements/verl.exclude "${LINUX[@]}" "${VERL[@]}"
lock ray "The tool and what develops it, with Ray: for the tests of studies on a cluster." pyproject.toml \
  --extra dev --extra ray "${EXACT[@]}"
exit $FAILED
