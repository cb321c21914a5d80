#!/usr/bin/env bash
# Runs a command several times side by side, and waits for all: once for each line of standard input, which has a name
# and arguments to append to the command. Each line of output begins with its job's name.
#
#   printf '%s\n' 'one seed=1' 'two seed=2' | scripts/side_by_side.sh brim train model=cnn
#
# A job that fails lets the others end. The exit status is 0 only if every job's is; 6 if one was interrupted and can
# be resumed; otherwise the highest. Ctrl-C reaches the jobs directly; the script passes SIGTERM on, and a second one
# ends them at once.
set -euo pipefail

if (($# == 0)); then
  echo "usage: scripts/side_by_side.sh COMMAND [WORD]...   with a line 'NAME [WORD]...' for each job" >&2
  exit 2
fi

jobs=()
trap : INT
trap 'kill -TERM "${jobs[@]}" 2>/dev/null || true' TERM
while read -ra words || ((${#words[@]})); do # the loop's second condition reads a last line without a newline
  ((${#words[@]})) || continue
  name=${words[0]}
  shown=${name//[\\&|]/\\&} # these three are special in sed's replacement
  "$@" "${words[@]:1}" > >(trap '' INT TERM; exec sed -u "s|^|$shown: |") 2>&1 </dev/null &
  jobs+=($!)
done

highest=0 interrupted=no
for job in "${jobs[@]}"; do
  while true; do
    code=0
    wait "$job" || code=$?
    kill -0 "$job" 2>/dev/null || break # a signal may end `wait` before the job ends
  done
  ((code <= highest)) || highest=$code
  ((code != 6)) || interrupted=yes
done
[[ $interrupted == no ]] || exit 6
exit "$highest"
