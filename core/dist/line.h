/* A line is a rank's connection to the launcher, the process that started all ranks of the job on this machine
 * (launch.h). Through it the launcher knows which ranks are present and how each ends, and serves exchanges without
 * MPI. It is a stream socket, inherited by ranks that the launcher starts itself ($BRIM_RANK_FD); ranks that mpirun
 * starts for the launcher connect to an abstract address ($BRIM_LAUNCHER; unix(7)), which needs no file. A process that
 * was started otherwise has no line, and these functions do nothing. Call them from the main thread. */
#ifndef BRIM_DIST_LINE_H
#define BRIM_DIST_LINE_H
#include <stdbool.h>
#include <stdint.h>

#include "brim/status.h"

/* ---- messages: a head, followed by `bytes` bytes ---- */

enum brim_line_kind {
  BRIM_LINE_HELLO = 1, /* the first message; value: the rank. Answered by WELCOME */
  BRIM_LINE_WELCOME, /* a cpu_set_t with the processors to run on, or nothing. Passes the launcher's standard output and
                        error (SCM_RIGHTS), unless the rank inherited them */
  BRIM_LINE_EXCHANGE, /* seconds: the time to wait for the other ranks; answered by ALL when every rank has sent an
                         EXCHANGE */
  BRIM_LINE_ALL,
  BRIM_LINE_ASK, /* asks whether this rank may report why the job ends; answered by ANSWER, with value 1 for yes */
  BRIM_LINE_ANSWER,
  BRIM_LINE_FOLDER, /* the run's folder, which the launcher prints in its advice on resuming */
  BRIM_LINE_BYE,    /* value: the exit status that the rank will end with. Answered by GO when all ranks have sent it */
  BRIM_LINE_GO,
  BRIM_LINE_END /* value: the exit status with which the whole job ends at once */
};
typedef struct brim_line_head {
  uint32_t kind; /* enum brim_line_kind */
  uint32_t bytes;
  int32_t value, unused;
  double seconds;
} brim_line_head;

#define BRIM_LINE_ADDRESS "BRIM_LAUNCHER"
#define BRIM_LINE_FD "BRIM_RANK_FD"

/* ---- the rank's end ---- */

/* [init] A rank calls this first: sends HELLO, and takes over the launcher's output streams and the rank's share of the
 * processors. EIO if the launcher cannot be reached. */
brim_status brim_line_open(void);
bool brim_line_is_open(void);
/* [step] As in brim_comm_ops. The launcher watches the time: if a rank is late, it ends the job. ECOMM if the launcher
 * has ended. */
brim_status brim_line_exchange(const void *own, uint32_t bytes, void *all, int32_t ranks, double seconds);
/* [any time] Whether this rank may print its error: true for the first rank that asks, unless a rank is known to have
 * died, so that the job prints one message instead of one per rank. True without a line. */
bool brim_line_may_print(void);
void brim_line_send_folder(const char *folder);
/* Call when the rank has finished its work and is about to end; returns when all ranks have called it. */
void brim_line_leave(int exit_status);
/* Ends all other ranks at once; the launcher ends with this status. */
void brim_line_end(int exit_status);
#endif
