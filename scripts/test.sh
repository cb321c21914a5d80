#!/usr/bin/env bash
# Installs the needed packages, builds, and runs tests, in one of three tiers:
#   scripts/test.sh quick   unit tests, some cases of each operation's conformance, whole runs: less than three
#                           minutes after a build
#   scripts/test.sh         everything that a change is likely to break: less than 15 minutes on two cores, with builds
#                             release   every test except those of the last tier
#                             asan      AddressSanitizer and UBSan, where memory is read and written by hand
#                             tsan      ThreadSanitizer, where there are threads
#                             fuzz      every fuzz target compiles for libFuzzer, and one of them runs
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
# this switches that reading off, not the search for leaks.
export ASAN_OPTIONS=intercept_tls_get_addr=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}
broken=0
reports=()
skipped=()

# The folder for the tests' files, if the user names none. brim waits until the disk has its records and checkpoints,
# which is most of a small run's time; a folder in memory makes it wait for nothing. It needs room, and permission to
# run programs, as tests build some.
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
  # Many tests wait most of their time, for ranks that are lost or for a turn: so more run at once than there are
  # processors. The time limit ends only what hangs. The report needs the programs' whole output, which says how many
  # cases they ran.
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
  quick-release) # BENCH_CASES: of each operation in the conformance suite; without it, all
    BUILD_TARGETS="brim plugins/all models/all quick_tests" build release &&
      BENCH_CASES=2 suite release --label-regex '^quick$'
    ;;
  middle-release) build release && BENCH_CASES=6 suite release --label-exclude '^full$' ;;
  middle-asan) build asan -DBRIM_EMULATED=OFF && BENCH_CASES=2 suite asan --label-exclude '^(full|plain|long)$' ;;
  full-release) build release -DBRIM_CUDA_ARCHITECTURES=all && suite release ;; # checks warnings and spills on all
  full-asan) build asan -DBRIM_EMULATED=ON && suite asan --label-exclude '^long$' ;;
  *-tsan) # nothing is built but what these need
    BUILD_TARGETS="brim plugins/all models/all test_loader test_data test_progress test_cpu_parts" build tsan &&
      suite tsan --tests-regex '^(loader|data|progress|cpu_parts|cli_threads)$'
    ;;
  middle-fuzz) BUILD_TARGETS=fuzz_yaml build fuzz && suite fuzz --tests-regex '^fuzz_yaml$' ;;
  *-arm64) # of a machine that cannot have it, nothing is tested
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
