#!/usr/bin/env bash
# From a fresh Debian machine with Rust and Python to a model's answer: checks what is needed,
# fetches a small model, builds, and streams the answer to the terminal.
set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
DEFAULT_PROMPT="Explain in two sentences why the sky is blue."
MODEL=SmolLM2-135M-Instruct.Q4_1.gguf

usage() {
  cat <<TEXT
usage: scripts/quickstart.sh ["prompt"]

Without a prompt it asks: $DEFAULT_PROMPT
EMEL_MODELS_DIR says where models go (default: models/ of this tree).
TEXT
}

# shellcheck source=scripts/lib.sh
source "$ROOT/scripts/lib.sh"

main() {
  case "${1:-}" in
    -h | --help)
      usage
      return
      ;;
  esac
  if (($# > 1)); then
    usage >&2
    exit 2
  fi
  local prompt="${1:-$DEFAULT_PROMPT}" models
  ensure_system
  ensure_rust
  models="$(realpath -m -- "${EMEL_MODELS_DIR:-$ROOT/models}")"
  EMEL_MODELS_DIR="$models" "$ROOT/scripts/fetch_models.sh" smollm2-135m

  say "building (the first time takes a minute or two)"
  cd "$ROOT"
  build_program emel-run
  local run="$built"

  say "asking: $prompt"
  "$run" -m "$models/$MODEL" -cnv -st -n 300 --temp 0.2 --seed 1 -p "$prompt" --no-escape
  cat >&2 <<TEXT

The model lies at $models/$MODEL
Try next:
  $run -m $models/$MODEL -cnv          chat with it
  $run -m $models/$MODEL -no-cnv -p "Once upon a time" -n 100
  scripts/fetch_models.sh --list       more models
  $run --help                          every flag
TEXT
}

main "$@"
