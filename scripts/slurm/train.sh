#!/usr/bin/env bash
# One training, as a step of the Slurm job that this runs in: begins it, or goes on with it if its folder is there
# already, because the job was requeued.
#
#   train.sh [OPTION OF SRUN]... -- [WORD OF BRIM TRAIN]...
#
# run.dir among the words names the folder; without it, it is runs/slurm-<job>, and the same after a requeue. The exit
# status is brim's: 6 if it was interrupted, has a checkpoint, and got further than when it began.
#
#   BRIM             the program; else build/release/bin/brim beside this
#   BRIM_SRUN        further options of srun, such as those of a container (docs/guide/distributed.md)
#   SLURM_MPI_TYPE   how ranks find each other; else pmix
set -uo pipefail
brim=${BRIM:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/build/release/bin/brim}
trap : TERM # the end of the job is told to all its processes: what is below must still come

options=()
while (($#)) && [[ $1 != -- ]]; do
  options+=("$1")
  shift
done
shift
read -ra more <<<"${BRIM_SRUN:-}"

run=
for word in "$@"; do
  [[ $word != run.dir=* ]] || run=${word#run.dir=}
done
if [[ $run == *"\${"* ]]; then
  echo "train.sh: run.dir=$run: a batch job goes on in the same folder, so it takes a plain name here" >&2
  exit 2
fi
if [[ -z $run ]]; then
  run=runs/slurm-$SLURM_JOB_ID
  set -- "$@" "run.dir=$run"
fi
words=("$@")
[[ ! -e $run/config.yaml ]] || words=(--resume "$run")

checkpoint() { readlink "$run/checkpoints/last" 2>/dev/null; }
summary() { stat --format='%i %y' "$run/summary.json" 2>/dev/null; }
first_checkpoint=$(checkpoint)
first_summary=$(summary)

# A rank that dies takes the others with it (--kill-on-bad-exit) rather than leave them to wait for it.
srun --mpi="${SLURM_MPI_TYPE:-pmix}" --kill-on-bad-exit=1 --cpu-bind=cores "${options[@]}" "${more[@]}" \
  "$brim" train "${words[@]}"
status=$?

# After an interruption too: then the first rank that ends has srun kill those that are about to, and say so of them. So
# it is the folder that tells.
if ((status != 0)) && [[ $(summary) != "$first_summary" ]] &&
  grep -q '"status": "interrupted"' "$run/summary.json"; then
  status=6
fi
if ((status == 6)) && [[ $(checkpoint) == "$first_checkpoint" ]]; then
  echo "train.sh: $run got no step further, so it does not go on by itself: is --time too short for it?" >&2
  status=5
fi
exit "$status"
