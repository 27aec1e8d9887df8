#!/usr/bin/env bash
# The example's answer to a prompt whose continuation is known: "The capital of France is" goes on with " Paris".
set -euo pipefail
[ -n "${THALWEG_TEST_ASSETS:-}" ] || { echo "skipped: THALWEG_TEST_ASSETS is not set" >&2; exit 77; }
answer=$("$1" "$THALWEG_TEST_ASSETS/SmolLM2-135M-Instruct.Q4_1.gguf" 1 504 3575 282 4649 314)
[ "$answer" = "7042 " ] || { echo "expected token 7042, got '$answer'" >&2; exit 1; }
