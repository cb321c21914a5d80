#!/usr/bin/env bash
# Installs the Debian packages that brim's build needs. `setup.sh package` adds those that make Debian packages of brim,
# `setup.sh test` those for the tests too, and `setup.sh lint` also those for scripts/lint.sh. `setup.sh arm64` installs
# those for the preset arm64; scripts/arm64_root.sh unpacks its libraries.
#
# Asks dpkg first, so a second call does nothing else. Never prompts: without root it uses sudo if that works without a
# password, and otherwise prints the command to run.
set -euo pipefail

packages=(cmake ninja-build gcc g++ libc6-dev pkg-config libyaml-dev libjansson-dev libxxhash-dev zlib1g-dev libdnnl-dev
          libxbyak-dev libpcre2-dev libutf8proc-dev libncurses-dev libjpeg62-turbo-dev libpng-dev libopenmpi-dev
          openmpi-bin dataset-fashion-mnist)
case ${1:-} in
"") ;;
package) packages+=(dpkg-dev file) ;;
arm64) packages=(cmake ninja-build gcc-aarch64-linux-gnu g++-aarch64-linux-gnu pkg-config qemu-user) ;;
test | lint)
  packages+=(libcmocka-dev python3 python3-jinja2 dpkg-dev file groff-base clang libclang-rt-dev zsh fish)
  [[ $1 == test ]] || packages+=(clang-format clang-tidy pyflakes3)
  ;;
*)
  echo "usage: scripts/setup.sh [package|test|lint|arm64]" >&2
  exit 2
  ;;
esac

if ! command -v dpkg-query >/dev/null; then
  echo "setup: this is not Debian, so nothing is installed; brim needs the files of these packages: ${packages[*]}" >&2
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $state == installed* ]] || missing+=("$package")
done
((${#missing[@]})) || exit 0

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
    echo "setup: these packages are missing: ${missing[*]}" >&2
    echo "setup: installing them needs root; run: sudo apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo -n)
fi

echo "setup: installing ${missing[*]}" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# Waits for other programs that hold apt's lock.
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 "$@" \
    </dev/null >>"$log" 2>&1
}
updated=yes
apt -o APT::Update::Error-Mode=any update || updated=no # the present package lists may be enough
if ! apt install --yes --no-install-recommends "${missing[@]}"; then
  tail -n 15 "$log" >&2
  echo "setup: these packages are missing and could not be installed: ${missing[*]}" >&2
  [[ $updated == yes ]] || echo "setup: the package lists could not be fetched either: is there a network?" >&2
  exit 1
fi
