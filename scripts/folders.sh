#!/usr/bin/env bash
# Draws the layers of core/'s folders, from cmake/brim_folders.cmake, into docs/ARCHITECTURE.md.
#   scripts/folders.sh           writes the picture
#   scripts/folders.sh --check   exit status 1 with a message if the picture is missing or out of date
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
page=docs/ARCHITECTURE.md

picture() {
  echo '```mermaid'
  echo 'flowchart TD'
  sed -nE 's/^# (engine|run|tool): .*/layer \1/p; s/^brim_folder\((.*)\)$/\1/p' cmake/brim_folders.cmake |
    awk '$1 == "layer" { if (layer) print "  end"; layer = $2; print "  subgraph " layer; next }
         { print "    " $1; for (i = 2; i <= NF; i++) arrows = arrows "  " $1 " --> " $i "\n" }
         END { print "  end"; printf "%s", arrows }'
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
