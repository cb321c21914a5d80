#!/usr/bin/env bash
# What can be shown on a GPU only: gpu_check.sh [conformance|sanitize|bench|all]
#
#   conformance  every operation against the reference backend in fp32 and bf16; training curves against the reference's;
#                resume; the same bits in every run and with one launch at a time; plan = bytes allocated
#   sanitize     compute-sanitizer over every kernel; a line says so where the host refuses it
#   bench        training beside PyTorch, eager and compiled, on the same GPU
#
# Each takes less than 9 minutes on one GPU, and needs the CUDA toolkit's libraries, Python, PyTorch for the comparison,
# and a build. OUT (default build/gpu_check) gets gpu_check.json and gpu_check.md; what is there of other stages is kept.
# Exit status 0 if everything that ran was as it must be.
#
#   gpu_check.sh pack [BUILD]   makes build/gpu: what is needed of a build (default build/release), for a machine that
#                               has no compiler or libraries; found there by itself. BUILD=folder names another one.
#   gpu_check.sh record [BUILD] trains the curves on the reference backend and writes them to tests/golden
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
stage=${1:-all}

pack() {
  local build=$1 to=build/gpu file
  rm -rf "$to"
  mkdir -p "$to"/{bin,lib/brim/plugins/backend,share/brim,tests}
  cp "$build/bin/brim" "$to/bin/"
  cp -a "$build"/lib/libbrim.so* "$to/lib/"
  cp "$build/tests/test_conformance" "$to/tests/"
  cp -r "$build"/lib/brim/plugins/{model,dataset} "$to/lib/brim/plugins/"
  cp "$build"/lib/brim/plugins/backend/{cuda,reference}.so "$to/lib/brim/plugins/backend/"
  cp -r "$build/lib/brim/plugins/backend/cuda" "$to/lib/brim/plugins/backend/"
  cp -rL configs "$to/share/brim/configs"
  # the libraries that a bare machine lacks
  for file in $(ldd "$to/tests/test_conformance" "$to/lib/libbrim.so" | awk '$1 ~ /^lib(yaml|jansson|cmocka|z)/ {print $3}' |
    sort -u); do
    cp -L "$file" "$to/lib/"
  done
  find "$to" -name '*.so*' -type f -exec strip --strip-unneeded {} +
  du -sh "$to" | cut -f 1 | sed "s|\$| in $to|"
}

case $stage in
pack) pack "${2:-build/release}" ;;
record) exec python3 scripts/gpu_check.py --build "${2:-build/release}" record ;;
conformance | sanitize | bench | all)
  build=${BUILD:-}
  [[ -n $build ]] || for build in build/gpu build/release; do [[ ! -x $build/bin/brim ]] || break; done
  exec python3 scripts/gpu_check.py --build "$build" --out "${OUT:-build/gpu_check}" "$stage"
  ;;
*)
  sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
  exit 2
  ;;
esac
