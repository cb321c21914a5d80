/* Exchanges. Every rank sends its bytes to rank 0, which thus detects missing ranks. The result goes back along a tree.
 *
 * Rank 0 waits for `seconds`. Then it tells the other ranks which rank is missing. The other ranks wait longer than
 * rank 0, so that only rank 0 reports, and names the right rank. A rank may have arrived much earlier than rank 0. So
 * as soon as rank 0 has to wait, it tells the others, and they restart their timers. If they receive nothing, rank 0
 * itself is missing; rank 1 notices this first and tells the others. */
#include <stdlib.h>
#include <string.h>

#include "brim/host.h"
#include "mpi.h"

enum { TAG_GIVE = 1, TAG_RESULT, TAG_NOTE };

#define HERE (-1)            /* a note: rank 0 is present and waits too */
#define LATE_SECONDS 5       /* the other ranks wait longer than rank 0, by at most twice this time */
#define NOTE_SECONDS 1       /* rank 0 announces within this time that it waits; also the limit for sending notes */
#define NOTICED_SECONDS 0.05 /* a rank other than 0 begins to look for notes after this time */

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
    return brim_fail(BRIM_ENOMEM_HOST, "no memory to exchange messages with %d ranks", t->ranks);
  for (size_t i = 0; i < ranks; i++) t->notes[i] = MPI_REQUEST_NULL;
  if (t->rank > 0)
    MPI_TRY(MPI_Irecv(&t->noted, 1, MPI_INT32_T, MPI_ANY_SOURCE, TAG_NOTE, comm, &t->note), "cannot receive a message");
  return BRIM_OK;
}

void mpi_talk_close(mpi_talk *t)
{
  if (t->is_over) return; /* messages may still arrive in the memory of t */
  if (t->all && t->note != MPI_REQUEST_NULL) {
    MPI_Cancel(&t->note);
    MPI_Wait(&t->note, MPI_STATUS_IGNORE);
  }
  free(t->all);
  free(t->requests);
  free(t->notes);
  *t = (mpi_talk){0};
}

/* ---- missing ranks ---- */

/* Sends a note to all ranks with a higher number, and does not wait until they receive it. */
static brim_status send_note(mpi_talk *t, int32_t late)
{
  t->noting = late;
  for (int r = t->rank + 1; r < t->ranks; r++)
    MPI_TRY(MPI_Isend(&t->noting, 1, MPI_INT32_T, r, TAG_NOTE, t->comm, &t->notes[r]), "cannot send to another rank");
  return BRIM_OK;
}

/* Returns whether all notes have been sent. */
static bool notes_are_sent(mpi_talk *t)
{
  int is_done = 0;
  return t->ranks == 1 || MPI_Testall(t->ranks - 1, t->notes + 1, &is_done, MPI_STATUSES_IGNORE) || is_done;
}

/* Tells the other ranks which rank is missing, if they still receive messages, so that only this rank reports it. */
static void report_missing(mpi_talk *t, int32_t late)
{
  mpi_wait wait = mpi_wait_begin();
  while (!notes_are_sent(t) && mpi_wait_turn(&wait) < NOTE_SECONDS) {
  }
  if (send_note(t, late) != BRIM_OK) return;
  while (!notes_are_sent(t) && mpi_wait_turn(&wait) < NOTE_SECONDS) {
  }
}

/* ---- rank 0 ---- */

/* Returns the first rank from `first` on whose request is open. */
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
            "cannot receive a message");
  for (;;) {
    MPI_TRY(MPI_Testall(t->ranks - 1, t->requests, &is_done, MPI_STATUSES_IGNORE), "cannot receive from another rank");
    if (is_done) return BRIM_OK;
    const double waited = mpi_wait_turn(&wait);
    if (waited > seconds) {
      report_missing(t, *late = first_open(t, 1, t->ranks - 1));
      return brim_fail(BRIM_ECOMM, "rank 0 has waited %g seconds for other ranks", seconds);
    }
    if (!is_noted && waited > note_at && notes_are_sent(t)) {
      BRIM_TRY(send_note(t, HERE));
      is_noted = true;
    }
  }
}

/* ---- the others ---- */

/* Handles a note, if one has arrived. Sets *extended if rank 0 is present. Fails with EPEER if rank 0 or rank 1 has
 * reported a missing rank. */
