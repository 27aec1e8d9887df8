#!/usr/bin/env bash
# Runs a command of nvcc, and fails where ptxas had to serialise wgmma instructions: it only tells of it (C7510, C7511 and so
# on, by the reason), and the kernel would be right and several times slower.
set -uo pipefail
exec 3>&1
told=$("$@" 2>&1 >&3)
status=$?
[ -z "$told" ] || printf '%s\n' "$told" >&2
if [ $status -eq 0 ] && [[ $told == *"wgmma.mma_async instructions are serialized"* ]]; then
  echo "error: ptxas serialised wgmma instructions (see above)" >&2
  exit 1
fi
exit $status
