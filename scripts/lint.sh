#!/usr/bin/env bash
# Checks format, line length, banned functions, words, links and commits, and looks for mistakes.
#   scripts/lint.sh                    every source file
#   scripts/lint.sh --deep             clang's static analyzer too: ten times as long
#   scripts/lint.sh --changed [BASE]   only the files that differ from BASE (default HEAD), new files included
#   scripts/lint.sh FILE...            only these files
# It changes no file; `clang-format -i FILE...` formats one.
#
# clang-format checks the layout of C, C++ and CUDA; lines of all code end at column 120. clang-tidy runs the checks of
# .clang-tidy. It compiles each file as the build does, with core/base/banned.h, so a banned function is an error
# here too. pyflakes reads the Python scripts; scripts/folders.sh checks the includes, scripts/words.py the phrases
# and scripts/check_links.py the links of all pages. Subjects of commits since the last version (else of the last 30)
# must be "subsystem: what changes" in at most 72 characters.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for tool in clang-format clang-tidy cmake pyflakes3; do
  command -v "$tool" >/dev/null || { echo "lint: $tool is missing: run scripts/setup.sh lint" >&2; exit 2; }
done

checks=-clang-analyzer-*
if [[ ${1:-} == --deep ]]; then
  checks=
  shift
fi
pattern='\.(c|h|cpp|cu|cuh|py|sh|cmake)$|(^|/)(CMakeLists\.txt|justfile)$'
case "${1:-}" in
  "") mapfile -t files < <(git ls-files | grep -E "$pattern") ;;
  --changed)
    mapfile -t files < <({ git diff --name-only --diff-filter=d "${2:-HEAD}"
                           git ls-files --others --exclude-standard; } | sort -u | grep -E "$pattern" || true)
    ;;
  *) files=("$@") ;;
esac
((${#files[@]})) || { echo "lint: no source files to check"; exit 0; }
# of EXTENSIONS: prints the files that have one of these extensions
of() { printf '%s\n' "${files[@]}" | grep -E "\.($1)$" || true; }

failed=0
awk 'length($0) > 120 {printf "%s:%d: %d characters, at most 120\n", FILENAME, FNR, length($0); bad = 1}
     END {exit bad}' "${files[@]}" >&2 || failed=1

mapfile -t sources < <(of 'c|h|cpp|cu|cuh')
((!${#sources[@]})) || clang-format --dry-run --Werror "${sources[@]}" || failed=1

mapfile -t scripts < <(of py)
((!${#scripts[@]})) || pyflakes3 "${scripts[@]}" || failed=1

scripts/folders.sh --check || failed=1
case "${1:-}" in
  "" | --changed) mapfile -t prose < <(git ls-files '*.md' '*.yaml') ;;
  *) mapfile -t prose < <(of 'md|yaml') ;;
esac
python3 scripts/words.py --check "${files[@]}" "${prose[@]}" || failed=1
mapfile -t pages < <(printf '%s\n' "${prose[@]}" | grep '\.md$' || true)
((!${#pages[@]})) || scripts/check_links.py "${pages[@]}" || failed=1

version=$(sed -n 's/^project(brim VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
released=$(sed -n 's/^## \([0-9][0-9.]*\) .*/\1/p' CHANGELOG.md | head -n 1)
if [[ $version != "$released" ]]; then
  echo "CMakeLists.txt has version '$version', but the newest release in CHANGELOG.md is '$released'" >&2
  failed=1
fi

subjects=(-30)
if tag=$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null); then subjects=("$tag..HEAD"); fi
git log --no-merges --format='%h %s' "${subjects[@]}" | awk '{
    subject = substr($0, index($0, " ") + 1)
    if (subject ~ /^([A-Z]+|[a-z0-9][a-z0-9_.\/, -]*): [^ ]/ && length(subject) <= 72) next
    printf "commit %s: \"subsystem: what changes\" in at most 72 characters, not \"%s\"\n", $1, subject; bad = 1
  } END {exit bad}' >&2 || failed=1

# clang-tidy reads how each file is compiled; it checks headers where a file includes them.
build=build/dev
cmake --preset dev >/dev/null
mapfile -t units < <(of 'c|cpp' | while read -r file; do
  if grep -qF "/$file\"" "$build/compile_commands.json"; then echo "$file"; fi
done)
if ((${#units[@]})); then
  # Diagnostics are on standard output; standard error only counts the warnings of system headers.
  printf '%s\0' "${units[@]}" |
    xargs -0 -P "$(nproc)" -n 8 clang-tidy -p "$build" --quiet ${checks:+"--checks=$checks"} 2>/dev/null || failed=1
fi
if ((failed)); then
  echo "lint: see above" >&2
  exit 1
fi
echo "lint: ${#files[@]} files, nothing found"
