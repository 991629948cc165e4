#!/usr/bin/env bash
# Measures EMEL and llama.cpp side by side and rewrites docs/benchmarks.md: builds both, fetches or
# generates the models, runs the published suite in both lanes, checks the records, prints the
# table.
set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
SUITE=published
RESULTS="$ROOT/bench-results"

usage() {
  cat <<TEXT
usage: scripts/bench.sh [--suite NAME] [--model NAME] [--no-docs] [EMEL-BENCH-RUN-ARGUMENT...]

  --suite NAME   which workloads (default: $SUITE; emel-bench list shows all)
  --model NAME   of these, only those of one model
  --no-docs      leave docs/benchmarks.md as it is

Other arguments go to \`emel-bench run\`, for example: scripts/bench.sh --model gemma3_270m --lane single --runs 5
Records and traces go to bench-results/. The published suite takes about half an hour on two cores.
TEXT
}

# shellcheck source=scripts/lib.sh
source "$ROOT/scripts/lib.sh"

# Fetches or generates the models that the chosen workloads need and that are not there, by the
# commands of the list, which name scripts of this tree and emel-bench.
obtain_models() {
  local name command
  while IFS=$'\t' read -r name command <&3; do
    say "model $name: $command"
    (cd "$ROOT" && PATH="$(dirname "$bench"):$PATH" bash -euc "$command")
  done 3< <("$bench" list --missing "${selection[@]}")
}

write_docs() {
  local page="$ROOT/docs/benchmarks.md" new
  new="$(mktemp "$page.XXXXXX")"
  # shellcheck disable=SC2064 # the name of now
  trap "rm -f -- '$new'" EXIT
  {
    cat <<'TEXT'
# Benchmarks

Written by `scripts/bench.sh`, which builds EMEL and llama.cpp on this machine and measures them
side by side: EMEL and the reference take turns, run by run, after a warm-up. A ratio is the median
of the pairs' ratios, with its range; above 1 EMEL is faster. The reference is each time the
fastest of its configurations (flash attention on and off, AMX and repacked weights on and off), in
prefill and in decode apart. Absolute speeds are this machine's, and this hour's.

TEXT
    "$bench" report "$RESULTS/$SUITE.jsonl" --format md
  } >"$new"
  chmod 644 "$new"
  mv -f -- "$new" "$page"
  say "wrote docs/benchmarks.md"
}

main() {
  local docs=yes arguments=() model=()
  selection=()
  while (($#)); do
    case "$1" in
      -h | --help)
        usage
        return
        ;;
      --suite)
        SUITE="${2:?--suite needs a name}"
        shift
        ;;
      --model)
        model=(--model "${2:?--model needs a name}")
        shift
        ;;
      --no-docs) docs=no ;;
      *) arguments+=("$1") ;;
    esac
    shift
  done
  # Half the published set, or another one, is not what the page says it is.
  if ((${#arguments[@]} + ${#model[@]})) || [[ "$SUITE" != published ]]; then
    docs=no
  fi
  selection=(--suite "$SUITE" "${model[@]}")
  EMEL_MODELS_DIR="$(realpath -m -- "${EMEL_MODELS_DIR:-$ROOT/models}")"
  export EMEL_MODELS_DIR
  ensure_system
  ensure_rust
  cd "$ROOT"
  say "building emel-bench"
  build_program emel-bench
  bench="$built"
  "$ROOT/scripts/reference/build.sh" llama.cpp >/dev/null
  obtain_models
  mkdir -p "$RESULTS"
  "$bench" run "${selection[@]}" -o "$RESULTS/$SUITE.jsonl" "${arguments[@]}"
  "$bench" validate "$RESULTS/$SUITE.jsonl"
  if [[ "$docs" == yes ]]; then
    write_docs
  fi
}

main "$@"
