/* See messages.h. A collective is done when `start` returns. */
#include "dist/messages.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "brim/tensor.h"

typedef struct messages {
  brim_world world;
  brim_talk talk;
  const brim_backend_ops *backend;
  void *self;
  char *own, *all; /* BRIM_EXCHANGE_BYTES for this rank, and for every rank */
  uint64_t done;
} messages;

static brim_status create(const void *params, void **self)
{
  (void)params;
  *self = brim_try_calloc(1, sizeof(messages));
  return *self ? BRIM_OK : brim_fail(BRIM_ENOMEM_HOST, "no host memory for a communicator");
}

static void destroy(void *self)
{
  messages *m = self;
  if (!m) return;
  free(m->own);
  free(m->all);
  free(m);
}

static brim_status connect_ranks(void *self, const brim_world *world, const brim_talk *talk,
                                 const brim_backend_ops *ops, void *backend, int32_t device)
{
  messages *m = self;
  (void)device;
  m->world = *world;
  m->talk = *talk;
  m->backend = ops;
  m->self = backend;
  m->own = brim_try_malloc(BRIM_EXCHANGE_BYTES);
  m->all = brim_try_malloc((size_t)world->ranks * BRIM_EXCHANGE_BYTES);
  if (m->own && m->all) return BRIM_OK;
  return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the messages of %d ranks", (int)world->ranks);
}

/* Adds up `count` values of all ranks, in the order of the ranks. */
static void add_f64(const messages *m, size_t count)
{
  const double *all = (const double *)(const void *)m->all;
  double *own = (double *)(void *)m->own;
  memcpy(own, all, count * sizeof *own);
  for (int32_t r = 1; r < m->world.ranks; r++)
    for (size_t i = 0; i < count; i++) own[i] += all[(size_t)r * count + i];
}

static void add_f32(const messages *m, size_t count)
{
  const float *all = (const float *)(const void *)m->all;
  float *own = (float *)(void *)m->own;
  memcpy(own, all, count * sizeof *own);
  for (int32_t r = 1; r < m->world.ranks; r++)
    for (size_t i = 0; i < count; i++) own[i] += all[(size_t)r * count + i];
}

/* Exchanges a piece of at most BRIM_EXCHANGE_BYTES. */
static brim_status exchange(messages *m, const brim_collective *what, char *at, size_t bytes)
{
  BRIM_TRY(m->backend->download(m->self, m->own, at, bytes));
  BRIM_TRY(m->talk.exchange(m->talk.context, m->own, (uint32_t)bytes, m->all));
  if (what->kind == BRIM_BROADCAST)
    memcpy(m->own, m->all, bytes);
  else if (what->dtype == BRIM_DTYPE_F64)
    add_f64(m, bytes / sizeof(double));
  else
    add_f32(m, bytes / sizeof(float));
  return m->backend->upload(m->self, at, m->own, bytes);
}

static brim_status start(void *self, const brim_collective *what, void *queue)
{
  messages *m = self;
  (void)queue;
  const bool adds = what->kind == BRIM_ALL_REDUCE && (what->dtype == BRIM_DTYPE_F64 || what->dtype == BRIM_DTYPE_F32);
  if (!adds && what->kind != BRIM_BROADCAST)
    return brim_fail(BRIM_ENOTSUP, "collective %u cannot go through messages", what->kind);
  const uint64_t bytes = what->count * brim_dtype_bytes(what->dtype);
  BRIM_TRY(m->backend->synchronize(m->self)); /* earlier work on the buffer */
  for (uint64_t at = 0; at < bytes; at += BRIM_EXCHANGE_BYTES) {
    const uint64_t rest = bytes - at;
    BRIM_TRY(exchange(m, what, (char *)what->buffer + at, rest < BRIM_EXCHANGE_BYTES ? rest : BRIM_EXCHANGE_BYTES));
  }
  m->done++;
  return BRIM_OK;
}

static brim_status poll_done(void *self, uint64_t *done)
{
  const messages *m = self;
  *done = m->done;
  return BRIM_OK;
}

static void disconnect(void *self)
{
  messages *m = self;
  m->done = 0;
}

static const brim_comm_ops ops = {
    .size = sizeof ops, .connect = connect_ranks, .start = start, .poll = poll_done, .disconnect = disconnect};
const brim_plugin brim_comm_messages = {.size = sizeof(brim_plugin),
                                        .kind = BRIM_COMM,
                                        .id = "messages",
                                        .help = "collectives through host memory",
                                        .ops = &ops,
                                        .create = create,
                                        .destroy = destroy};
