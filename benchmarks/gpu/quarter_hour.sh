#!/usr/bin/env bash
# One visit to a machine with a GPU, by one command: a study, forms of its baseline, rounds of its answer beside competent
# and TRL's defaults, and the GPU tests. Results are copied to OUT every COPY_S seconds and at the end, so that a kill loses
# no more than that.
#
#   quarter_hour.sh [--short] [--cpu] [PACKAGES]
#
#   PACKAGES  a folder with unpack.sh, which puts Python packages into $SITE and writes variables to $KIT/env.sh; without
#             it everything must be there for PYTHON
#   --short   4 minutes instead of 13: both forms of the baseline, then a study in what is left
#   --cpu     a dry run of everything on a CPU, with a tiny model; its figures say nothing
#
# Variables: OUT (results), ARCHIVE (a file that holds all of OUT as well, as tar.gz), WORK (a new folder), PYTHON
# (interpreter of the trials), TOOL (interpreter of the tuner, else PYTHON), LIMIT (seconds in all), STAGES (of: study
# forms rounds tests, in this order or another), ARCH, ROWS, PROMPT, COMPLETION, SPACE (preset or file of the study),
# STUDY_ARGS (more options of it, such as "--framework verl --max-trials 2"), STUDY_S (seconds of the study), TESTS_S
# (seconds that rounds leave to the tests).
set -u
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
BEGUN=$(date +%s)
SHORT='' CPU='' PACKAGES=''
for word in "$@"; do
  case $word in
    --short) SHORT=1 ;;
    --cpu) CPU=1 ;;
    -h | --help) sed -n '2,18s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    -*) echo "error: $word is no option; expected --short, --cpu or a folder of packages" >&2; exit 2 ;;
    *) PACKAGES=$word ;;
  esac
done
if [ -n "$PACKAGES" ] && [ ! -f "$PACKAGES/unpack.sh" ]; then
  echo "error: $PACKAGES holds no unpack.sh; expected a folder of packed packages" >&2; exit 2
fi
if [ -n "$SHORT" ]; then : "${LIMIT:=240}" "${STAGES:=forms study}"; else : "${LIMIT:=780}" "${STAGES:=study forms rounds tests}"; fi
if [ -n "$CPU" ]; then
  : "${ARCH:=tiny}" "${ROWS:=8}" "${PROMPT:=32}" "${COMPLETION:=16}" "${STUDY_S:=$((LIMIT / 3))}"
else
  : "${ARCH:=qwen2.5-1.5b}" "${ROWS:=128}" "${PROMPT:=256}" "${COMPLETION:=96}" "${STUDY_S:=$((LIMIT * 400 / 780))}"
fi
: "${TESTS_S:=90}" "${OUT:=results}" "${WORK:=$(mktemp -d)}" "${PYTHON:=python3}" "${TOOL:=$PYTHON}" "${COPY_S:=20}"
END_S=12    # kept for the last copy
mkdir -p "$OUT" "$WORK" || exit 2
[ -z "${ARCHIVE:-}" ] || ARCHIVE=$(cd "$(dirname "$ARCHIVE")" && pwd)/$(basename "$ARCHIVE") || exit 2
OUT=$(cd "$OUT" && pwd) WORK=$(cd "$WORK" && pwd) HOME_OF=$WORK/home LOGS=$WORK/logs
mkdir -p "$LOGS"

say() { echo "[$(($(date +%s) - BEGUN))] $*" | tee -a "$LOGS/visit.log"; }
left() { echo $((LIMIT - END_S - ($(date +%s) - BEGUN))); }

