#!/usr/bin/env bash
# Prints the path of a Python with PyTorch: $BRIM_TORCH_PYTHON, or one that is made in ~/.cache/brim/torch (network).
set -euo pipefail
python=${BRIM_TORCH_PYTHON:-}
if [[ -z $python ]]; then
  venv=${XDG_CACHE_HOME:-$HOME/.cache}/brim/torch
  python=$venv/bin/python
  if ! "$python" -c 'import torch' 2>/dev/null; then
    echo "bench: installing PyTorch for the CPU in $venv" >&2
    python3 -m venv "$venv" || { echo "bench: run: sudo apt-get install python3-venv" >&2; exit 1; }
    # The build for CPUs takes less memory and disk; if only the package index can be reached, its build is used.
    "$venv/bin/pip" install --quiet --index-url https://download.pytorch.org/whl/cpu torch 2>/dev/null ||
      "$venv/bin/pip" install --quiet torch >&2
  fi
fi
echo "$python"
