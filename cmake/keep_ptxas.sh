#!/usr/bin/env bash
# keep_ptxas.sh COMPILER ARGUMENT...: runs nvcc, and writes ptxas -v's lines about registers and spills to OBJECT.ptxas
# for scripts/kernels.py; all other output is passed on.
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
