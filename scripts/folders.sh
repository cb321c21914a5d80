#!/usr/bin/env bash
# Draws the layers of core/'s folders, from cmake/brim_folders.cmake, into docs/ARCHITECTURE.md.
#   scripts/folders.sh           writes the picture
#   scripts/folders.sh --check   exit status 1 with a message if the picture is missing or out of date
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
page=docs/ARCHITECTURE.md

# Folders from the top down, each with an arrow to those directly below it: an arrow never points up.
picture() {
  echo '```text'
  sed -nE 's/^# (engine|run|tool): .*/layer \1/p; s/^brim_folder\((.*)\)$/\1/p' cmake/brim_folders.cmake |
    awk '$1 == "layer" { layer = $2; next }
         { name = $1; $1 = ""; below = $0 == "" ? "" : " ─▶" $0
           line[NR] = sprintf("%-8s %-9s%s", layer, name, below); of[NR] = layer }
         END { for (i = NR; i > 0; i--) if (i in line) {
                 if (above && of[i] != above) print ""
                 sub(/ +$/, "", line[i]); print line[i]; above = of[i] } }'
  echo '```'
}

new=$(awk -v picture="$(picture)" '
  /^<!-- folders: / { print; print picture; inside = 1; next }
  /^<!-- end of folders -->$/ { inside = 0 }
  !inside' "$page")
if [[ ${1:-} == --check ]]; then
  [[ $new == "$(<"$page")" ]] && exit
  echo "$page: the picture of the folders does not match cmake/brim_folders.cmake: run scripts/folders.sh" >&2
  exit 1
fi
printf '%s\n' "$new" >"$page"
