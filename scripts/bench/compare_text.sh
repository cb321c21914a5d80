#!/usr/bin/env bash
# Compares brim with PyTorch: the same byte-level GPT-2, text, batch, optimizer and schedule, several seeds each. Prints
# the test loss of every run, in nats a byte: the two agree if they differ no more than seeds do.
#
#   scripts/bench/compare_text.sh TEXT [brim's overrides]
#
#   STEPS=400  SEEDS="1 2 3"  THREADS=2
#   BRIM_TORCH_PYTHON=...  a Python with PyTorch; else one is made in ~/.cache/brim/torch (network)
#   BRIM_BINARY=...        a built brim; else build/release is built
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
text=${1:?usage: scripts/bench/compare_text.sh TEXT [overrides]}
shift
brim=$("$root/scripts/bench/brim_binary.sh")
python=$("$root/scripts/bench/torch_python.sh")
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT

for seed in ${SEEDS:-1 2 3}; do
  "$brim" --quiet train model=gpt2_tiny model.context=128 dataset=text dataset.path="$text" dataset.context=128 \
    training.batch_size=8 training.steps="${STEPS:-400}" optimizer.lr=1e-3 optimizer.weight_decay=0.1 \
    schedule.warmup_fraction=0.1 training.clip_norm=1 backend.threads="${THREADS:-2}" seed="$seed" \
    run.dir="$runs/$seed" "$@" >/dev/null
  python3 -c "import json; s = json.load(open('$runs/$seed/summary.json'))
print('brim    seed $seed  test loss', round(s['test_loss'], 4))"
  "$python" "$root/scripts/bench/text_torch.py" "$text" --steps "${STEPS:-400}" --seed "$seed" \
    --threads "${THREADS:-2}" | python3 -c "import json, sys; s = json.load(sys.stdin)
print('PyTorch seed $seed  test loss', round(s['test_loss'], 4))"
done
