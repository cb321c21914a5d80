/* Ranks connected by MPI (any implementation of version 3 or later), and their collectives in host memory.
 *
 * After it has started MPI, the plugin uses only MPI's messages between two ranks. Its own code waits with a timeout,
 * so that it can name missing ranks, and computes sums in the order of the ranks (collective.c). */
#ifndef COMM_MPI_MPI_H
#define COMM_MPI_MPI_H
/* These macros leave out MPI's old C++ bindings. */
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>

#include "brim/comm.h"

/* ---- wait.c: waiting by polling ---- */

/* Returns the time in seconds since a fixed point. */
double mpi_now(void);

typedef struct mpi_wait {
  double start, last; /* mpi_now() */
} mpi_wait;
mpi_wait mpi_wait_begin(void);
/* Called between two polls. At first, a rank with its own CPU polls continuously. Then it yields the CPU, and after a
 * millisecond it sleeps for about 50 us. Returns the seconds waited so far, without the time in which this process was
 * stopped. */
double mpi_wait_turn(mpi_wait *wait);

/* ---- job.c: beginning and end ---- */

/* Fails with ECOMM and MPI's text for the error code of `doing`. */
brim_status mpi_failed(int code, const char *doing);
#define MPI_TRY(call, doing)                                                                                           \
  do {                                                                                                                 \
    const int mpi_try_code = (call);                                                                                   \
    if (mpi_try_code != MPI_SUCCESS) return mpi_failed(mpi_try_code, (doing));                                         \
  } while (0)

/* [init] Joins the other ranks; may be called once in a process. *talk and *sums are separate communicators, so that
 * messages of exchanges and sums never mix. */
brim_status mpi_join(brim_world *world, MPI_Comm *talk, MPI_Comm *sums);
/* [init] Ends MPI. If that takes longer than `seconds`, the process exits at once. */
void mpi_leave(double seconds);
/* [any time] See brim_comm_ops. */
void mpi_end_all(int32_t exit_status);

/* ---- segments.c: memory that ranks of a host share ---- */

/* [init] Chooses Open MPI's folder for shared memory; called before MPI starts in this process. */
void mpi_segments_begin(void);
/* [any time] Removes this folder; called when no rank will open its files any more. */
void mpi_segments_end(void);

/* ---- exchange.c: small messages, with a timeout ---- */

typedef struct mpi_talk {
  MPI_Comm comm;
  int rank, ranks;
  char *all;             /* the bytes of all ranks in their order, then this rank's own bytes */
  MPI_Request *requests; /* [ranks + 2] */
  MPI_Request *notes;    /* [ranks]: the requests of this rank's notes to the others, if it is rank 0 or 1 */
  MPI_Request note;      /* a pending receive for the next note; rank 0 has none */
  int32_t noted;         /* the content of that note: a missing rank; -1: rank 0 is present and waits too */
  int32_t noting;        /* this rank's own note */
  double seconds;        /* timeout of the last exchange */
  bool is_over;          /* an exchange has failed, and its messages are lost */
} mpi_talk;

/* [init] */
brim_status mpi_talk_open(mpi_talk *talk, MPI_Comm comm, const brim_world *world);
/* Does not wait for other ranks. The fields of `talk` may be all zeros. [init] */
void mpi_talk_close(mpi_talk *talk);
/* [step] See brim_comm_ops. Fails with EPEER instead of ECOMM if another rank has reported the missing rank and ends
 * the job. */
brim_status mpi_exchange(mpi_talk *talk, const void *own, uint32_t bytes, void *all, double seconds, int32_t *late);

/* ---- collective.c ---- */

typedef struct mpi_sums mpi_sums;

/* [init] */
brim_status mpi_sums_open(MPI_Comm comm, const brim_world *world, mpi_sums **out);
/* Does not wait for other ranks; NULL is allowed. [init] */
void mpi_sums_close(mpi_sums *sums);
/* [step] See brim_comm_ops. */
brim_status mpi_sums_start(mpi_sums *sums, const brim_collective *what);
brim_status mpi_sums_poll(mpi_sums *sums, uint64_t *done);

/* ---- sum.c ---- */

/* out[i] = ((from[0][i] + from[1][i]) + from[2][i]) + ... `out` may be one of the operands. dtype: F32 or F64. */
void mpi_sum(uint32_t dtype, void *out, const void *const *from, int ranks, size_t count);

#endif
