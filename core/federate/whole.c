#include "federate/whole.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/convert.h"
#include "base/file.h"

#define PART 256 /* values that are converted at a time */

struct brim_whole {
  brim_updates_plan plan;
  brim_arena arena; /* owns all arrays */
  int fd;
  char path[BRIM_PATH_MAX]; /* the file's former path, for messages */
  double *block;            /* [rows, plan.block] */
  const double **update;    /* [rows] its rows */
  void *read;               /* [plan.block] values of the file */
  double *out;              /* [plan.largest] the result for a tensor, or the tensor's sums */
  void *scratch;            /* scratch memory of the aggregator */
};

/* ---- the file ---- */

static brim_status check_disk(const brim_whole *w, const char *folder)
{
  struct statvfs disk;
  char needed[32], room[32];
  if (statvfs(folder, &disk) != 0) return BRIM_OK; /* a full disk then causes an error when brim writes */
  const uint64_t left = (uint64_t)disk.f_bavail * disk.f_frsize;
  if (left >= w->plan.file_bytes) return BRIM_OK;
  return brim_fail(BRIM_EBUDGET,
                   "the updates of a round take %s (%lld clients, %lld values each), and the disk of '%s' has %s left\n"
                   "set clients_per_round lower, run.dir to a folder on another disk, or aggregator=fedavg, which "
                   "keeps no updates",
                   brim_format_bytes(needed, sizeof needed, w->plan.file_bytes), (long long)w->plan.rows,
                   (long long)w->plan.values, folder, brim_format_bytes(room, sizeof room, left));
}

static brim_status open_whole(brim_whole *w, const char *folder, int32_t rank)
{
  const brim_updates_plan *p = &w->plan;
  if (!BRIM_ARENA_TRY(&w->arena, w->block, p->rows * p->block) || !BRIM_ARENA_TRY(&w->arena, w->update, p->rows) ||
      !BRIM_ARENA_TRY(&w->arena, w->out, p->largest) ||
      !(w->read = brim_arena_try(&w->arena, (size_t)p->block * brim_dtype_bytes(p->dtype))) ||
      !(w->scratch = brim_arena_try(&w->arena, p->scratch_bytes)))
    return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the updates of %lld clients", (long long)p->rows);
  for (int64_t k = 0; k < p->rows; k++) w->update[k] = w->block + k * p->block;
  char name[64];
  snprintf(name, sizeof name, "updates.%d.tmp", (int)rank);
  BRIM_TRY(brim_path_join(w->path, folder, name));
  BRIM_TRY(check_disk(w, folder));
  return brim_file_create_unnamed(w->path, w->plan.file_bytes, &w->fd);
}

brim_status brim_whole_open(const brim_updates_plan *plan, const char *folder, int32_t rank, brim_whole **out)
{
  brim_whole *w = brim_try_calloc(1, sizeof *w);
  if (!w) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the updates of a round");
  w->plan = *plan;
  w->fd = -1;
  const brim_status status = open_whole(w, folder, rank);
  if (status == BRIM_OK)
    *out = w;
  else
    brim_whole_close(w, false);
  return status;
}

void brim_whole_close(brim_whole *w, bool is_lost)
{
  if (!w) return;
  if (w->fd >= 0) (void)close(w->fd);
  if (is_lost) return;
  brim_arena_release(&w->arena);
  free(w);
}

/* ---- rows ---- */

static uint64_t offset_of(const brim_whole *w, int64_t row, int64_t value)
{
  return (uint64_t)row * w->plan.row_bytes + (uint64_t)value * brim_dtype_bytes(w->plan.dtype);
}

/* Reads at most plan.block values as doubles. */
static brim_status read_values(const brim_whole *w, int64_t row, int64_t first, int64_t count, double *out)
{
  const size_t bytes = (size_t)count * brim_dtype_bytes(w->plan.dtype);
  BRIM_TRY(brim_file_read_at(w->fd, w->path, w->read, bytes, offset_of(w, row, first)));
  brim_convert(BRIM_DTYPE_F64, out, w->plan.dtype, w->read, (size_t)count);
  return BRIM_OK;
}

/* Computes own -= global. Adding 0 makes negative zeros positive, as sums over ranks would. */
static void subtract(uint32_t dtype, char *own, const char *global, int64_t count)
{
  double a[PART], b[PART];
  const size_t each = brim_dtype_bytes(dtype);
  for (int64_t at = 0; at < count; at += PART) {
    const size_t n = (size_t)(count - at < PART ? count - at : PART), skip = (size_t)at * each;
    brim_convert(BRIM_DTYPE_F64, a, dtype, own + skip, n);
    brim_convert(BRIM_DTYPE_F64, b, dtype, global + skip, n);
    for (size_t i = 0; i < n; i++) a[i] = a[i] - b[i] + 0.0;
    brim_convert(dtype, own + skip, BRIM_DTYPE_F64, a, n);
  }
}

