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

say() { printf '%s\n' "quickstart: $*" >&2; }
die() {
  say "$*"
  exit 1
}

# Installs Debian packages, as root or through sudo, or says what to type.
install_packages() {
  local as_root=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null || die "missing: $*; as root: apt-get install $*"
    as_root=(sudo)
  fi
  command -v apt-get >/dev/null || die "missing: $*; install them with your package manager"
  say "installing $* (apt-get)"
  if ! "${as_root[@]}" apt-get update -q >&2; then
    say "apt-get update failed; trying with the lists that are there"
  fi
  "${as_root[@]}" apt-get install -y -q "$@" >&2 || die "apt-get could not install $*"
}

check_system() {
  local missing=()
  command -v cc >/dev/null || missing+=(gcc libc6-dev) # Rust links through it
  command -v python3 >/dev/null || missing+=(python3)
  python3 -m pip --version >/dev/null 2>&1 || missing+=(python3-pip)
  command -v flock >/dev/null || missing+=(util-linux)
  if ((${#missing[@]})); then
    install_packages "${missing[@]}"
  fi
}

check_rust() {
  if ! command -v cargo >/dev/null && [[ -x "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" ]]; then
    PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
  fi
  command -v cargo >/dev/null || die "Rust is missing; install it as https://rustup.rs says"
  local needed found
  needed="$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$ROOT/Cargo.toml" | head -n 1)"
  found="$(rustc --version | cut -d' ' -f2)"
  if [[ "$(printf '%s\n%s\n' "$needed" "${found%%-*}" | sort -V | head -n 1)" != "$needed" ]]; then
    die "Rust $found is too old, $needed or newer is needed: rustup update stable"
  fi
}

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
  local prompt="${1:-$DEFAULT_PROMPT}" models target
  check_system
  check_rust
  models="$(realpath -m -- "${EMEL_MODELS_DIR:-$ROOT/models}")"
  EMEL_MODELS_DIR="$models" "$ROOT/scripts/fetch_models.sh" smollm2-135m

  say "building (the first time takes a minute or two)"
  cd "$ROOT"
  cargo build --release --locked --bin emel-run
  target="$(cargo metadata --format-version 1 --no-deps --locked |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')"
  local run="$target/release/emel-run"

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
