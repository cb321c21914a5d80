/* Collectives, which this file makes from messages between two ranks.
 *
 * A buffer has a part for each rank. A sum has two phases. First, every rank sends to each other rank that rank's part,
 * and adds up its own part in the order of the ranks. Then it sends the sum of its part to all ranks. So the bits of a
 * sum depend on the order of the ranks alone, not on the library, the hosts, the layout of gradients in buckets, or
 * whether the gradients are scattered. A broadcast first sends out the parts of rank 0 and then does the second phase;
 * each other kind of collective is one of the two phases. A rank sends and receives as much as with rings: two buffers
 * minus two parts. But it waits for only two messages in sequence, instead of twice the number of ranks. This matters
 * because a rank polls for messages only from time to time.
 *
 * Buffers are cut into pieces, each with some elements of every part, which limits the memory for the values of other
 * ranks. Several pieces are in flight at a time, so that a rank adds up one piece while another piece is sent. */
#include <stdlib.h>

#include "brim/host.h"
#include "mpi.h"

#define LANES 4
#define PIECE_BYTES ((size_t)1 << 20)     /* bytes of all parts of a piece together */
#define PART_BYTES_MIN ((size_t)16 << 10) /* minimum bytes of one part of a piece, with many ranks */
#define TAGS 8192 /* exceeds the number of pieces in flight; MPI guarantees more than 2 * TAGS tags */

enum phase { SCATTER, GATHER, DONE };

/* A piece in flight: elements [first, first + count) of each part. */
typedef struct lane {
  brim_collective what;
  uint64_t part; /* elements of a part; the last parts may have fewer, or none */
  uint64_t first, count;
  bool is_last; /* the last piece of its buffer */
  enum phase phase;
  int tag, open;         /* open: the number of requests */
  MPI_Request *requests; /* requests for a message from and to every rank */
  char *scratch;         /* the values of this rank's part from the other ranks, by rank */
} lane;

struct mpi_sums {
  MPI_Comm comm;
  int rank, ranks;
  size_t part_bytes; /* maximum bytes of a part in a piece */
  const void **from; /* for each rank, the values to add up */
  brim_collective waiting[BRIM_COLLECTIVES];
  /* Numbers of collectives; `cut` of them are in flight or done, and the next one up to the cursor. */
  uint64_t started, cut, done;
  uint64_t cursor;      /* elements of each part that are cut, of the collective being cut */
  uint64_t first, next; /* pieces in flight: lane[i % LANES] */
  lane lane[LANES];
};

/* ---- beginning and end ---- */

static bool make_lane(mpi_sums *s, lane *l)
{
  l->requests = brim_try_calloc(2 * (size_t)s->ranks, sizeof(MPI_Request));
  l->scratch = brim_try_calloc((size_t)s->ranks, s->part_bytes);
  return l->requests && l->scratch;
}

brim_status mpi_sums_open(MPI_Comm comm, const brim_world *world, mpi_sums **out)
{
  mpi_sums *s = brim_try_calloc(1, sizeof *s);
  bool is_made = s != NULL;
  *out = s;
  if (is_made) {
    *s = (mpi_sums){.comm = comm, .rank = world->rank, .ranks = world->ranks};
    s->part_bytes = PIECE_BYTES / (size_t)s->ranks & ~(size_t)63;
    if (s->part_bytes < PART_BYTES_MIN) s->part_bytes = PART_BYTES_MIN;
    s->from = brim_try_calloc((size_t)s->ranks, sizeof *s->from);
    is_made = s->from != NULL;
  }
  for (int i = 0; is_made && i < LANES; i++) is_made = make_lane(s, &s->lane[i]);
  if (is_made) return BRIM_OK;
  mpi_sums_close(s);
  *out = NULL;
  return brim_fail(BRIM_ENOMEM_HOST, "no memory for sums over %d ranks", (int)world->ranks);
}

void mpi_sums_close(mpi_sums *s)
{
  if (!s || s->first != s->next) return; /* messages may still arrive in the memory of s */
  for (int i = 0; i < LANES; i++) {
    free(s->lane[i].requests);
    free(s->lane[i].scratch);
  }
  free(s->from);
  free(s);
}

/* ---- a piece ---- */

static size_t element_bytes(uint32_t dtype)
{
  return dtype == BRIM_DTYPE_F64 ? 8 : dtype == BRIM_DTYPE_F32 ? 4 : 1;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
  return a < b ? a : b;
}

/* Returns the piece's share of a rank's part, and its bytes, which may be 0. */
static char *piece_of(const lane *l, int rank, size_t *bytes)
{
  const size_t element = element_bytes(l->what.dtype);
  const uint64_t first = smaller((uint64_t)rank * l->part + l->first, l->what.count);
  *bytes = (size_t)(smaller(first + l->count, l->what.count) - first) * element;
  return (char *)l->what.buffer + first * element;
}

static bool is_sum(const brim_collective *what)
{
  return what->kind == BRIM_ALL_REDUCE || what->kind == BRIM_REDUCE_SCATTER;
}

/* Sends the piece's share of rank `part`'s part to rank `rank`. */
static brim_status send_to(mpi_sums *s, lane *l, int part, int rank)
{
  size_t bytes;
  const char *piece = piece_of(l, part, &bytes);
  if (bytes == 0) return BRIM_OK;
  MPI_TRY(MPI_Isend(piece, (int)bytes, MPI_BYTE, rank, 2 * l->tag + (int)l->phase, s->comm, &l->requests[l->open++]),
          "cannot send to another rank");
  return BRIM_OK;
}

