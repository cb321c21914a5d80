#!/usr/bin/env bash
# Runs a command in a batch job, and requeues the job if the command ends with exit status 6: brim was interrupted, for
# example by --signal before the time limit, and has written a checkpoint.
#
#   requeue.sh COMMAND [WORD]...
#
# If the job itself was signalled to end (scancel, or the time limit), it ends.
set -uo pipefail
ends=no
trap 'ends=yes' TERM
"$@"
status=$?
((status == 6)) || exit "$status"
if [[ $ends == yes ]]; then
  echo "job $SLURM_JOB_ID was cancelled: to resume, submit it again with the same run.dir" >&2
elif scontrol requeue "$SLURM_JOB_ID"; then
  echo "job $SLURM_JOB_ID is requeued and will resume from its checkpoint" >&2
else
  echo "job $SLURM_JOB_ID could not be requeued: to resume, submit it again with the same run.dir" >&2
fi
exit "$status"
