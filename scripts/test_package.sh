#!/usr/bin/env bash
# Installs brim's Debian packages into a clean root (debootstrap), uses them there as a new user would, and removes them
# again. Needs root permission and this machine's Debian mirror; the clean root is removed at the end.
#
#     scripts/test_package.sh [FOLDER]     the folder of the packages; without it they are built
#
# Needs the packages debootstrap and, to build, those of scripts/setup.sh. KEEP=1 keeps the clean root and prints its
# path.
set -euo pipefail

fail() {
  echo "test_package: $*" >&2
  exit 1
}
step() { echo "== $*"; }

((EUID == 0)) || fail "a clean root is made by root: run it with sudo"
command -v debootstrap >/dev/null || fail "debootstrap is missing: apt-get install debootstrap"
# Mounts are made in a separate namespace, so that none remains whatever happens.
if [[ ${BRIM_TEST_PACKAGE_ALONE:-} != yes ]]; then
  BRIM_TEST_PACKAGE_ALONE=yes exec unshare --mount --propagation private "${BASH_SOURCE[0]}" "$@"
fi

source=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder=${1:-$source/build/package/packages}
if (($# == 0)); then
  step "building the packages"
  (cd "$source" && cmake --workflow --preset package >/dev/null)
fi
packages=("$folder"/*.deb)
[[ -e ${packages[0]} ]] || fail "no packages in $folder"

if command -v lintian >/dev/null; then
  step "lintian: no errors"
  lintian --allow-root --fail-on error "${packages[@]}" >/dev/null ||
    fail "lintian has found errors: lintian ${packages[*]}"
fi

root=$(mktemp --directory --tmpdir brim-root-XXXXXX)
chmod 755 "$root"
finish() {
  umount "$root/proc" 2>/dev/null || true
  if [[ ${KEEP:-} ]]; then
    echo "the root is $root"
  else
    rm --recursive --force --one-file-system "$root"
  fi
}
trap finish EXIT

# The same release and mirror as on this machine.
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' "Codename: $release" |
  head -n 1)
[[ $mirror ]] || fail "apt has no mirror of Debian $release here"

step "a clean root of $release, from $mirror"
debootstrap --variant=minbase "$release" "$root" "$mirror" >"$root.log" 2>&1 ||
  { tail -n 20 "$root.log" >&2 && rm -f "$root.log" && fail "debootstrap failed"; }
rm -f "$root.log"
mount -t proc proc "$root/proc"

inside() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive \
  DEBCONF_NOWARNINGS=yes LC_ALL=C.UTF-8 "$@"; }
# As a user with a home folder and no other permissions.
user() { chroot --userspec=1000:1000 "$root" /usr/bin/env -i PATH=/usr/bin:/bin HOME=/home/user LC_ALL=C.UTF-8 \
  sh -c "cd /home/user && $*"; }
apt() { inside apt-get --quiet --quiet --yes -o Dpkg::Use-Pty=0 "$@" </dev/null >/dev/null; }
# All paths except the data of apt and dpkg, caches, logs, and backups of the account files, which a library's package
# makes.
paths() {
  (cd "$root" && find . -xdev \( -path ./proc -o -path ./run -o -path ./home -o -path ./packages \
    -o -path ./var/lib/dpkg -o -path ./var/lib/apt -o -path ./var/cache -o -path ./var/log -o -path './etc/*-' \) \
    -prune -o -print | sort)
}

mkdir --parents "$root/packages" "$root/home/user"
cp "${packages[@]}" "$root/packages"
cp --recursive "$source/tests/abi/outside" "$root/home/user/outside"
chown --recursive 1000:1000 "$root/home/user"

step "a compiler and cmake, to build a plugin with"
apt update
apt install --no-install-recommends gcc libc6-dev cmake make
paths >"$root/home/before"

files() { (cd "$root" && printf '/%s\n' $(for name in "$@"; do echo packages/"${name}"_*.deb; done)); }

step "libbrim0 and brim-dev alone: a plugin is built"
apt install --no-install-recommends $(files libbrim0 brim-dev)
user 'cmake -S outside -B outside/build >/dev/null && cmake --build outside/build >/dev/null'

step "brim and brim-plugins"
apt install --no-install-recommends $(files libbrim0 brim brim-plugins brim-dev)
inside dpkg --verify libbrim0 brim brim-plugins brim-dev
! inside dpkg --status libopenmpi3 >/dev/null 2>&1 || fail "an MPI is installed although it is optional"

step "brim --version"
user brim --version
step "brim plugins"
user brim plugins >"$root/home/plugins"
! grep --quiet 'could not be used' "$root/home/plugins" || fail "$(cat "$root/home/plugins")"
awk '{ split($1, part, "/"); count[part[1]]++ } END { for (kind in count) print "  " kind ": " count[kind] }' \
  "$root/home/plugins" | sort
step "brim plan"
user brim plan model=cnn dataset=synthetic 'dataset.shape=[1,28,28]' --no-timing | sed --quiet '1p; /^peak/p'
step "brim train, two steps"
user brim train model=cnn dataset=synthetic 'dataset.shape=[1,28,28]' training.steps=2 training.batch_size=16 \
  run.dir=run 2>&1 | tail -n 3
[[ -s $root/home/user/run/checkpoints/last/model.safetensors ]] || fail "the run has left no checkpoint"
step "manual pages"
for page in 1/brim.1 1/brim-train.1 5/brim.yaml.5 7/brim-plugin.7; do
  [[ -s $root/usr/share/man/man$page.gz ]] || fail "there is no manual page $page"
done
echo "  $(ls "$root"/usr/share/man/man[157]/brim* | wc --lines)"

step "the plugin that was built"
user brim --plugin-path outside/build/lib/brim/plugins plan model=outside dataset=synthetic --no-timing | head -n 1
step "brim new, for each kind of plugin"
for kind in model dataset policy; do
  user "brim new $kind mine_$kind >/dev/null && cd mine_$kind && cmake -B build >/dev/null &&
    cmake --build build >/dev/null && ctest --test-dir build" | sed --quiet "s/^/  $kind: /; /tests passed/p"
done
step "a program built with pkg-config"
apt install --no-install-recommends pkg-config
cat >"$root/home/user/program.c" <<'PROGRAM'
#include <brim/memory.h>
#include <stdio.h>
int main(void)
{
  brim_device_choice choice;
  const brim_device_search wanted = {0};
  if (brim_device_best(&wanted, &choice) != BRIM_OK) return puts(brim_error_text()), 1;
  return printf("%s: %s\n", choice.name, choice.reason) < 0;
}
PROGRAM
user 'gcc program.c $(pkg-config --cflags --libs brim) -o program && ./program'

if [[ -e $root$(files brim-plugins-mpi) ]]; then
  step "brim-plugins-mpi"
  apt install --no-install-recommends "$(files brim-plugins-mpi)"
  user brim plugins comm/mpi | head -n 1
fi

step "removed and purged"
mapfile -t names < <(inside dpkg-query --show --showformat '${Package}\n' | grep --extended-regexp '^(lib)?brim')
apt remove "${names[@]}"
inside dpkg --purge "${names[@]}" >/dev/null 2>&1 # no package has configuration files, so nothing is left to purge
inside dpkg-query --show --showformat '${Package}\n' | grep --extended-regexp '^(lib)?brim' && fail "packages are left"
apt purge --auto-remove pkg-config 2>/dev/null
paths >"$root/home/after"
if ! diff "$root/home/before" "$root/home/after"; then
  fail "these paths differ from before (<) the installation"
fi
echo "packages work in a clean root, and leave no files"
