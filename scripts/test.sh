#!/usr/bin/env bash
# Installs what is needed, builds, and runs every test:
#   release   all of them
#   asan      AddressSanitizer and UBSan: all but the long ones
#   tsan      ThreadSanitizer: what has threads
# Goes on after a failure, so that one run shows all. Ends in a line "N passed, N failed" that counts single cases, and
# with a status that is not 0 if any failed.
#
# TEST_PRESETS picks some of the three: TEST_PRESETS=release scripts/test.sh
# BRIM_WERROR=ON makes warnings errors in release too, those of device code and spilled registers among them.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup.sh test || exit
BRIM_JUST=$(scripts/just.sh) && export BRIM_JUST
# gcc 12's LeakSanitizer misreads thread-local storage of libraries that are loaded at run time, and crashes at exit;
# this switches that reading off, not the search for leaks.
export ASAN_OPTIONS=intercept_tls_get_addr=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}
broken=0
reports=()

# suite PRESET CTEST-SELECTION...
suite() {
  local preset=$1 report=build/$1/tests.xml
  shift
  echo "== $preset: building"
  if ! scripts/build.sh --configure "$preset" -DBRIM_TESTS=ON ${BRIM_WERROR:+"-DBRIM_WERROR=$BRIM_WERROR"}; then
    echo "== $preset: the build failed"
    broken=$((broken + 1))
    return
  fi
  echo "== $preset: testing"
  rm -f "$report"
  # Many tests wait most of their time, for ranks that are lost or for a turn: so more run at once than there are
  # processors. The report needs the programs' whole output, which says how many cases they ran.
  ctest --test-dir "build/$preset" --output-on-failure --parallel "$(($(nproc) * 3 / 2))" --timeout 900 \
    --output-junit tests.xml --test-output-size-passed 1000000 --test-output-size-failed 1000000 "$@"
  if [[ -e $report ]]; then
    reports+=("$report")
  else
    echo "== $preset: no test was run"
    broken=$((broken + 1))
  fi
}

for preset in ${TEST_PRESETS:-release asan tsan}; do
  case $preset in
  asan) suite asan --label-exclude long ;;
  tsan) # nothing is built but what these need
    BUILD_TARGETS="brim plugins/all models/all test_loader test_data test_progress test_cpu_parts" \
      suite tsan --tests-regex '^(loader|data|progress|cpu_parts|cli_threads)$'
    ;;
  *) suite "$preset" ;;
  esac
done
python3 scripts/count_tests.py --broken "$broken" "${reports[@]}"
