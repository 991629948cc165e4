# shellcheck shell=bash
# Downloading through pip into a cache keyed by hash, with room, locks and retries seen to. To be
# sourced after lib.sh; the sourcing script sets CACHE and PYTHON, and keeps its locks in
# descriptors 8 and 9, which downloads do not inherit.

readonly ATTEMPTS=3

# Source distributions that more than one script takes from, as "package version archive sha256
# bytes".
# shellcheck disable=SC2034 # for the sourcing scripts
readonly LLAMA_CPP_ARCHIVE="llama-cpp-python 0.3.36 llama_cpp_python-0.3.36.tar.gz \
832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e 76589250"

mebibytes() { printf '%d.%d MiB' $(($1 / 1048576)) $(($1 % 1048576 * 10 / 1048576)); }

sha256_of() { sha256sum -- "$1" | cut -d' ' -f1; }

# Fails early when a folder's disk has not the room.
need_room() {
  local folder="$1" bytes="$2" free
  free="$(df --output=avail -B1 -- "$folder" | tail -n 1)"
  if ((free < bytes)); then
    die "$folder: $(mebibytes "$bytes") are needed, $(mebibytes "$free") are free; free some" \
      "space, or set EMEL_MODELS_DIR and EMEL_CACHE_DIR to another disk"
  fi
}

# Waits until no other run works in a folder; held until this one ends.
lock() {
  local descriptor="$1" folder="$2"
  mkdir -p -- "$folder" 2>/dev/null || die "cannot create $folder; check who may write there"
  { eval "exec $descriptor>\"\$folder/.lock\""; } 2>/dev/null ||
    die "cannot write to $folder; check who may write there"
  if ! flock --nonblock "$descriptor"; then
    say "another run works in $folder; waiting for it"
    flock "$descriptor"
  fi
  # Whoever left these was killed: the lock is ours.
  rm -rf -- "$folder"/.partial.*
}

# The cache, unless one was named: the user's, or where that cannot be written, the folder given.
choose_cache() {
  local otherwise="$1"
  if [[ -n "$CACHE" ]]; then
    return
  fi
  CACHE="${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/emel"
  if ! { mkdir -p -- "$CACHE" && [[ -w "$CACHE" ]]; } 2>/dev/null; then
    CACHE="$otherwise"
  fi
}

# The source distribution is wanted for its files alone, but pip asks it for metadata, which
# would first fetch a build system. This answers in its stead.
metadata_backend() {
  local folder="$1" package="$2" version="$3"
  mkdir -p "$folder/scikit_build_core"
  : >"$folder/scikit_build_core/__init__.py"
  cat >"$folder/scikit_build_core/build.py" <<PY
import os


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    name = "${package//-/_}-$version.dist-info"
    os.mkdir(os.path.join(metadata_directory, name))
    with open(os.path.join(metadata_directory, name, "METADATA"), "w") as file:
        file.write("Metadata-Version: 2.1\nName: $package\nVersion: $version\n")
    return name
PY
}

# Downloads one archive into a folder.
pip_download() {
  local package="$1" version="$2" archive="$3" folder="$4"
  local options=(--no-deps --no-cache-dir --disable-pip-version-check --retries 2 --timeout 30)
  if [[ "$archive" == *.whl ]]; then
    TMPDIR="$folder" "$PYTHON" -m pip download "${options[@]}" --only-binary :all: \
      --dest "$folder" "$package==$version" >&2 8>&- 9>&-
    return
  fi
  metadata_backend "$folder/backend" "$package" "$version"
  TMPDIR="$folder" PYTHONPATH="$folder/backend" "$PYTHON" -m pip download "${options[@]}" \
    --no-build-isolation --no-binary "$package" \
    --dest "$folder" "$package==$version" >&2 8>&- 9>&-
}

# Prints the path of a right archive, from the cache or downloaded.
obtain() {
  local package="$1" version="$2" archive="$3" sha256="$4" bytes="$5"
  local kept="$CACHE/$sha256-$archive" folder attempt
  if [[ -f "$kept" ]]; then
    if [[ "$(sha256_of "$kept")" == "$sha256" ]]; then
      echo "$kept"
      return
    fi
    say "$archive is broken in the cache; fetching it again"
    rm -f -- "$kept"
  fi
  for ((attempt = 1; attempt <= ATTEMPTS; attempt++)); do
    need_room "$CACHE" $((2 * bytes)) # pip writes it once and copies it
    say "downloading $archive ($(mebibytes "$bytes"))"
    folder="$(mktemp -d "$CACHE/.partial.XXXXXX")"
    if pip_download "$package" "$version" "$archive" "$folder"; then
      if [[ ! -f "$folder/$archive" ]]; then
        say "pip brought no $archive"
      elif [[ "$(sha256_of "$folder/$archive")" == "$sha256" ]]; then
        mv -f -- "$folder/$archive" "$kept"
        rm -rf -- "$folder"
        echo "$kept"
        return
      else
        say "$archive is not what it should be (wrong sha256); not used"
      fi
    fi
    rm -rf -- "$folder"
    if ((attempt < ATTEMPTS)); then
      say "attempt $attempt of $ATTEMPTS failed; trying again"
      sleep "$attempt"
    fi
  done
  die "could not download $archive; run this again to go on: what has arrived is kept"
}
