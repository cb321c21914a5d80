/* Ranks by MPI, any implementation of version 3 or later, and their collectives in the host's memory.
 *
 * Of MPI only messages between two ranks are used once it has started: what must not hang is waited for here, with a
 * time and a look at who is missing, and sums are made here, in the order of the ranks (collective.c). */
#ifndef COMM_MPI_MPI_H
#define COMM_MPI_MPI_H
/* What MPI's C++ bindings of old would bring along is not wanted. */
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

#include "brim/comm.h"

/* ---- wait.c: waiting by polling ---- */

/* Seconds since some point in the past. */
double mpi_now(void);

typedef struct mpi_wait {
  double start, last; /* mpi_now() */
} mpi_wait;
mpi_wait mpi_wait_begin(void);
/* Between two looks at something that has not come yet. A rank with a processor of its own looks all the time at first;
 * then others may have the processor, and after a millisecond it is left to them for some 50 us. Returns for how many
 * seconds it is being waited; those in which this process was stopped itself do not count. */
double mpi_wait_turn(mpi_wait *wait);

/* ---- job.c: beginning and end ---- */

/* ECOMM with what MPI says to the code that `doing` came back with. */
brim_status mpi_failed(int code, const char *doing);
#define MPI_TRY(call, doing)                                                                                           \
  do {                                                                                                                 \
    const int mpi_try_code = (call);                                                                                   \
    if (mpi_try_code != MPI_SUCCESS) return mpi_failed(mpi_try_code, (doing));                                         \
  } while (0)

/* [init] Once a process. *talk, *sums: a communicator each for the two halves, so that their messages never mix. */
brim_status mpi_join(brim_world *world, MPI_Comm *talk, MPI_Comm *sums);
/* [init] Ends MPI; a process that is still in there after `seconds` ends at once. */
void mpi_leave(double seconds);
/* [any time] See brim_comm_ops. */
void mpi_end_all(int32_t exit_status);

/* ---- segments.c: memory that ranks of a host share ---- */

/* [init] Before MPI starts in this process: where Open MPI puts its files. */
void mpi_segments_begin(void);
/* [any time] When nobody opens them any more. */
void mpi_segments_end(void);

/* ---- exchange.c: small messages, with a time ---- */

typedef struct mpi_talk {
  MPI_Comm comm;
  int rank, ranks;
  char *all;             /* what every rank gives, in their order; behind it the own */
  MPI_Request *requests; /* as many as ranks, + 2 */
  MPI_Request *notes;    /* likewise: of this rank's notes to the others, if it is rank 0 or 1 */
  MPI_Request note;      /* the next note, which any rank but 0 waits for all the time */
  int32_t noted;         /* what it says: a rank that is missing; -1: rank 0 is there and waits too */
  int32_t noting;        /* what this rank says */
  double seconds;        /* of the last exchange */
  bool is_over;          /* one has failed: messages are lost */
} mpi_talk;

/* [init] */
brim_status mpi_talk_open(mpi_talk *talk, MPI_Comm comm, const brim_world *world);
/* [init] Also of one that is all zeros. Waits for nobody. */
void mpi_talk_close(mpi_talk *talk);
/* [step] See brim_comm_ops. EPEER in place of ECOMM: another rank has told who is missing, and ends the job. */
brim_status mpi_exchange(mpi_talk *talk, const void *own, uint32_t bytes, void *all, double seconds, int32_t *late);

/* ---- collective.c ---- */

typedef struct mpi_sums mpi_sums;

/* [init] */
brim_status mpi_sums_open(MPI_Comm comm, const brim_world *world, mpi_sums **out);
/* [init] NULL: nothing to do. Waits for nobody. */
void mpi_sums_close(mpi_sums *sums);
/* [step] See brim_comm_ops. */
brim_status mpi_sums_start(mpi_sums *sums, const brim_collective *what);
brim_status mpi_sums_poll(mpi_sums *sums, uint64_t *done);

/* ---- sum.c ---- */

/* out[i] = ((from[0][i] + from[1][i]) + from[2][i]) + ...; `out` may be one of them. dtype: F32 or F64. */
void mpi_sum(uint32_t dtype, void *out, const void *const *from, int ranks, size_t count);

#endif
