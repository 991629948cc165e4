# shellcheck shell=bash
# What the scripts share: messages, and installing what a fresh machine lacks. To be sourced;
# the sourcing script sets ROOT.

say() { printf '%s: %s\n' "$(basename "$0" .sh)" "$*" >&2; }
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

# A linker, Python with pip, and what fetching needs.
ensure_system() {
  local missing=()
  command -v cc >/dev/null || missing+=(gcc libc6-dev) # Rust links through it
  command -v python3 >/dev/null || missing+=(python3)
  python3 -m pip --version >/dev/null 2>&1 || missing+=(python3-pip)
  command -v flock >/dev/null || missing+=(util-linux)
  if ((${#missing[@]})); then
    install_packages "${missing[@]}"
  fi
}

# Whether the Rust on the path is at least as new as Cargo.toml asks for.
rust_is_new_enough() {
  command -v cargo >/dev/null && command -v rustc >/dev/null || return 1
  local needed found
  needed="$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$ROOT/Cargo.toml" | head -n 1)"
  found="$(rustc --version | cut -d' ' -f2)"
  [[ "$(printf '%s\n%s\n' "$needed" "${found%%-*}" | sort -V | head -n 1)" == "$needed" ]]
}

# Rust: what is there, else Debian's packages of a current one.
ensure_rust() {
  if ! command -v cargo >/dev/null && [[ -x "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" ]]; then
    PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
  fi
  if rust_is_new_enough; then
    return
  fi
  if command -v rustup >/dev/null; then
    die "Rust is too old: rustup update stable"
  fi
  install_packages rustc-web cargo-web
  hash -r
  rust_is_new_enough || die "Rust is too old, and Debian's is no newer: install a current one"
}

# Builds one of this tree's programs and puts its path in `built`.
build_program() {
  cargo build --release --locked --bin "$1"
  built="$(cargo metadata --format-version 1 --no-deps --locked |
    python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])')/release/$1"
}

# A C++ compiler, CMake and Ninja; the last two, where no package manager brings them, through pip
# into a folder of ours.
ensure_cxx() {
  local tools="$1" missing=()
  command -v "${CXX:-c++}" >/dev/null || install_packages g++
  PATH="$PATH:$tools/bin"
  command -v cmake >/dev/null || missing+=(cmake)
  command -v ninja >/dev/null || missing+=(ninja-build)
  if ((${#missing[@]} == 0)) || (install_packages "${missing[@]}"); then
    hash -r
    return
  fi
  say "taking cmake and ninja from pip instead"
  rm -rf -- "$tools"
  if ! { "$PYTHON" -m venv --without-pip "$tools" &&
    "$PYTHON" -m pip --disable-pip-version-check --python "$tools" install cmake ninja; } >&2; then
    die "cmake and ninja could not be installed; install them by hand and run this again"
  fi
  hash -r
}

# Fetches or generates the models that the chosen workloads need and that are not there, by the
# commands of the list, which name scripts of this tree and emel-bench (`bench`).
obtain_models() {
  local name command
  while IFS=$'\t' read -r name command <&3; do
    say "model $name: $command"
    (cd "$ROOT" && PATH="$(dirname "$bench"):$PATH" bash -euc "$command")
  done 3< <("$bench" list --missing "$@")
}
