#!/usr/bin/env bash
# Prints the first cargo that is new enough (rust-minimum in tools/dependencies.txt): that of PATH, that of rustup, or one of
# Ubuntu's versioned packages, which lies beside its rustc outside PATH.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
minimum=$(awk '$1 == "rust-minimum" { print $2 }' "$here/dependencies.txt")
for cargo in "$(command -v cargo || true)" "$HOME/.cargo/bin/cargo" /usr/lib/rust-*/bin/cargo; do
  found=$("$cargo" --version 2> /dev/null | awk '{ print $2 }') || continue
  if [ -n "$found" ] && [ "$(printf '%s\n' "$minimum" "$found" | sort -V | head -n 1)" = "$minimum" ]; then
    echo "$cargo"
    exit
  fi
done
echo "find_cargo: no cargo of at least $minimum; install one with rustup" >&2
exit 1
