#!/usr/bin/env bash
# Runs a command in a batch job, and has the job queue again if it ends with exit status 6: brim was interrupted, as by
# --signal before the time limit, and has written a checkpoint to go on from.
#
#   requeue.sh COMMAND [WORD]...
#
# If the job itself was told to end (scancel, or the time limit is over), it ends.
set -uo pipefail
told=no
trap 'told=yes' TERM
"$@"
status=$?
((status == 6)) || exit "$status"
if [[ $told == yes ]]; then
  echo "job $SLURM_JOB_ID was told to end: sbatch it again with the same run.dir to go on" >&2
elif scontrol requeue "$SLURM_JOB_ID"; then
  echo "job $SLURM_JOB_ID queues again, to go on from its checkpoint" >&2
else
  echo "job $SLURM_JOB_ID could not be requeued: sbatch it again with the same run.dir to go on" >&2
fi
exit "$status"
