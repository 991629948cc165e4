#!/usr/bin/env bash
# Compares EMEL with llama.cpp on the real models over the prompts in benchdata/prompts/parity and
# rewrites docs/parity.md: where they part and why, llama.cpp against itself, and how far each lies
# from exact arithmetic.
set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
RESULTS="$ROOT/parity-results"
PROMPTS="$ROOT/benchdata/prompts/parity"
MODELS=(SmolLM2-135M-Instruct.Q4_1 gemma-3-270m-Q4_K_M)

usage() {
  cat <<TEXT
usage: scripts/parity.sh [--no-docs] [EMEL-COMPARE-RUN-ARGUMENT...]

  --no-docs   leave docs/parity.md as it is

Other arguments go to \`emel-compare run\`, for example: scripts/parity.sh --no-docs -n 32
Reports (JSON) go to parity-results/. Takes about half an hour on two cores.
TEXT
}

# shellcheck source=scripts/lib.sh
source "$ROOT/scripts/lib.sh"

# Runs one comparison; that streams part is what we came for.
compare() {
  local status=0
  "$compare" run "$@" || status=$?
  if ((status != 0 && status != 3)); then
    die "emel-compare ended with $status"
  fi
}

main() {
  local docs=yes arguments=() model prompt name
  while (($#)); do
    case "$1" in
      -h | --help)
        usage
        return
        ;;
      --no-docs) docs=no ;;
      *) arguments+=("$1") ;;
    esac
    shift
  done
  if ((${#arguments[@]})); then
    docs=no # not what the page says it is
  fi
  EMEL_MODELS_DIR="$(realpath -m -- "${EMEL_MODELS_DIR:-$ROOT/models}")"
  export EMEL_MODELS_DIR
  ensure_system
  ensure_rust
  cd "$ROOT"
  say "building emel-compare"
  build_program emel-compare
  compare="$built"
  "$ROOT/scripts/reference/build.sh" llama.cpp >/dev/null
  "$ROOT/scripts/fetch_models.sh" smollm2-135m gemma3-270m
  mkdir -p "$RESULTS"
  for model in "${MODELS[@]}"; do
    for prompt in "$PROMPTS"/*.txt; do
      name="$model.$(basename "$prompt" .txt)"
      say "$name"
      compare -m "$EMEL_MODELS_DIR/$model.gguf" -f "$prompt" --oracle-positions 16 --json \
        "${arguments[@]}" >"$RESULTS/$name.json"
    done
  done
  python3 "$ROOT/scripts/parity_table.py" "$RESULTS" >"$RESULTS/parity.md"
  if [[ "$docs" == yes ]]; then
    cp -- "$RESULTS/parity.md" "$ROOT/docs/parity.md"
    say "wrote docs/parity.md"
  fi
}

main "$@"