static brim_status handle_note(mpi_talk *t, bool *extended, int32_t *late)
{
  int is_done = 0;
  *extended = false;
  MPI_TRY(MPI_Test(&t->note, &is_done, MPI_STATUS_IGNORE), "cannot receive from another rank");
  if (!is_done) return BRIM_OK;
  if (t->noted != HERE) {
    *late = t->noted;
    return brim_fail(BRIM_EPEER, "another rank has waited for rank %d", (int)*late);
  }
  *extended = true;
  MPI_TRY(MPI_Irecv(&t->noted, 1, MPI_INT32_T, MPI_ANY_SOURCE, TAG_NOTE, t->comm, &t->note),
          "cannot receive a message");
  return BRIM_OK;
}

/* Sends this rank's bytes, which lie after the received ones, and waits for the result. */
static brim_status give(mpi_talk *t, uint32_t bytes, double seconds, int32_t *late)
{
  mpi_wait wait = mpi_wait_begin();
  const double longer = smaller(LATE_SECONDS, seconds / 4);
  const double patience = seconds + longer * (t->rank == 1 ? 1 : 2); /* if rank 0 is missing, rank 1 notices first */
  char *own = t->all + (size_t)t->ranks * bytes; /* this rank's bytes lie after the bytes to receive */
  int is_done = 0;
  MPI_TRY(
      MPI_Irecv(t->all, t->ranks * (int)bytes, MPI_BYTE, t->rank & (t->rank - 1), TAG_RESULT, t->comm, &t->requests[0]),
      "cannot receive a message");
  MPI_TRY(MPI_Isend(own, (int)bytes, MPI_BYTE, 0, TAG_GIVE, t->comm, &t->requests[1]), "cannot send to rank 0");
  for (;;) {
    bool extended = false;
    MPI_TRY(MPI_Testall(2, t->requests, &is_done, MPI_STATUSES_IGNORE), "cannot receive from another rank");
    if (is_done) return BRIM_OK;
    const double waited = mpi_wait_turn(&wait);
    if (waited > NOTICED_SECONDS) BRIM_TRY(handle_note(t, &extended, late));
    if (extended) wait.start = mpi_now() - NOTICED_SECONDS;
    if (waited > patience) {
      *late = 0;
      if (t->rank == 1) report_missing(t, *late);
      return brim_fail(BRIM_ECOMM, "this rank has waited %g seconds for rank 0", patience);
    }
  }
}

/* ---- all ---- */

/* Passes the result down a binomial tree: the children of rank r are r + 1, r + 2, r + 4 and so on, while the addend is
 * below the lowest set bit of r. */
static brim_status pass_on(mpi_talk *t, uint32_t bytes, double seconds, int32_t *late)
{
  mpi_wait wait = mpi_wait_begin();
  const int end = t->rank ? t->rank & -t->rank : t->ranks;
  int is_done = 0, count = 0;
  for (int step = 1; step < end && t->rank + step < t->ranks; step *= 2)
    MPI_TRY(
        MPI_Isend(t->all, t->ranks * (int)bytes, MPI_BYTE, t->rank + step, TAG_RESULT, t->comm, &t->requests[count++]),
        "cannot send to another rank");
  for (;;) {
    MPI_TRY(MPI_Testall(count, t->requests, &is_done, MPI_STATUSES_IGNORE), "cannot send to another rank");
    if (is_done) return BRIM_OK;
    if (mpi_wait_turn(&wait) > seconds) {
      *late = t->rank + (1 << first_open(t, 0, count));
      return brim_fail(BRIM_ECOMM, "another rank has not received its message within %g seconds", seconds);
    }
  }
}

brim_status mpi_exchange(mpi_talk *t, const void *own, uint32_t bytes, void *all, double seconds, int32_t *late)
{
  *late = -1;
  if (bytes > BRIM_EXCHANGE_BYTES)
    return brim_fail(BRIM_EINVAL, "%u bytes are too many for an exchange, at most %d", (unsigned)bytes,
                     BRIM_EXCHANGE_BYTES);
  if (t->is_over) return brim_fail(BRIM_ECOMM, "the connection between the ranks was lost before");
  t->seconds = seconds;
  memcpy(t->all + (t->rank ? (size_t)t->ranks * bytes : 0), own, bytes);
  brim_status status = t->rank ? give(t, bytes, seconds, late) : collect(t, bytes, seconds, late);
  if (status == BRIM_OK) status = pass_on(t, bytes, seconds, late);
  t->is_over = status != BRIM_OK;
  if (status == BRIM_OK && all) memcpy(all, t->all, (size_t)t->ranks * bytes);
  return status;
}
