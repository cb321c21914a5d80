/* Exchanges: every rank gives its bytes to rank 0, which so sees who is missing, and the result goes down a tree.
 *
 * Rank 0 waits for `seconds`, then it tells the others who is missing. They wait longer, so that one rank speaks and
 * names the right one; and as one of them may have come much earlier than rank 0, rank 0 says that it is there once it
 * has to wait, from when on they wait anew. If they hear nothing, it is rank 0 that is missing; rank 1 notices first,
 * and tells the others. */
#include <stdlib.h>
#include <string.h>

#include "brim/host.h"
#include "mpi.h"

enum { TAG_GIVE = 1, TAG_RESULT, TAG_NOTE };

#define HERE (-1)            /* a note: rank 0 is there and waits too */
#define LATE_SECONDS 5       /* how much longer the others wait, at most */
#define NOTE_SECONDS 1       /* when rank 0 says that it waits; for how long it tries to say who is missing */
#define NOTICED_SECONDS 0.05 /* when others look whether rank 0 has said something */

static double smaller(double a, double b)
{
  return a < b ? a : b;
}

brim_status mpi_talk_open(mpi_talk *t, MPI_Comm comm, const brim_world *world)
{
  const size_t ranks = (size_t)world->ranks;
  *t = (mpi_talk){.comm = comm, .rank = world->rank, .ranks = world->ranks, .note = MPI_REQUEST_NULL, .seconds = 60};
  t->all = brim_try_calloc(ranks + 1, BRIM_EXCHANGE_BYTES);
  t->requests = brim_try_calloc(ranks + 2, sizeof(MPI_Request));
  t->notes = brim_try_calloc(ranks, sizeof(MPI_Request));
  if (!t->all || !t->requests || !t->notes)
    return brim_fail(BRIM_ENOMEM_HOST, "no memory to talk with %d ranks", t->ranks);
  for (size_t i = 0; i < ranks; i++) t->notes[i] = MPI_REQUEST_NULL;
  if (t->rank > 0)
    MPI_TRY(MPI_Irecv(&t->noted, 1, MPI_INT32_T, MPI_ANY_SOURCE, TAG_NOTE, comm, &t->note), "MPI takes no message");
  return BRIM_OK;
}

void mpi_talk_close(mpi_talk *t)
{
  if (t->is_over) return; /* messages may still come into its memory */
  if (t->all && t->note != MPI_REQUEST_NULL) {
    MPI_Cancel(&t->note);
    MPI_Wait(&t->note, MPI_STATUS_IGNORE);
  }
  free(t->all);
  free(t->requests);
  free(t->notes);
  *t = (mpi_talk){0};
}

/* ---- who is missing ---- */

/* To all others but rank 0. Does not wait for them to take it. */
static brim_status tell(mpi_talk *t, int32_t late)
{
  t->noting = late;
  for (int r = t->rank + 1; r < t->ranks; r++)
    MPI_TRY(MPI_Isend(&t->noting, 1, MPI_INT32_T, r, TAG_NOTE, t->comm, &t->notes[r]), "no message to another rank");
  return BRIM_OK;
}

/* Whether all that was told is on its way. */
static bool is_told(mpi_talk *t)
{
  int is_done = 0;
  return t->ranks == 1 || MPI_Testall(t->ranks - 1, t->notes + 1, &is_done, MPI_STATUSES_IGNORE) || is_done;
}

/* As far as they take it: this rank speaks, and they need not. */
static void tell_missing(mpi_talk *t, int32_t late)
{
  mpi_wait wait = mpi_wait_begin();
  while (!is_told(t) && mpi_wait_turn(&wait) < NOTE_SECONDS) {
  }
  if (tell(t, late) != BRIM_OK) return;
  while (!is_told(t) && mpi_wait_turn(&wait) < NOTE_SECONDS) {
  }
}

/* ---- rank 0 ---- */

/* The first of the requests that is not done, which are those of the ranks from `first` on. */
static int first_open(const mpi_talk *t, int first, int count)
{
  int at = 0, is_done = 1;
  while (at < count && MPI_Request_get_status(t->requests[at], &is_done, MPI_STATUS_IGNORE) == MPI_SUCCESS && is_done)
    at++;
  return first + at;
}

static brim_status collect(mpi_talk *t, uint32_t bytes, double seconds, int32_t *late)
{
  mpi_wait wait = mpi_wait_begin();
  const double note_at = smaller(NOTE_SECONDS, seconds / 16);
  bool is_noted = false;
  int is_done = 0;
  for (int r = 1; r < t->ranks; r++)
    MPI_TRY(MPI_Irecv(t->all + (size_t)r * bytes, (int)bytes, MPI_BYTE, r, TAG_GIVE, t->comm, &t->requests[r - 1]),
            "MPI takes no message");
  for (;;) {
    MPI_TRY(MPI_Testall(t->ranks - 1, t->requests, &is_done, MPI_STATUSES_IGNORE), "no message from another rank");
    if (is_done) return BRIM_OK;
    const double waited = mpi_wait_turn(&wait);
    if (waited > seconds) {
      tell_missing(t, *late = first_open(t, 1, t->ranks - 1));
      return brim_fail(BRIM_ECOMM, "other ranks have been waited for, for %g seconds", seconds);
    }
    if (!is_noted && waited > note_at && is_told(t)) {
      BRIM_TRY(tell(t, HERE));
      is_noted = true;
    }
  }
}

