/* Limits the time in which a rank joins its job, and in which it leaves. Until MPI has started, no rank can tell
 * another that it is missing, and MPI waits without a limit: so each rank watches its own clock, on a separate thread.
 * Meanwhile signals end the process, even if the communicator has blocked them for the joining thread. */
#ifndef BRIM_DIST_JOINING_H
#define BRIM_DIST_JOINING_H
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

#include "brim/comm.h"

typedef struct brim_joining {
  const brim_comm_ops *ops; /* the function end_all can end the job */
  void *self;
  double seconds;  /* limit for joining, without the time in which this process was stopped */
  int exit_status; /* the exit status of a process that leaves; -1: it is joining */
  int32_t rank, ranks;
  int signals, done; /* file descriptors */
  bool is_watching;
  pthread_t thread;
  sigset_t before;
} brim_joining;

/* [init] Starts to watch the time. Called by the joining thread, which later calls brim_joining_end. EIO. */
brim_status brim_joining_begin(brim_joining *j, const brim_comm_ops *ops, void *self, double seconds);
void brim_joining_end(brim_joining *j);
/* [init] Call when the job is done, before the communicator is closed. If closing takes more than some seconds, because
 * another program keeps the launcher from answering, the process ends at once with `exit_status`. Call brim_joining_end
 * afterwards. */
brim_status brim_joining_leave(brim_joining *j, int exit_status);
#endif
