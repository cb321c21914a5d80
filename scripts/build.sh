#!/usr/bin/env bash
# build.sh [--configure] PRESET [CMAKE OPTION]...: builds build/PRESET, quietly unless something is wrong. The options
# apply to a new folder, or with --configure, so a folder that was set up for the tests keeps its own. BUILD_TARGETS
# names ninja's targets; the default is all.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
configure=no
if [[ ${1:-} == --configure ]]; then
  configure=yes
  shift
fi
preset=${1:?"usage: scripts/build.sh [--configure] PRESET [CMAKE OPTION]..."}
shift
folder=build/$preset

if [[ $configure == yes || ! -e $folder/build.ninja ]]; then
  [[ -e $folder/build.ninja ]] || echo "building brim in $folder" >&2
  mkdir -p "$folder"
  if ! cmake --preset "$preset" "$@" >"$folder/configure.log" 2>&1; then
    cat "$folder/configure.log" >&2
    echo "build: cmake could not configure $folder" >&2
    exit 1
  fi
fi
read -ra targets <<<"${BUILD_TARGETS:-}"
ninja -C "$folder" --quiet "${targets[@]}" | sed "/^ninja: no work to do\\.\$/d"
