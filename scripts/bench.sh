#!/usr/bin/env bash
# Measures EMEL and llama.cpp (and ik_llama.cpp, where it is built) side by side and rewrites
# docs/benchmarks.md: builds EMEL and llama.cpp, fetches or generates the models, runs the published
# suite in both lanes, and prompts with each instruction set below the best against a llama.cpp
# built for the same, checks the records, prints the targets and the table.
set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
SUITE=published
RESULTS="$ROOT/bench-results"
# Seconds of timed runs a workload and lane; two runs of each engine are made in any case, or one if
# that takes two minutes.
BUDGET=60
# Instruction sets that prompts are measured with too, and llama.cpp's build for each.
LEVELS=(avx512 avxvnni avx2)
declare -A BUILD=([avx512]=no-amx [avxvnni]=avxvnni [avx2]=avx2)

usage() {
  cat <<TEXT
usage: scripts/bench.sh [--suite NAME] [--model NAME] [--without ID] [--from FILE] [--no-docs]
                        [--budget SECONDS] [EMEL-BENCH-RUN-ARGUMENT...]

  --suite NAME   which workloads (default: $SUITE; emel-bench list shows all)
  --model NAME   of these, only those of one model
  --without ID   of these, not this one (may be given several times); the page says which are missing
  --budget N     seconds of timed runs a workload and lane (default: $BUDGET)
  --from FILE    write the page from these records instead of measuring
  --no-docs      leave docs/benchmarks.md as it is

Other arguments go to \`emel-bench run\`, for example: scripts/bench.sh --model gemma3_270m --lane single --runs 5
Records and traces go to bench-results/. An ik_llama.cpp that has been built
(scripts/reference/build.sh ik_llama.cpp) is measured too, unless --reference says otherwise. The
published suite takes an hour and a half on two cores, with ik_llama.cpp and the instruction sets half
an hour more each; every run says at its beginning how long it will take, and with --dry-run measures
nothing.
TEXT
}

# shellcheck source=scripts/lib.sh
source "$ROOT/scripts/lib.sh"

# The workloads' ids of a suite, but for those left out.
workloads() {
  local table id
  table="$("$bench" list workloads --format md --suite "$1" "${model[@]}")" || return
  while read -r id; do
    [[ " ${without[*]} " == *" $id "* ]] || printf '%s\n' "$id"
  done < <(sed -n 's/^| \([a-z0-9_]*_v[0-9]*\) |.*/\1/p' <<<"$table")
}

# Runs a suite with these arguments.
measure() {
  local suite="$1" ids id chosen=()
  shift
  ids="$(workloads "$suite")"
  [[ -n "$ids" ]] || die "no workload of suite '$suite' is left"
  while read -r id; do
    chosen+=(--workload "$id")
  done <<<"$ids"
  "$bench" run "${chosen[@]}" -o "$records" "$@"
}

# Adds prompts with each instruction set that this processor has, against a llama.cpp built for it.
measure_levels() {
  local level ids refusal
  for level in "${LEVELS[@]}"; do
    ids="$(workloads "isa_$level")"
    [[ -n "$ids" ]] || continue
    if ! refusal="$("$bench" run --suite "isa_$level" "${model[@]}" --isa "$level" \
      --reference none --dry-run 2>&1)"; then
      [[ "$refusal" == *"this processor has no $level"* ]] || die "$refusal"
      say "this processor has no $level instructions: left out"
      continue
    fi
    "$ROOT/scripts/reference/build.sh" llama.cpp --build "${BUILD[$level]}" >/dev/null
    measure "isa_$level" --append --reference "llama.cpp-$level" "$@"
  done
}

# What to measure against, unless the arguments say: llama.cpp, and what else is built.
choose_references() {
  local argument
  for argument in "$@"; do
    case "$argument" in
      -r* | --reference | --reference=*) return ;;
    esac
  done
  references=(--reference llama.cpp)
  if "$bench" list backends --format md | grep -F '| ik_llama.cpp |' | grep -qF '(built)'; then
    references+=(--reference ik_llama.cpp)
  else
    say "ik_llama.cpp is not built and is left out (scripts/reference/build.sh ik_llama.cpp)"
  fi
}

write_docs() {
  local page="$ROOT/docs/benchmarks.md" records="$1" new
  new="$(mktemp "$page.XXXXXX")"
  # shellcheck disable=SC2064 # the name of now
  trap "rm -f -- '$new'" EXIT
  {
    cat <<'TEXT'
# Benchmarks

Written by `scripts/bench.sh`, which builds EMEL and llama.cpp on this machine and measures them
side by side, with ik_llama.cpp where it is built: EMEL and the references take turns, run by run,
after a warm-up. A ratio is the median of the pairs' ratios, with its range; above 1 EMEL is faster.
The reference is each time the fastest of those measured, in the fastest of its configurations (flash
attention on and off, AMX and repacked weights on and off), chosen by trials for what the workload is
about: prefill, decode, or the time from the process's start to the first token. Trials over a
prompt of more than 512 tokens begin with its first 512; of each kind of attention the fastest is then
tried over as much of it as takes 25 seconds. Each engine runs three times, twice where three take more
than the budget, once where one takes more than two of it (its ratio then has no range).
Absolute speeds are this machine's, and this hour's.

TEXT
    if [[ -f "$records.command" ]]; then
      # shellcheck disable=SC2016 # Markdown's quotes
      printf 'Measured by `%s` (without `--budget`, that is %s seconds).\n\n' \
        "$(<"$records.command")" "$BUDGET"
    fi
    cat <<'TEXT'
## Targets

What EMEL is to reach (`benchdata/targets.json`). Speeds are ratios to the reference named, at its
best. A share of bandwidth is the bytes of weights and cache that decode reads in a second, over what
this machine was measured to read with as many threads just before and after; `possible` is the ratio
of a decode that reads as fast as that, by the reference's share. Peak memory is of the process, over the model's file with an f16 cache of the context, or over the reference's; "start to first token" is from
the start of the process, with the file in the page cache: of `cold_start` EMEL packs the weights, of
`packed_start` it maps a packed copy that an earlier start has made (`--packed-cache`). Workloads that
name an instruction set have EMEL keep to it (`--isa`), against a llama.cpp built for the same.

TEXT
    "$bench" report "$records" --targets --format md
    cat <<'TEXT'

## Everything

TEXT
    "$bench" report "$records" --format md
  } >"$new"
  chmod 644 "$new"
  mv -f -- "$new" "$page"
  say "wrote docs/benchmarks.md"
}

main() {
  local docs=yes budget="$BUDGET" arguments=() from='' command="scripts/bench.sh $*" is_dry
  model=()
  references=()
  without=()
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
      --without)
        without+=("${2:?--without needs the id of a workload}")
        shift
        ;;
      --from)
        from="$(realpath -- "${2:?--from needs a file}")"
        shift
        ;;
      --budget)
        budget="${2:?--budget needs a number of seconds}"
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
  EMEL_MODELS_DIR="$(realpath -m -- "${EMEL_MODELS_DIR:-$ROOT/models}")"
  export EMEL_MODELS_DIR
  ensure_system
  ensure_rust
  cd "$ROOT"
  say "building emel-bench"
  build_program emel-bench
  bench="$built"
  records="${from:-$RESULTS/$SUITE.jsonl}"
  if [[ -z "$from" ]]; then
    "$ROOT/scripts/reference/build.sh" llama.cpp >/dev/null
    obtain_models --suite "$SUITE" "${model[@]}"
    choose_references "${arguments[@]}"
    mkdir -p "$RESULTS"
    arguments+=(--budget "$budget")
    is_dry=no
    [[ " ${arguments[*]} " == *" --dry-run "* ]] && is_dry=yes
    if [[ "$is_dry" == no ]]; then
      rm -f -- "$records.command"
    fi
    measure "$SUITE" "${references[@]}" "${arguments[@]}"
    if [[ "$SUITE" == published ]] && ((${#references[@]})); then
      measure_levels "${arguments[@]}"
    fi
    if [[ "$is_dry" == yes ]]; then
      return
    fi
    printf '%s\n' "${command% }" >"$records.command"
  fi
  "$bench" validate "$records"
  if [[ "$SUITE" == published ]]; then
    "$bench" report "$records" --targets
  fi
  if [[ "$docs" == yes ]]; then
    write_docs "$records"
  fi
}

main "$@"
