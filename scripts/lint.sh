#!/usr/bin/env bash
# Checks formatting (clang-format) and looks for mistakes (clang-tidy).
#   scripts/lint.sh                    every source file
#   scripts/lint.sh --changed [BASE]   those that differ from BASE (default HEAD), new ones included
#   scripts/lint.sh FILE...            these
# Nothing is changed; to format: clang-format -i FILE...
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for tool in clang-format clang-tidy cmake; do
  command -v "$tool" >/dev/null || { echo "lint: $tool is missing: sudo apt-get install $tool" >&2; exit 2; }
done

pattern='\.(c|h|cpp|cu|cuh)$'
case "${1:-}" in
  "") mapfile -t files < <(git ls-files | grep -E "$pattern") ;;
  --changed) mapfile -t files < <({ git diff --name-only --diff-filter=d "${2:-HEAD}"
                                    git ls-files --others --exclude-standard; } | sort -u | grep -E "$pattern" || true) ;;
  *) files=("$@") ;;
esac
[ ${#files[@]} -gt 0 ] || { echo "lint: no source files to check"; exit 0; }

failed=0
clang-format --dry-run --Werror "${files[@]}" || failed=1

# clang-tidy needs to know how each file is compiled; headers are checked where they are included.
build=build/dev
cmake --preset dev >/dev/null
mapfile -t units < <(printf '%s\n' "${files[@]}" | while read -r file; do
  if [[ $file == *.c || $file == *.cpp ]] && grep -qF "/$file\"" "$build/compile_commands.json"; then echo "$file"; fi
done)
if [ ${#units[@]} -gt 0 ]; then
  # Diagnostics are on standard output; standard error counts the warnings of system headers, which nobody sees.
  printf '%s\0' "${units[@]}" | xargs -0 -P "$(nproc)" -n 1 clang-tidy -p "$build" --quiet 2>/dev/null || failed=1
fi
if [ "$failed" -ne 0 ]; then
  echo "lint: see above" >&2
  exit 1
fi
echo "lint: ${#files[@]} files, nothing found"
