#!/usr/bin/env bash
# Prints the path of `just`, for the tests of the justfile: $BRIM_JUST, the one on the PATH, or one of PyPI's package
# rust-just, installed into the user's cache. Without a network that fails with a message, and the tests are skipped.
set -uo pipefail
cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/brim/just

if [[ -n ${BRIM_JUST:-} ]]; then
  echo "$BRIM_JUST"
  exit 0
fi
command -v just && exit 0
if [[ ! -x $cache/bin/just ]]; then
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  mkdir -p "${cache%/*}"
  if ! { python3 -m venv "$cache" &&
         "$cache/bin/pip" --disable-pip-version-check install --retries 1 --timeout 15 'rust-just>=1.40,<2'; } \
      >"$log" 2>&1; then
    rm -rf "$cache"
    echo "just could not be installed from PyPI, so the justfile is not tested: $(tail -n 1 "$log")" >&2
    exit 1
  fi
fi
echo "$cache/bin/just"