/* Receives the piece's share of rank `part`'s part into `into`, or into the buffer if `into` is NULL. */
static brim_status take_from(mpi_sums *s, lane *l, int part, int rank, char *into)
{
  size_t bytes;
  char *piece = piece_of(l, part, &bytes);
  if (bytes == 0) return BRIM_OK;
  MPI_TRY(MPI_Irecv(into ? into : piece, (int)bytes, MPI_BYTE, rank, 2 * l->tag + (int)l->phase, s->comm,
                    &l->requests[l->open++]),
          "cannot receive a message");
  return BRIM_OK;
}

static brim_status scatter(mpi_sums *s, lane *l)
{
  const bool sums = is_sum(&l->what);
  for (int i = 1; i < s->ranks; i++) {
    const int other = (s->rank + i) % s->ranks;
    if (sums || other == 0)
      BRIM_TRY(take_from(s, l, s->rank, other, sums ? l->scratch + (size_t)other * s->part_bytes : NULL));
    if (sums || s->rank == 0) BRIM_TRY(send_to(s, l, other, other));
  }
  return BRIM_OK;
}

static brim_status gather(mpi_sums *s, lane *l)
{
  const bool broadcast = l->what.kind == BRIM_BROADCAST; /* rank 0 has all values already */
  for (int i = 1; i < s->ranks; i++) {
    const int other = (s->rank + i) % s->ranks;
    if (!broadcast || s->rank != 0) BRIM_TRY(take_from(s, l, other, other, NULL));
    if (!broadcast || other != 0) BRIM_TRY(send_to(s, l, s->rank, other));
  }
  return BRIM_OK;
}

static brim_status enter(mpi_sums *s, lane *l, enum phase phase)
{
  l->phase = phase;
  l->open = 0;
  return phase == SCATTER ? scatter(s, l) : phase == GATHER ? gather(s, l) : BRIM_OK;
}

static brim_status advance(mpi_sums *s, lane *l)
{
  while (l->phase != DONE) {
    int is_done = 0;
    MPI_TRY(MPI_Testall(l->open, l->requests, &is_done, MPI_STATUSES_IGNORE), "cannot sum with the other ranks");
    if (!is_done) return BRIM_OK;
    if (l->phase == SCATTER && is_sum(&l->what)) {
      size_t bytes;
      char *own = piece_of(l, s->rank, &bytes);
      for (int r = 0; r < s->ranks; r++) s->from[r] = r == s->rank ? own : l->scratch + (size_t)r * s->part_bytes;
      mpi_sum(l->what.dtype, own, s->from, s->ranks, bytes / element_bytes(l->what.dtype));
    }
    BRIM_TRY(enter(s, l, l->phase == SCATTER && l->what.kind != BRIM_REDUCE_SCATTER ? GATHER : DONE));
  }
  return BRIM_OK;
}

/* ---- all ---- */

/* Cuts the next piece from the waiting collectives, and starts it. */
static brim_status cut(mpi_sums *s)
{
  lane *l = &s->lane[s->next % LANES];
  l->what = s->waiting[s->cut % BRIM_COLLECTIVES];
  l->part = l->what.count / (uint64_t)s->ranks + (l->what.count % (uint64_t)s->ranks != 0);
  l->first = s->cursor;
  l->count = smaller(l->part - l->first, s->part_bytes / element_bytes(l->what.dtype));
  l->is_last = l->first + l->count == l->part;
  l->tag = (int)(s->next % TAGS);
  s->cursor = l->is_last ? 0 : l->first + l->count;
  s->cut += l->is_last;
  s->next++;
  return enter(s, l, l->what.kind == BRIM_ALL_GATHER ? GATHER : SCATTER);
}

brim_status mpi_sums_poll(mpi_sums *s, uint64_t *done)
{
  for (uint64_t before = UINT64_MAX; before != s->first;) {
    before = s->first;
    while (s->cut < s->started && s->next - s->first < LANES) BRIM_TRY(cut(s));
    for (uint64_t i = s->first; i < s->next; i++) BRIM_TRY(advance(s, &s->lane[i % LANES]));
    for (; s->first < s->next && s->lane[s->first % LANES].phase == DONE; s->first++)
      s->done += s->lane[s->first % LANES].is_last;
  }
  *done = s->done;
  return BRIM_OK;
}

brim_status mpi_sums_start(mpi_sums *s, const brim_collective *what)
{
  const bool has_parts = what->kind == BRIM_REDUCE_SCATTER || what->kind == BRIM_ALL_GATHER;
  const bool is_number = what->dtype == BRIM_DTYPE_F32 || what->dtype == BRIM_DTYPE_F64;
  if (!is_number && (is_sum(what) || what->dtype != BRIM_DTYPE_U8))
    return brim_fail(BRIM_ENOTSUP, "comm/mpi does not %s elements of type %u", is_sum(what) ? "add up" : "pass on",
                     (unsigned)what->dtype);
  if (s->started - s->done >= BRIM_COLLECTIVES)
    return brim_fail(BRIM_EINVAL, "more than %d collectives are in progress", BRIM_COLLECTIVES);
  if (has_parts && what->count % (uint64_t)s->ranks != 0)
    return brim_fail(BRIM_EINVAL, "%llu elements cannot be divided equally among %d ranks",
                     (unsigned long long)what->count, s->ranks);
  uint64_t done;
  s->waiting[s->started++ % BRIM_COLLECTIVES] = *what;
  return mpi_sums_poll(s, &done);
}
