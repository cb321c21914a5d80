#!/usr/bin/env bash
# The largest micro-batch under 64 to 1024 MiB, and samples/s with it: brim compared with PyTorch (eager, and
# with checkpointing), on `cnn` and on transformers of 12 blocks, in one run and in turn. Results are cached in
# build/limits.json by brim's build, so an interrupted measurement continues.
#
#   scripts/bench/limits.sh                                        every table, printed
#   scripts/bench/limits.sh --into docs/measurements/PAGE.md       or into a page, replacing its tables
#   scripts/bench/limits.sh --models cnn --limits 64 256 --rounds 0 --contenders "torch eager" "brim auto"
#   scripts/bench/limits.sh -- optimizer.weight_decay=0            brim's overrides
#
#   BRIM_TORCH_PYTHON=...   a Python with PyTorch; else one is made in ~/.cache/brim/torch (network)
#   BRIM_BINARY=...         a built brim; else build/release is built
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
brim=$("$root/scripts/bench/brim_binary.sh")
exec python3 "$root/scripts/bench/limits.py" --brim "$brim" --python "$("$root/scripts/bench/torch_python.sh")" \
  --cache "$root/build/limits.json" "$@"
