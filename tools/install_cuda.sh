#!/usr/bin/env bash
# Installs the CUDA tool chain that tools/dependencies.txt pins into a folder, from the Python package index: no root, no
# driver and no GPU needed. Does nothing, quickly, when it is there.
# usage: install_cuda.sh FOLDER
# The toolkit's root is then FOLDER/nvidia/cu13. Nothing half-installed ever has the final name.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

fail() { echo "install_cuda: $*" >&2; exit 1; }

[ $# -eq 1 ] || fail "usage: install_cuda.sh FOLDER"
folder=$1
[ "$(uname -sm)" = "Linux x86_64" ] || fail "found $(uname -sm); the pinned tool chain is for Linux x86_64"

requirements=$(awk '$1 == "cuda" { print $2 "==" $3 " --hash=sha256:" $4 }' "$here/dependencies.txt")
[ -n "$requirements" ] || fail "tools/dependencies.txt pins no cuda packages"
# This script's own text belongs to the stamp: what it adds to the wheels below may change, too.
wanted=$(cat <(echo "$requirements") "$here/install_cuda.sh" | sha256sum)
if [ "$(cat "$folder/installed" 2> /dev/null)" = "$wanted" ]; then
  exit 0
fi

python3 -m pip --version > /dev/null 2>&1 || fail "python3 with pip is needed; run \`make deps\`"
echo "installing the CUDA tool chain into $folder (110 MB to fetch)"
mkdir -p "$(dirname "$folder")"
scratch=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
# pip keeps one folder per name only if all packages that share it come in one call.
python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --only-binary=:all: \
  --require-hashes --target "$scratch" --requirement /dev/stdin <<< "$requirements" ||
  fail "the packages cannot be installed; is a package index reachable?"
root=$scratch/nvidia/cu13
[ -x "$root/bin/nvcc" ] || fail "the packages hold no nvidia/cu13/bin/nvcc; they have changed"
ln -s lib "$root/lib64" # where nvcc and CMake look
echo "$wanted" > "$scratch/installed"
chmod 755 "$scratch" # mktemp's is for its maker alone
rm -rf "$folder"
mv "$scratch" "$folder"
trap - EXIT
