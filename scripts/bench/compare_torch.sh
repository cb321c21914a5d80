#!/usr/bin/env bash
# brim beside PyTorch, in one run: the same network, micro-batch 128, AdamW, data and number of threads, turn by turn, so
# that what else the machine does meets both. Prints samples/s, peak resident memory and time to the first step.
#
#   scripts/bench/compare_torch.sh [brim's overrides]
#
#   STEPS=120  ROUNDS=5  THREADS=2       how long, how often, on how many threads
#   MODES="eager channels_last compile"  what of PyTorch (default: eager)
#   BRIM_TORCH_PYTHON=...                a Python that has PyTorch; else one is made in ~/.cache/brim/torch (network)
#   BRIM_BINARY=...                      a built brim; else build/release is built
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

brim=$("$root/scripts/bench/brim_binary.sh")

python=$("$root/scripts/bench/torch_python.sh")

exec python3 "$root/scripts/bench/compare_torch.py" --brim "$brim" --python "$python" --steps "${STEPS:-120}" \
  --rounds "${ROUNDS:-5}" --threads "${THREADS:-2}" --modes "${MODES:-eager}" -- "$@"
