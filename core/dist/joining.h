/* Bounds the time in which a rank joins its job, and in which it leaves. Until MPI has started, no rank can tell
 * another that it is missing, and MPI waits for as long as it takes: so each looks at its own clock, on a thread of its
 * own. Signals end the process meanwhile, also where the communicator has blocked them for the thread that joins. */
#ifndef BRIM_DIST_JOINING_H
#define BRIM_DIST_JOINING_H
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

#include "brim/comm.h"

typedef struct brim_joining {
  const brim_comm_ops *ops; /* whose end_all ends the job */
  void *self;
  double seconds;  /* to join; the time in which this process was stopped does not count */
  int exit_status; /* of a process that leaves; -1: it joins */
  int32_t rank, ranks;
  int signals, done; /* files */
  bool is_watching;
  pthread_t thread;
  sigset_t before;
} brim_joining;

/* [init] From the thread that joins, which ends with brim_joining_end what it has begun. EIO. */
brim_status brim_joining_begin(brim_joining *j, const brim_comm_ops *ops, void *self, double seconds);
void brim_joining_end(brim_joining *j);
/* [init] The job is done, and the communicator is only to end: a process that is still at it after some seconds ends at
 * once, with `exit_status`, as another program may keep what started the ranks from answering. brim_joining_end
 * follows. */
brim_status brim_joining_leave(brim_joining *j, int exit_status);
#endif
