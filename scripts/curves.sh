#!/usr/bin/env bash
# Measures how times grow (a prompt token by the prompt's length, a generated token by the depth, a
# load by the file's size) and rewrites docs/curves.md and the pictures in docs/curves.
set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
RESULTS="$ROOT/bench-results"
RECORDS="$RESULTS/curves.jsonl"
# Where llama.cpp takes minutes a run, EMEL runs alone.
LONG='*_growth_16384_*'

usage() {
  cat <<TEXT
usage: scripts/curves.sh [--from FILE] [--no-docs] [EMEL-BENCH-RUN-ARGUMENT...]

  --from FILE   draw these records instead of measuring
  --no-docs     draw into bench-results/curves and leave docs/ as it is

Other arguments go to \`emel-bench run\`, for example: scripts/curves.sh --no-docs -n 1 --model smollm2_135m
Records go to bench-results/curves.jsonl. On two cores it takes about a quarter of an hour; both runs say at
their beginning how long they will take, and with --dry-run nothing else.
TEXT
}

# shellcheck source=scripts/lib.sh
source "$ROOT/scripts/lib.sh"

# The workloads' ids of the suite: those that LONG matches, or the others.
workloads() {
  local id is_long
  while read -r id; do
    is_long=no
    # shellcheck disable=SC2053 # a pattern
    [[ "$id" == $LONG ]] && is_long=yes
    [[ "$is_long" == "$1" ]] && printf '%s\n' "$id"
  done < <("$bench" list workloads --suite curves --format md "${model[@]}" |
    sed -n 's/^| \([a-z0-9_]*_v[0-9]*\) |.*/\1/p')
  return 0
}

# Runs the workloads named on standard input.
measure() {
  local id chosen=()
  while read -r id; do
    chosen+=(--workload "$id")
  done
  ((${#chosen[@]})) || return 0
  "$bench" run "${chosen[@]}" --lane multithreaded --budget 60 -o "$RECORDS" --append "$@"
}

write_page() {
  cat <<'TEXT'
# Growth curves

Written by `scripts/curves.sh`: what a prompt token costs by the prompt's length, what a generated
token costs by the tokens before it, and what a load costs by the file's size, with all of this
machine's cores. Points are medians with the range of the runs; each of llama.cpp's is its fastest
configuration's there. The dashed lines are those of least squares, and below each table stands how
far points lie from them. Attention is linear in the tokens before it, and a straight line in these
pictures is what it should come to.

TEXT
  "$bench" curves "$records" --output "$1" --link "$2"
}

main() {
  local docs=yes arguments=() from='' records page is_dry
  model=()
  while (($#)); do
    case "$1" in
      -h | --help)
        usage
        return
        ;;
      --from)
        from="$(realpath -- "${2:?--from needs a file}")"
        shift
        ;;
      --no-docs) docs=no ;;
      --model)
        model=(--model "${2:?--model needs a name}")
        shift
        ;;
      *) arguments+=("$1") ;;
    esac
    shift
  done
  # Half the points are not what the page says they are.
  if ((${#arguments[@]} + ${#model[@]})); then
    docs=no
  fi
  EMEL_MODELS_DIR="$(realpath -m -- "${EMEL_MODELS_DIR:-$ROOT/models}")"
  export EMEL_MODELS_DIR
  ensure_system
  ensure_rust
  cd "$ROOT"
  say "building emel-bench"
  build_program emel-bench
  bench="$built"
  records="${from:-$RECORDS}"
  if [[ -z "$from" ]]; then
    "$ROOT/scripts/reference/build.sh" llama.cpp >/dev/null
    obtain_models --suite curves "${model[@]}"
    mkdir -p "$RESULTS"
    is_dry=no
    [[ " ${arguments[*]} " == *" --dry-run "* ]] && is_dry=yes
    [[ "$is_dry" == yes ]] || rm -f -- "$RECORDS"
    workloads no | measure "${arguments[@]}"
    workloads yes | measure --reference none "${arguments[@]}"
    if [[ "$is_dry" == yes ]]; then
      return
    fi
    "$bench" validate "$RECORDS"
  fi
  if [[ "$docs" == yes ]]; then
    page="$ROOT/docs/curves.md"
  else
    page="$RESULTS/curves.md"
  fi
  mkdir -p "${page%.md}"
  write_page "${page%.md}" curves >"$page.new"
  mv -f -- "$page.new" "$page"
  say "wrote $page"
}

main "$@"
