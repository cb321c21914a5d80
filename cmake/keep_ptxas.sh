#!/usr/bin/env bash
# keep_ptxas.sh COMPILER ARGUMENT...: runs nvcc, and keeps what ptxas -v says of registers and spills beside the object
# file, as OBJECT.ptxas, for scripts/kernels.py; everything else goes where it would.
set -u
object=
for ((i = 1; i <= $#; i++)); do
  [[ ${!i} == -o ]] && { next=$((i + 1)); object=${!next}; }
done
[[ $object == *.o ]] || exec "$@"
said=$(mktemp)
trap 'rm -f "$said"' EXIT
"$@" 2>"$said"
status=$?
ptxas='^ptxas info|bytes stack frame'
grep -E "$ptxas" "$said" >"$object.ptxas"
grep -vE "$ptxas" "$said" >&2
exit "$status"
