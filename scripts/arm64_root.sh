#!/usr/bin/env bash
# arm64_root.sh FOLDER: unpacks the arm64 libraries that brim is built with into FOLDER, a root for the cross compiler
# and the emulator. apt reads this machine's sources but keeps its lists in FOLDER. So it needs no root permission,
# changes nothing outside FOLDER, and can unpack files that Debian's multiarch cannot install side by side. A second
# call does nothing.
set -euo pipefail
root=$(mkdir -p "${1:?"usage: scripts/arm64_root.sh FOLDER"}" && cd "$1" && pwd)
packages=(libc6-dev libstdc++6 libyaml-dev libjansson-dev libxxhash-dev zlib1g-dev libdnnl-dev libpcre2-dev
          libutf8proc-dev libncurses-dev libjpeg62-turbo-dev libpng-dev libcmocka-dev)
stamp=$root/.packages
if [[ -e $stamp && $(<"$stamp") == "${packages[*]}" ]]; then exit 0; fi

apt=$root/.apt
log=$apt/log
rm -rf "${root:?}"/* "$apt"
mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
: >"$apt/status"
options=(-q -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Dir::State::Lists="$apt/lists"
         -o Dir::State::status="$apt/status" -o Dir::Cache="$apt/cache" -o Debug::NoLocking=1 -o APT::Sandbox::User=
         -o Acquire::Languages=none
         -o APT::Update::Error-Mode=any)
echo "arm64_root: unpacking arm64 packages in $root" >&2
if ! { apt-get "${options[@]}" update && apt-get "${options[@]}" --yes --no-install-recommends --download-only \
  install "${packages[@]}"; } >"$log" 2>&1 </dev/null; then
  tail -n 5 "$log" >&2
  echo "arm64_root: the arm64 packages could not be fetched" >&2
  exit 1
fi
mkdir -p "$root/usr/bin" "$root/usr/lib"
ln -s usr/bin usr/lib "$root"
for package in "$apt"/cache/archives/*.deb; do
  dpkg-deb --fsys-tarfile "$package" | tar -x -C "$root" --keep-directory-symlink --exclude=./usr/share
done
# Absolute links would lead out of the root, so they become relative.
find "$root/usr" -type l -lname '/*' | while read -r link; do
  ln -sf "$(realpath -m --relative-to="$(dirname "$link")" "$root$(readlink "$link")")" "$link"
done
rm -rf "$apt"
echo "${packages[*]}" >"$stamp"
