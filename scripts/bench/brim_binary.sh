#!/usr/bin/env bash
# Prints the path of a brim: $BRIM_BINARY, or that of build/release, after building it.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
brim=${BRIM_BINARY:-}
if [[ -z $brim ]]; then
  "$root/scripts/setup.sh" >&2
  "$root/scripts/build.sh" release >&2
  brim=$root/build/release/bin/brim
fi
echo "$brim"