copied() {
  cp -f "$LOGS"/* "$OUT"/ 2>/dev/null
  [ -f "$WORK/rounds.jsonl" ] && cp -f "$WORK/rounds.jsonl" "$OUT"/
  (cd "$ROOT" && "$TOOL" -m benchmarks.gpu.visit copy "$HOME_OF" "$OUT") >> "$LOGS/copy.err" 2>&1
  [ -z "${ARCHIVE:-}" ] || { tar -czf "$ARCHIVE.new" -C "$OUT" . 2>> "$LOGS/copy.err"; mv -f "$ARCHIVE.new" "$ARCHIVE"; }
}

COPIER='' STAGE=''
ended() {
  trap - EXIT INT TERM
  [ -n "$STAGE" ] && kill -TERM -- "-$STAGE" 2>/dev/null
  [ -n "$COPIER" ] && kill "$COPIER" 2>/dev/null
  say "ends"
  copied
}
trap 'ended; exit 143' INT TERM
trap ended EXIT

# stage NAME SECONDS COMMAND...: in a process group of its own, ended by SIGTERM when its seconds are over.
stage() {
  local name=$1 seconds=$2; shift 2
  [ "$seconds" -le "$(left)" ] || seconds=$(left)
  say "$name begins, $seconds s at most"
  setsid timeout -s TERM -k 15 "$seconds" "$@" > "$LOGS/$name.log" 2>&1 < /dev/null &
  STAGE=$!
  wait "$STAGE"; local code=$?
  STAGE=''
  say "$name ended with $code: $(grep -m 1 '^result ' "$LOGS/$name.log" || tail -n 1 "$LOGS/$name.log" | cut -c1-160)"
  return $code
}

VARIABLES=()
start() { # start NAME SECONDS OPTIONS...: a study of the workload, its trials with VARIABLES in their environment
  local name=$1 seconds=$2; shift 2
  stage "$name" $((seconds + 60)) env "${VARIABLES[@]}" "$TOOL" -m autotune.cli start --home "$HOME_OF" --python "$PYTHON" --name "$name" \
    --model "$WORK/model" --data "$WORK/prompts.jsonl" --reward "$WORK/reward.py:score" --rows-per-update "$ROWS" \
    --max-prompt-length "$PROMPT" --max-completion-length "$COMPLETION" --no-history --no-serve --no-live \
    --budget "${seconds}s" "$@"
}

study() {
  local seconds=$STUDY_S
  [ "$seconds" -le "$(left)" ] || seconds=$(left)
  [ "$seconds" -ge 30 ] || { say "no study: $seconds s are left"; return; }
  start study "$seconds" ${SPACE:+--space "$SPACE"} ${STUDY_ARGS:-}
  "$TOOL" -m benchmarks.gpu.study_table "$HOME_OF" study "$WORK/study.jsonl" > "$LOGS/study-table.md" 2> "$LOGS/table.err"
  [ -f "$WORK/study.jsonl" ] && cp -f "$WORK/study.jsonl" "$OUT"/
}

form() { # form NAME VARIABLE=VALUE...: the baseline alone, as a first trial with its natural cycles
  local name=$1 seconds=$(($(left) - 15)); shift
  [ "$seconds" -ge 30 ] || { say "no $name: $seconds s are left"; return; }
  [ "$seconds" -le "$FORM_S" ] || seconds=$FORM_S
  VARIABLES=("$@"); start "$name" "$seconds" --max-trials 1; VARIABLES=()
  "$TOOL" -m benchmarks.gpu.study_table "$HOME_OF" "$name" "$WORK/$name.jsonl" > "$LOGS/$name-table.md" 2> "$LOGS/table.err"
  [ -f "$WORK/$name.jsonl" ] && cp -f "$WORK/$name.jsonl" "$OUT"/
}

forms() { # a trial outlasts its budget by 30 s before it is stopped; its cycles are kept
  FORM_S=$((LIMIT / (${#SHORT} ? 6 : 8)))
  form baseline-expandable-segments PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
  [ -z "$SHORT" ] || form baseline-as-it-is    # else the study's own first trial is that
}

rounds() {
  local seconds=$(left)
  case " ${STAGES#*rounds} " in *" tests "*) seconds=$((seconds - TESTS_S)) ;; esac
  [ "$seconds" -ge 40 ] || { say "no rounds: $(left) s are left"; return; }
  stage rounds "$seconds" "$TOOL" -m benchmarks.gpu.rounds "$HOME_OF" study "$((seconds - 5))" "$WORK/rounds.jsonl"
}

tests() {
  [ "$(left)" -ge 45 ] || { say "no GPU tests: $(left) s are left"; return; }
  stage tests "$(left)" env AUTOTUNE_TEST_PYTHON="$PYTHON" "$TOOL" -m pytest -q -rs -p no:cacheprovider tests/gpu
}

visit() {
  say "begins: $LIMIT s for $STAGES; $(nproc) cores"
  command -v nvidia-smi > /dev/null && nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | tee -a "$LOGS/visit.log"
  if [ -n "$PACKAGES" ]; then
    export KIT=$WORK/kit SITE=$WORK/site-packages PY=$PYTHON
    bash "$PACKAGES/unpack.sh" > "$LOGS/unpack.log" 2>&1 || { say "not unpacked: $(tail -n 1 "$LOGS/unpack.log")"; exit 1; }
    . "$KIT/env.sh"; unset PYTHONPATH
    (cd "$ROOT" && "$PYTHON" -m benchmarks.gpu.visit environment "$WORK/env" "$SITE") || { say "no environment"; exit 1; }
    PYTHON=$WORK/env/bin/python TOOL=$WORK/env/bin/python PATH=$WORK/env/bin:$PATH
    say "packages unpacked"
  fi
  PYTHON=$(command -v "$PYTHON") && TOOL=$(command -v "$TOOL") || { echo "error: PYTHON or TOOL names no interpreter" >&2; exit 2; }
  cd "$ROOT" || exit 1
  "$TOOL" -m benchmarks.gpu.visit inputs "$WORK" "$ARCH" "$PROMPT" > "$LOGS/inputs.log" 2>&1 \
    && "$PYTHON" benchmarks/gpu/random_model.py "$WORK/recipe.json" "$WORK/model" >> "$LOGS/inputs.log" 2>&1
  [ -d "$WORK/model" ] || { say "no model: $(tail -n 1 "$LOGS/inputs.log")"; exit 1; }
  say "model and prompts are there"
  (while sleep "$COPY_S"; do copied; done) & COPIER=$!
  for one in $STAGES; do
    case $one in
      study | forms | rounds | tests) "$one" ;;
      *) echo "error: STAGES: $one is none of study, forms, rounds, tests" >&2; exit 2 ;;
    esac
  done
}

visit
