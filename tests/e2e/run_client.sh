#!/bin/sh
# Runs a client's test with the interpreter and packages that belong to it: run_client.sh python|node
set -eu
here=$(dirname "$0")
assets=${THALWEG_TEST_ASSETS:-}

case $1 in
python)
  python=${THALWEG_PYTHON:-$assets/python/bin/python}
  [ -x "$python" ] || python=python3
  exec "$python" "$here/openai_python_test.py"
  ;;
node)
  node=$assets/python/bin/node
  [ -x "$node" ] || node=$(command -v node) || { echo "skipped: node is not installed"; exit 77; }
  THALWEG_NODE_MODULES=${THALWEG_NODE_MODULES:-$assets/node_modules} exec "$node" "$here/openai_node_test.mjs"
  ;;
esac
