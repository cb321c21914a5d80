#!/usr/bin/env bash
# What can be shown on a GPU only: gpu_check.sh [conformance|dist|sanitize|bench|all]
#
#   conformance  every operation against the reference backend in fp32, bf16 and fp16; training curves against the
#                reference's; steps that fp16 has no numbers for are skipped without a trace;
#                resume and interruption; the same bits in every run, with one launch at a time, and with the
#                optimizer's state in host memory; plan = bytes allocated
#   dist         2 and 4 ranks on one GPU, started by brim: the losses of one, with any sharding; the same bits in every
#                run and when resumed; a rank that is killed ends the job; what overlapping sums with kernels brings
#   sanitize     compute-sanitizer over every kernel; a line says so where the host refuses it
#   bench        training beside PyTorch, eager and compiled, on the same GPU
#
# Each takes less than 9 minutes on one GPU, and needs the CUDA toolkit's libraries, Python, PyTorch for the comparison,
# and a build. OUT (default build/gpu_check) gets gpu_check.json and gpu_check.md, after every check. What is there of
# other stages is kept, and so is what was found good by a stage that was cut off: the same command goes on with it.
# Exit status: 0 everything was as it must be, 1 something was not, 2 nothing could be run, 3 the time was up.
#
#   gpu_check.sh pack [BUILD [TO]]  makes build/gpu: what is needed of a build (default build/release), for a machine
#                                   that has no compiler or libraries; found there by itself. BUILD=folder names another
#                                   one.
#   gpu_check.sh record [BUILD]     trains the curves on the reference backend and writes them to tests/golden
set -euo pipefail
from=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
stage=${1:-all}

# A path as the caller meant it.
absolute() { case $1 in /*) echo "$1" ;; *) echo "$from/$1" ;; esac; }

stop() {
  echo "gpu_check: $1" >&2
  exit 2
}

usage() {
  sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" >&2
  exit 2
}

pack() {
  local build=$1 to=$2 file backends=lib/brim/plugins/backend comm=lib/brim/plugins/comm
  for file in bin/brim tests/test_conformance $backends/{cuda,reference}.so; do
    [[ -f $build/$file ]] || stop "there is no $file in $build: build it, with the CUDA toolkit and with tests"
  done
  [[ ! -e $to || -x $to/bin/brim ]] || stop "$to is there, and is no pack"
  rm -rf "$to"
  mkdir -p "$to"/{bin,$backends,share/brim,tests}
  cp "$build/bin/brim" "$to/bin/"
  cp -a "$build"/lib/libbrim.so* "$to/lib/"
  cp "$build/tests/test_conformance" "$to/tests/"
  cp -r "$build"/lib/brim/plugins/{model,dataset} "$to/lib/brim/plugins/"
  cp "$build"/$backends/{cuda,reference}.so "$to/$backends/"
  # what calls cuBLASLt and cuDNN; a backend that needs none has none
  [[ ! -d $build/$backends/cuda ]] || cp -r "$build/$backends/cuda" "$to/$backends/"
  # ranks without MPI
  mkdir -p "$to/$comm"
  [[ ! -f $build/$comm/nccl.so ]] || cp "$build/$comm/nccl.so" "$to/$comm/"
  cp -rL configs "$to/share/brim/configs"
  # the libraries that a bare machine lacks
  find "$to" -type f \( -name '*.so*' -o -perm -u+x \) -exec ldd {} + 2>/dev/null |
    awk '$1 ~ /^lib(yaml|jansson|cmocka|z)[-.]/ && $3 ~ /^\// {print $3}' | sort -u |
    while read -r file; do cp -L "$file" "$to/lib/"; done
  find "$to" -type f \( -name '*.so*' -o -perm -u+x \) -exec strip --strip-unneeded {} +
  du -sh "$to" | cut -f 1 | sed "s|\$| in $to|"
}

case $stage in
pack)
  build=build/release to=build/gpu
  [[ -z ${2:-} ]] || build=$(absolute "$2")
  [[ -z ${3:-} ]] || to=$(absolute "$3")
  pack "$build" "$to"
  ;;
record)
  build=build/release
  [[ -z ${2:-} ]] || build=$(absolute "$2")
  exec python3 scripts/gpu_check.py --build "$build" record
  ;;
conformance | dist | sanitize | bench | all)
  if [[ -n ${BUILD:-} ]]; then
    build=$(absolute "$BUILD")
  else
    for build in build/gpu build/release; do [[ ! -x $build/bin/brim ]] || break; done
  fi
  out=build/gpu_check
  [[ -z ${OUT:-} ]] || out=$(absolute "$OUT")
  exec python3 scripts/gpu_check.py --build "$build" --out "$out" "$stage"
  ;;
*) usage ;;
esac
