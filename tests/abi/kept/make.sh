#!/usr/bin/env bash
# Builds the plugins kept here, for x86-64, with brim's headers of the time when their ABI was current. It is not part
# of any build: the test pins that the old binaries still work.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

# build NAME COMMIT: the first commit with this ABI, or the one that fixed it
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
