#!/usr/bin/env bash
# Builds the plugins that are kept here, for x86-64, with the headers of brim as they were when their ABI was the
# current one. Not part of any build: what is pinned is that what was built then still works.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

# build NAME COMMIT: the commit is the first one with this ABI, or the one that settled it
build() {
  local headers
  headers=$(mktemp --directory)
  git -C ../../.. archive "$2" core/include | tar --extract --directory "$headers"
  gcc -std=c17 -O1 -fPIC -shared -nostdlib -fno-stack-protector -fcf-protection=none -ffile-prefix-map="$headers"= -s \
    -Wl,-z,noseparate-code -Wl,--build-id=none -I"$headers/core/include" "$1.c" -o "$1.so"
  rm -r "$headers"
}
build plugins_1_0 4215c68
build policy_1_3 a1f0a80
