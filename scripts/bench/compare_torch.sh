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

brim=${BRIM_BINARY:-}
if [[ -z $brim ]]; then
  "$root/scripts/setup.sh"
  "$root/scripts/build.sh" release
  brim=$root/build/release/bin/brim
fi

python=${BRIM_TORCH_PYTHON:-}
if [[ -z $python ]]; then
  venv=${XDG_CACHE_HOME:-$HOME/.cache}/brim/torch
  python=$venv/bin/python
  if ! "$python" -c 'import torch' 2>/dev/null; then
    echo "bench: installing PyTorch for the CPU in $venv" >&2
    python3 -m venv "$venv" || { echo "bench: run: sudo apt-get install python3-venv" >&2; exit 1; }
    # The build for CPUs takes less memory and disk; where only the package index can be reached, its build does.
    "$venv/bin/pip" install --quiet --index-url https://download.pytorch.org/whl/cpu torch 2>/dev/null ||
      "$venv/bin/pip" install --quiet torch
  fi
fi

exec python3 "$root/scripts/bench/compare_torch.py" --brim "$brim" --python "$python" --steps "${STEPS:-120}" \
  --rounds "${ROUNDS:-5}" --threads "${THREADS:-2}" --modes "${MODES:-eager}" -- "$@"