/* ---- the others ---- */

/* *extended: rank 0 is there. EPEER: it, or rank 1, has said who is missing. */
static brim_status heed(mpi_talk *t, bool *extended, int32_t *late)
{
  int is_done = 0;
  *extended = false;
  MPI_TRY(MPI_Test(&t->note, &is_done, MPI_STATUS_IGNORE), "no message from another rank");
  if (!is_done) return BRIM_OK;
  if (t->noted != HERE) {
    *late = t->noted;
    return brim_fail(BRIM_EPEER, "another rank has waited for rank %d", (int)*late);
  }
  *extended = true;
  MPI_TRY(MPI_Irecv(&t->noted, 1, MPI_INT32_T, MPI_ANY_SOURCE, TAG_NOTE, t->comm, &t->note), "MPI takes no message");
  return BRIM_OK;
}

/* Gives what is behind the others', and waits for all. */
static brim_status give(mpi_talk *t, uint32_t bytes, double seconds, int32_t *late)
{
  mpi_wait wait = mpi_wait_begin();
  const double longer = smaller(LATE_SECONDS, seconds / 4);
  const double patience = seconds + longer * (t->rank == 1 ? 1 : 2); /* if rank 0 is gone, one finds out first */
  char *own = t->all + (size_t)t->ranks * bytes;                     /* behind what comes */
  int is_done = 0;
  MPI_TRY(
      MPI_Irecv(t->all, t->ranks * (int)bytes, MPI_BYTE, t->rank & (t->rank - 1), TAG_RESULT, t->comm, &t->requests[0]),
      "MPI takes no message");
  MPI_TRY(MPI_Isend(own, (int)bytes, MPI_BYTE, 0, TAG_GIVE, t->comm, &t->requests[1]), "no message to rank 0");
  for (;;) {
    bool extended = false;
    MPI_TRY(MPI_Testall(2, t->requests, &is_done, MPI_STATUSES_IGNORE), "no message from another rank");
    if (is_done) return BRIM_OK;
    const double waited = mpi_wait_turn(&wait);
    if (waited > NOTICED_SECONDS) BRIM_TRY(heed(t, &extended, late));
    if (extended) wait.start = mpi_now() - NOTICED_SECONDS;
    if (waited > patience) {
      *late = 0;
      if (t->rank == 1) tell_missing(t, *late);
      return brim_fail(BRIM_ECOMM, "rank 0 has been waited for, for %g seconds", patience);
    }
  }
}

/* ---- all ---- */

/* Down a binomial tree: rank r's children are r + 1, r + 2, r + 4 ..., as long as that is less than r's lowest bit. */
static brim_status pass_on(mpi_talk *t, uint32_t bytes, double seconds, int32_t *late)
{
  mpi_wait wait = mpi_wait_begin();
  const int end = t->rank ? t->rank & -t->rank : t->ranks;
  int is_done = 0, count = 0;
  for (int step = 1; step < end && t->rank + step < t->ranks; step *= 2)
    MPI_TRY(
        MPI_Isend(t->all, t->ranks * (int)bytes, MPI_BYTE, t->rank + step, TAG_RESULT, t->comm, &t->requests[count++]),
        "no message to another rank");
  for (;;) {
    MPI_TRY(MPI_Testall(count, t->requests, &is_done, MPI_STATUSES_IGNORE), "no message to another rank");
    if (is_done) return BRIM_OK;
    if (mpi_wait_turn(&wait) > seconds) {
      *late = t->rank + (1 << first_open(t, 0, count));
      return brim_fail(BRIM_ECOMM, "another rank has not taken what it asked for within %g seconds", seconds);
    }
  }
}

brim_status mpi_exchange(mpi_talk *t, const void *own, uint32_t bytes, void *all, double seconds, int32_t *late)
{
  *late = -1;
  if (bytes > BRIM_EXCHANGE_BYTES)
    return brim_fail(BRIM_EINVAL, "%u bytes are too many for an exchange: %d", (unsigned)bytes, BRIM_EXCHANGE_BYTES);
  if (t->is_over) return brim_fail(BRIM_ECOMM, "the ranks have lost each other before");
  t->seconds = seconds;
  memcpy(t->all + (t->rank ? (size_t)t->ranks * bytes : 0), own, bytes);
  brim_status status = t->rank ? give(t, bytes, seconds, late) : collect(t, bytes, seconds, late);
  if (status == BRIM_OK) status = pass_on(t, bytes, seconds, late);
  t->is_over = status != BRIM_OK;
  if (status == BRIM_OK && all) memcpy(all, t->all, (size_t)t->ranks * bytes);
  return status;
}
