/* A rank's line to the launcher: the process that has started all ranks of a job on this machine (launch.h). Over it
 * the launcher learns who is there, who ends and how, and serves exchanges where there is no MPI. It is a stream
 * socket, inherited by ranks that the launcher starts itself ($BRIM_RANK_FD); those that mpirun starts for it connect
 * to an abstract address ($BRIM_LAUNCHER; unix(7)), which leaves no file behind. A process that was started otherwise
 * has no line: then all of this does nothing. From the main thread. */
#ifndef BRIM_DIST_LINE_H
#define BRIM_DIST_LINE_H
#include <stdbool.h>
#include <stdint.h>

#include "brim/status.h"

/* ---- what goes over it: a head, and so many bytes ---- */

enum brim_line_kind {
  BRIM_LINE_HELLO = 1, /* first; value: the rank. Answered by WELCOME */
  BRIM_LINE_WELCOME,   /* a cpu_set_t, the processors to run on, or nothing; with it the launcher's standard output and
                          error (SCM_RIGHTS), if the rank was not born with them */
  BRIM_LINE_EXCHANGE,  /* seconds: the patience with others; answered by ALL when every rank has sent one */
  BRIM_LINE_ALL,
  BRIM_LINE_ASK,    /* may this rank say what has ended the job? Answered by ANSWER: value 1: yes */
  BRIM_LINE_ANSWER, /* */
  BRIM_LINE_FOLDER, /* the run's, for whom the launcher tells how to go on */
  BRIM_LINE_BYE,    /* value: the exit status that the rank will end with. Answered by GO when all have said it */
  BRIM_LINE_GO,
  BRIM_LINE_END /* value: the exit status with which the whole job ends, now */
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

/* [init] First of all that a rank does: says hello, takes the launcher's output and its share of the processors. EIO if
 * the launcher cannot be reached. */
brim_status brim_line_open(void);
bool brim_line_is_open(void);
/* [step] Of brim_comm_ops. The launcher looks at the clock: if a rank does not come, it ends the job. ECOMM: the
 * launcher is gone. */
brim_status brim_line_exchange(const void *own, uint32_t bytes, void *all, int32_t ranks, double seconds);
/* [any time] True for the first rank that asks, if the launcher knows of no rank that is gone: so one message comes and
 * not one from each. True without a line. */
bool brim_line_may_speak(void);
void brim_line_tell_folder(const char *folder);
/* The rank has done what it had to do and ends next; returns when all have said so. */
void brim_line_bye(int exit_status);
/* All other ranks are ended at once, and the launcher ends with this status. */
void brim_line_end(int exit_status);
#endif
