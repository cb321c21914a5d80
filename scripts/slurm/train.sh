#!/usr/bin/env bash
# Runs one training as a step of the current Slurm job: starts it, or resumes it if its folder exists because the job
# was requeued.
#
#   train.sh [OPTION OF SRUN]... -- [ARGUMENT OF BRIM TRAIN]...
#
# run.dir among the arguments sets the folder; the default is runs/slurm-<job>, which a requeue keeps. The exit status
# is brim's: 6 if it was interrupted, has a checkpoint, and has made progress.
#
#   BRIM             the program; default: this checkout's build/release/bin/brim
#   BRIM_SRUN        further options of srun, such as those of a container (docs/guide/distributed.md)
#   SLURM_MPI_TYPE   how ranks find each other; default: pmix
set -uo pipefail
brim=${BRIM:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/build/release/bin/brim}
trap : TERM # ignored, because Slurm signals all processes of the job, and the lines below must still run

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
  echo "train.sh: run.dir=$run must be a plain name: a batch job resumes in the same folder" >&2
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

# --kill-on-bad-exit: when a rank dies, the others end too instead of waiting for it.
srun --mpi="${SLURM_MPI_TYPE:-pmix}" --kill-on-bad-exit=1 --cpu-bind=cores "${options[@]}" "${more[@]}" \
  "$brim" train "${words[@]}"
status=$?

# srun's status is not reliable after an interruption: when the first rank ends, srun kills the others and reports their
# status. So the run's folder decides.
if ((status != 0)) && [[ $(summary) != "$first_summary" ]] &&
  grep -q '"status": "interrupted"' "$run/summary.json"; then
  status=6
fi
if ((status == 6)) && [[ $(checkpoint) == "$first_checkpoint" ]]; then
  echo "train.sh: $run made no progress, so the job is not requeued: is --time too short?" >&2
  status=5
fi
exit "$status"
