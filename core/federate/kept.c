#include "federate/kept.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/arena.h"

typedef struct buffer {
  size_t parameter; /* its index, the same in all plans */
  int64_t count;    /* values per client */
  uint64_t bytes, at;
  const char *name; /* its name in checkpoints */
} buffer;

struct brim_kept {
  brim_arena arena; /* for names */
  buffer *buffer;
  size_t count;
  uint32_t dtype;
  int64_t clients;
  uint64_t bytes;     /* per client */
  char *values;       /* buffer by buffer, each [clients, count]: a tensor of a checkpoint */
  int32_t *last_kept; /* [clients] the last round of each client that was kept, from 1; 0: none */
  char *staged;       /* [clients of a round] with `bytes` each, buffer by buffer */
};

static brim_status list_buffers(brim_kept *k, const brim_graph *g)
{
  k->buffer = brim_try_calloc(g->parameter_count, sizeof *k->buffer);
  if (!k->buffer) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the list of a model's buffers");
  for (size_t i = 0; i < g->parameter_count; i++) {
    const brim_tensor *value = g->parameter[i].value;
    if (!g->parameter[i].is_buffer || g->parameter[i].is_frozen) continue;
    k->buffer[k->count] = (buffer){i, brim_shape_count(&value->shape), value->bytes, k->bytes, NULL};
    k->buffer[k->count++].name = brim_arena_printf(&k->arena, "kept.%s", value->name);
    k->bytes += value->bytes;
    k->dtype = value->dtype;
  }
  return BRIM_OK;
}

static brim_status open_kept(brim_kept *k, const brim_setup *setup, const brim_graph *g, int64_t staged)
{
  BRIM_TRY(list_buffers(k, g));
  if (k->bytes != brim_setup_kept_bytes(setup))
    return brim_fail(BRIM_EINTERNAL, "clients keep %" PRIu64 " bytes each, but %" PRIu64 " were planned", k->bytes,
                     brim_setup_kept_bytes(setup));
  k->clients = setup->partition.clients;
  k->values = brim_try_calloc((size_t)k->clients, k->bytes);
  k->last_kept = brim_try_calloc((size_t)k->clients, sizeof *k->last_kept);
  k->staged = brim_try_calloc((size_t)staged, k->bytes);
  if (k->values && k->last_kept && k->staged) return BRIM_OK;
  return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the running statistics of %" PRId64 " clients", k->clients);
}

brim_status brim_kept_open(const brim_setup *setup, const brim_program *adopt, int64_t staged, brim_kept **out)
{
  *out = NULL;
  if (brim_setup_kept_bytes(setup) == 0) return BRIM_OK;
  brim_kept *k = brim_try_calloc(1, sizeof *k);
  if (!k) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for what clients keep");
  const brim_status status = open_kept(k, setup, adopt->graph, staged);
  if (status == BRIM_OK)
    *out = k;
  else
    brim_kept_close(k);
  return status;
}

void brim_kept_close(brim_kept *k)
{
  if (!k) return;
  brim_arena_release(&k->arena);
  free(k->buffer);
  free(k->values);
  free(k->last_kept);
  free(k->staged);
  free(k);
}

/* The values of one client in a buffer. */
static char *values_of(const brim_kept *k, const buffer *b, int64_t client)
{
  return k->values + b->at * (uint64_t)k->clients + b->bytes * (uint64_t)client;
}

brim_status brim_kept_write(const brim_kept *k, brim_exec *lane, const brim_program *adopt, int64_t client)
{
  if (!k || k->last_kept[client] == 0) return BRIM_OK;
  for (const buffer *b = k->buffer; b < k->buffer + k->count; b++)
    BRIM_TRY(brim_exec_write(lane, adopt, adopt->graph->parameter[b->parameter].value, values_of(k, b, client)));
  return BRIM_OK;
}

brim_status brim_kept_stage(brim_kept *k, brim_exec *lane, const brim_program *adopt, int64_t place)
{
  if (!k) return BRIM_OK;
  char *to = k->staged + k->bytes * (uint64_t)place;
  for (const buffer *b = k->buffer; b < k->buffer + k->count; b++)
    BRIM_TRY(brim_exec_read(lane, adopt, adopt->graph->parameter[b->parameter].value, to + b->at));
  return BRIM_OK;
}

void *brim_kept_staged(brim_kept *k, int64_t place, uint64_t *bytes)
{
  *bytes = k->bytes;
  return k->staged + k->bytes * (uint64_t)place;
}

void brim_kept_commit(brim_kept *k, int64_t place, int64_t client, int64_t round)
{
  const char *from = k->staged + k->bytes * (uint64_t)place;
  for (const buffer *b = k->buffer; b < k->buffer + k->count; b++)
    memcpy(values_of(k, b, client), from + b->at, b->bytes);
  k->last_kept[client] = (int32_t)(round + 1);
}

size_t brim_kept_tensors(brim_kept *k, brim_safetensor *out)
{
  if (!k) return 0;
  for (size_t i = 0; out && i < k->count; i++)
    out[i] = (brim_safetensor){.name = k->buffer[i].name,
                               .dtype = k->dtype,
                               .shape = {2, {k->clients, k->buffer[i].count}},
                               .data = values_of(k, &k->buffer[i], 0)};
  if (out)
    out[k->count] = (brim_safetensor){
        .name = "clients.last_kept", .dtype = BRIM_DTYPE_I32, .shape = {1, {k->clients}}, .data = k->last_kept};
  return k->count + 1;
}
