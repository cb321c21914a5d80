#!/usr/bin/env bash
# From a fresh clone to a training run: installs what is needed, builds, and ends in `brim train` with the arguments
# given. Without any it trains cnn on Fashion-MNIST.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

"$root/scripts/setup.sh"
"$root/scripts/build.sh" release -DBRIM_TESTS=OFF
exec "$root/build/release/bin/brim" train "$@"
