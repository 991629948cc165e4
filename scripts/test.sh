#!/usr/bin/env bash
# Runs every test, after fetching what they need. The last line sums up.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: scripts/test.sh [--full] [CARGO-TEST-ARGUMENT...]

  --full    the tests that take long too: the whole determinism matrix (all combinations of
            instruction sets, threads, routes, batch sizes and drafts; other cache types), and
            every f32 through exp; hours on two cores

Other arguments go to `cargo test`, for example: scripts/test.sh --lib gguf::
TEXT
}

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
arguments=()
is_full=no
for argument in "$@"; do
  case "$argument" in
    --full) is_full=yes ;;
    -h | --help)
      usage
      exit 0
      ;;
    *) arguments+=("$argument") ;;
  esac
done

if [[ "$is_full" == yes ]]; then
  [[ " ${arguments[*]} " == *" -- "* ]] || arguments+=(--)
  arguments+=(--include-ignored)
fi

# Tests run in their package's folder, so the path must not depend on ours.
EMEL_MODELS_DIR="$(realpath -m -- "${EMEL_MODELS_DIR:-$ROOT/models}")"
export EMEL_MODELS_DIR
cd "$ROOT"
# shellcheck source=scripts/lib.sh
source "$ROOT/scripts/lib.sh"
ensure_system
ensure_rust
scripts/fetch_models.sh

log="$(mktemp)"
trap 'rm -f -- "$log"' EXIT
begun="$SECONDS"
status=0
cargo test --release --workspace --locked --no-fail-fast "${arguments[@]}" 2>&1 | tee "$log" || status="${PIPESTATUS[0]}"

# Sums of the lines "test result: ok. 12 passed; 0 failed; 1 ignored; ...".
awk -v seconds="$((SECONDS - begun))" -v status="$status" '
  /^test result: / { passed += $4; failed += $6; ignored += $8; programs++ }
  END {
    verdict = status == 0 ? "all good" : (failed ? "FAILED" : "FAILED (did not build or run)")
    printf "tests: %d passed, %d failed, %d ignored in %d programs and %d s: %s\n",
      passed, failed, ignored, programs, seconds, verdict
  }' "$log"
exit "$status"
