#!/usr/bin/env bash
# Installs the needed packages, builds, and runs tests, in one of three tiers:
#   scripts/test.sh quick   unit tests, some cases of each operation's conformance, whole runs: less than three
#                           minutes after a build
#   scripts/test.sh         everything that a change is likely to break: less than 15 minutes on two cores, with builds
#                             release   every test except those of the last tier
#                             asan      AddressSanitizer and UBSan, where memory is read and written by hand
#                             tsan      ThreadSanitizer, where there are threads
#                             fuzz      one target for libFuzzer, with the part of the core that it tests; release
#                                       runs all targets over mutations
#   scripts/test.sh full    all cases of all tests, the long ones under sanitizers too, and the build arm64, which runs
#                           short jobs in qemu: an hour or more
# Every tier continues after a failure, so that one run shows all. The last line is "N passed, N failed" and counts
# single cases; the exit status is not 0 if any failed.
#
# TEST_PRESETS selects some of a tier's builds: TEST_PRESETS=release scripts/test.sh
# BRIM_WERROR=ON makes warnings errors in release too, including those of device code and spilled registers.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tier=${1:-middle}
case $tier in
quick | middle | full) ;;
*)
  echo "usage: scripts/test.sh [quick|full]" >&2
  exit 2
  ;;
esac
scripts/setup.sh test || exit
BRIM_JUST=$(scripts/just.sh) && export BRIM_JUST
export BRIM_TEST_TIER=$tier
# gcc 12's LeakSanitizer misreads thread-local storage of libraries that are loaded at run time, and crashes at exit;
# this option stops it from reading that storage, but it still searches for leaks.
export ASAN_OPTIONS=intercept_tls_get_addr=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}
broken=0
reports=()
skipped=()

# The tests' files go into a folder in memory unless the user sets TMPDIR. brim waits until its records and checkpoints
# are on the disk, which takes most of a small run's time; in memory it need not wait. The folder needs enough room, and
# must allow programs to run, because some tests build programs.
if [[ -z ${TMPDIR:-} ]] && memory=$(mktemp -d -p /dev/shm brim-tests-XXXXXX 2>/dev/null); then
  trap 'rm -rf "$memory"' EXIT
  chmod 755 "$memory" # some tests run as another user
  if cp /bin/true "$memory" && "$memory/true" && (($(df --output=avail -BG "$memory" | tr -dc 0-9) >= 4)); then
    export TMPDIR=$memory
  fi 2>/dev/null
fi

# build PRESET CMAKE-OPTION...
build() {
  echo "== $1: building"
  scripts/build.sh --configure "$@" -DBRIM_TESTS=ON ${BRIM_WERROR:+"-DBRIM_WERROR=$BRIM_WERROR"} && return
  echo "== $1: the build failed"
  broken=$((broken + 1))
  return 1
}

# suite PRESET CTEST-SELECTION...
suite() {
  local preset=$1 report=build/$1/tests.xml
  shift
  echo "== $preset: testing"
  rm -f "$report"
  # Many tests spend most of their time waiting, so more tests run at once than there are processors. The time limit
  # only ends tests that hang. The report needs the whole output of each program, because the output says how many cases
  # ran.
  ctest --test-dir "build/$preset" --output-on-failure --parallel "$(($(nproc) * 2))" --timeout 1500 \
    --output-junit tests.xml --test-output-size-passed 1000000 --test-output-size-failed 1000000 "$@"
  if [[ -e $report ]]; then
    reports+=("$report")
  else
    echo "== $preset: no test was run"
    broken=$((broken + 1))
  fi
}

start=$SECONDS
case $tier in
quick) presets=release ;;
middle) presets="release asan tsan fuzz" ;;
full) presets="release asan tsan fuzz arm64" ;;
esac
for preset in ${TEST_PRESETS:-$presets}; do
  case $tier-$preset in
  quick-release) # BENCH_CASES: the number of cases of each operation in the conformance suite; the default is all
    BUILD_TARGETS="brim plugins/all models/all quick_tests" build release &&
      BENCH_CASES=2 suite release --label-regex '^quick$'
    ;;
  middle-release) # a new folder compiles device code for one of the two default devices, which halves ptxas' time
    [[ -e build/release/build.ninja ]] || one=-DBRIM_CUDA_ARCHITECTURES=90
    build release ${one:+"$one"} && BENCH_CASES=6 suite release --label-exclude '^full$' ;;
  middle-asan) build asan -DBRIM_EMULATED=OFF && BENCH_CASES=2 suite asan --label-exclude '^(full|plain|long)$' ;;
  full-release) build release -DBRIM_CUDA_ARCHITECTURES=all && suite release ;; # also checks spills, for all devices
  full-asan) build asan -DBRIM_EMULATED=ON && suite asan --label-exclude '^long$' ;;
  *-tsan) # builds only the targets that these tests need
    BUILD_TARGETS="brim brim_backend_cpu brim_dataset_synthetic brim_model_cnn brim_model_lightcnn brim_model_mlp \
      test_loader test_data test_progress test_cpu_parts" build tsan &&
      suite tsan --tests-regex '^(loader|data|progress|cpu_parts|cli_threads)$'
    ;;
  middle-fuzz) BUILD_TARGETS=fuzz_yaml build fuzz && suite fuzz --tests-regex '^fuzz_yaml$' ;;
  *-arm64) # skipped on a machine that cannot run it
    if [[ $(uname -m) != x86_64 ]] || ! scripts/setup.sh arm64 || ! scripts/arm64_root.sh build/arm64-root; then
      skipped+=("arm64: the cross compiler, qemu or the arm64 packages are not to be had here")
      continue
    fi
    BUILD_TARGETS=arm64_tests build arm64 && suite arm64 --label-regex '^arm64$'
    ;;
  *) build "$preset" && suite "$preset" ;;
  esac
done
for reason in "${skipped[@]}"; do echo "skipped: $reason"; done
echo "== $tier tier: $(((SECONDS - start) / 60)) min $(((SECONDS - start) % 60)) s"
python3 scripts/count_tests.py --broken "$broken" "${reports[@]}"