brim_status brim_whole_write(const brim_whole *w, int64_t row, brim_exec *lane, const brim_program *adopt, void *values)
{
  const brim_graph *g = adopt->graph;
  int64_t first = 0;
  for (size_t i = 0; i < g->parameter_count; i++) {
    const brim_tensor *own = g->parameter[i].value, *global = g->global[i];
    if (!brim_parameter_is_sent(&g->parameter[i])) continue;
    const int64_t count = brim_shape_count(&global->shape);
    char *from = (char *)values + global->bytes;
    BRIM_TRY(brim_exec_read(lane, adopt, own, values));
    BRIM_TRY(brim_exec_read(lane, adopt, global, from));
    subtract(w->plan.dtype, values, from, count);
    BRIM_TRY(brim_file_write_at(w->fd, w->path, values, global->bytes, offset_of(w, row, first)));
    first += count;
  }
  return BRIM_OK;
}

/* ---- sums ---- */

/* Handles a tensor of sums; its values begin at index `first` of each row. */
typedef brim_status (*tensor_fn)(void *context, const brim_program *serve, const brim_tensor *sum, int64_t first);

static brim_status for_each_sum(brim_exec *server, tensor_fn handle, void *context)
{
  const brim_program *serve = brim_plan_program(brim_exec_plan(server), BRIM_PROGRAM_UPDATE, 0);
  int64_t first = 0;
  for (size_t i = 0; i < serve->graph->tensor_count; i++) {
    const brim_tensor *t = serve->graph->tensor[i];
    if (t->role != BRIM_ROLE_GRADIENT) continue;
    BRIM_TRY(handle(context, serve, t, first));
    first += brim_shape_count(&t->shape);
  }
  return BRIM_OK;
}

typedef struct copy {
  const brim_whole *whole;
  brim_exec *server;
  int64_t row;
} copy;

static brim_status put(void *context, const brim_program *serve, const brim_tensor *sum, int64_t first)
{
  const copy *c = context;
  const brim_whole *w = c->whole;
  const int64_t count = brim_shape_count(&sum->shape);
  for (int64_t at = 0; at < count; at += w->plan.block) {
    const int64_t n = count - at < w->plan.block ? count - at : w->plan.block;
    BRIM_TRY(read_values(w, c->row, first + at, n, w->out + at));
  }
  return brim_exec_write(c->server, serve, sum, w->out);
}

static brim_status take(void *context, const brim_program *serve, const brim_tensor *sum, int64_t first)
{
  const copy *c = context;
  const brim_whole *w = c->whole;
  const int64_t count = brim_shape_count(&sum->shape);
  const size_t each = brim_dtype_bytes(w->plan.dtype);
  BRIM_TRY(brim_exec_read(c->server, serve, sum, w->out));
  for (int64_t at = 0; at < count; at += w->plan.block) {
    const size_t n = (size_t)(count - at < w->plan.block ? count - at : w->plan.block);
    brim_convert(w->plan.dtype, w->read, BRIM_DTYPE_F64, w->out + at, n);
    BRIM_TRY(brim_file_write_at(w->fd, w->path, w->read, n * each, offset_of(w, c->row, first + at)));
  }
  return BRIM_OK;
}

brim_status brim_whole_put(const brim_whole *w, int64_t row, brim_exec *server)
{
  return for_each_sum(server, put, &(copy){w, server, row});
}

brim_status brim_whole_take(const brim_whole *w, int64_t row, brim_exec *server)
{
  return for_each_sum(server, take, &(copy){w, server, row});
}

/* ---- the aggregator ---- */

typedef struct merging {
  brim_whole *whole;
  const brim_whole_round *round;
  brim_aggregation *aggregation;
  brim_exec *server;
  bool looks; /* in the first pass */
} merging;

static brim_status handle_block(const merging *m, int64_t first, int64_t count, double *out)
{
  brim_whole *w = m->whole;
  const brim_updates block = {.size = sizeof block,
                              .clients = m->round->count,
                              .arrival = m->round->arrival,
                              .first = first,
                              .values = count,
                              .update = w->update,
                              .scratch = w->scratch};
  for (int64_t k = 0; k < m->round->count; k++)
    BRIM_TRY(read_values(w, m->round->row[k], first, count, w->block + k * w->plan.block));
  return brim_aggregation_merge(m->aggregation, &block, m->looks ? NULL : out);
}

static brim_status merge_tensor(void *context, const brim_program *serve, const brim_tensor *sum, int64_t first)
{
  const merging *m = context;
  const int64_t count = brim_shape_count(&sum->shape), most = m->whole->plan.block;
  double *out = m->whole->out;
  for (int64_t at = 0; at < count; at += most)
    BRIM_TRY(handle_block(m, first + at, count - at < most ? count - at : most, out + at));
  return m->looks ? BRIM_OK : brim_exec_write(m->server, serve, sum, out);
}

brim_status brim_whole_merge(brim_whole *w, const brim_whole_round *round, brim_aggregation *aggregation,
                             brim_exec *server)
{
  merging m = {w, round, aggregation, server, true};
  memset(w->scratch, 0, w->plan.scratch_bytes);
  if (brim_aggregation_looks(aggregation)) BRIM_TRY(for_each_sum(server, merge_tensor, &m));
  m.looks = false;
  return for_each_sum(server, merge_tensor, &m);
}
