#!/usr/bin/env bash
# From a fresh clone to a training run: installs the needed packages, builds, and runs `brim train` with the arguments.
# Without arguments it trains cnn on Fashion-MNIST.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

"$root/scripts/setup.sh"
"$root/scripts/build.sh" release -DBRIM_TESTS=OFF
exec "$root/build/release/bin/brim" train "$@"
