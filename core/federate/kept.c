#include "federate/kept.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/convert.h"
#include "base/text.h"

/* A parameter's value in the state of a client. */
typedef struct field {
  size_t parameter; /* the parameter's index, the same in all plans */
  int64_t count;    /* values */
  uint64_t bytes, at;
  uint32_t dtype;
  const char *name;
} field;

struct brim_kept {
  brim_states *states;
  brim_control *control; /* NULL without SCAFFOLD */
  field *field;
  size_t count;
  const field *residual; /* [residuals] the residuals of compression, in the array `field` after `count` */
  size_t residuals;
  const field *personal; /* [personals] the personal model, in the array after the residuals */
  size_t personals;
  uint64_t bytes; /* bytes of a client's state */
  uint64_t hash;  /* hash of names and sizes */
  int64_t clients;
};

static void add_field(brim_kept *k, size_t parameter, const brim_tensor *value)
{
  k->field[k->count++] = (field){.parameter = parameter,
                                 .count = brim_shape_count(&value->shape),
                                 .bytes = value->bytes,
                                 .at = k->bytes,
                                 .dtype = value->dtype,
                                 .name = value->name};
  k->bytes += value->bytes;
  k->hash = brim_hash(k->hash, value->name, strlen(value->name) + 1);
  k->hash = brim_hash(k->hash, &value->bytes, sizeof value->bytes);
}

static brim_status list_fields(brim_kept *k, const brim_setup *setup, const brim_graph *g)
{
  k->field = brim_try_calloc(4 * g->parameter_count, sizeof *k->field);
  if (!k->field) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the layout of client states");
  k->hash = BRIM_HASH_START;
  for (size_t i = 0; i < g->parameter_count; i++)
    if (brim_setup_keeps(setup, &g->parameter[i])) add_field(k, i, g->parameter[i].value);
  const size_t values = k->count;
  const uint64_t control = k->bytes;
  for (size_t i = 0; i < g->parameter_count && brim_setup_has_controls(setup); i++)
    if (brim_parameter_is_controlled(&g->parameter[i])) add_field(k, i, g->parameter[i].value);
  k->residual = k->field + k->count;
  for (size_t i = 0; i < g->parameter_count && brim_setup_has_feedback(setup); i++)
    if (brim_parameter_is_controlled(&g->parameter[i])) add_field(k, i, g->parameter[i].value);
  k->residuals = (size_t)(k->field + k->count - k->residual);
  k->personal = k->field + k->count;
  for (size_t i = 0; i < g->parameter_count && brim_setup_is_ditto(setup); i++)
    if (!g->parameter[i].is_frozen) add_field(k, i, g->parameter[i].value);
  k->personals = (size_t)(k->field + k->count - k->personal);
  k->count = values; /* the functions for residuals and personal models write the other fields */
  BRIM_TRY(brim_control_open(setup, g, control, &k->control));
  if (k->bytes == brim_setup_kept_bytes(setup)) return BRIM_OK;
  return brim_fail(BRIM_EINTERNAL, "a client state takes %" PRIu64 " bytes, but %" PRIu64 " were planned", k->bytes,
                   brim_setup_kept_bytes(setup));
}

brim_status brim_kept_open(const brim_setup *setup, const brim_program *adopt, brim_kept **out)
{
  *out = NULL;
  if (brim_setup_kept_bytes(setup) == 0) return BRIM_OK;
  brim_kept *k = brim_try_calloc(1, sizeof *k);
  if (!k) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for client states");
  brim_status status = list_fields(k, setup, adopt->graph);
  k->clients = setup->partition.clients;
  const brim_states_layout layout = {k->clients, brim_setup_round_clients(setup), k->bytes, k->hash};
  if (status == BRIM_OK) status = brim_states_open(&layout, &k->states);
  if (status == BRIM_OK)
    *out = k;
  else
    brim_kept_close(k);
  return status;
}

void brim_kept_close(brim_kept *k)
{
  if (!k) return;
  brim_states_close(k->states);
  brim_control_close(k->control);
  free(k->field);
  free(k);
}

brim_states *brim_kept_states(brim_kept *k)
{
  return k->states;
}

brim_control *brim_kept_control(brim_kept *k)
{
  return k ? k->control : NULL;
}

static const brim_tensor *value_of(const brim_keeping *lane, const field *f)
{
  return lane->adopt->graph->parameter[f->parameter].value;
}

/* Writes these fields from the client's state to the lane. */
static brim_status write_fields(brim_kept *k, const brim_keeping *lane, const field *first, size_t count)
{
  if (count == 0 || !brim_states_has(k->states, lane->client)) return BRIM_OK;
  for (const field *f = first; f < first + count; f++) {
    BRIM_TRY(brim_states_read(k->states, lane->client, f->at, lane->scratch, f->bytes));
    BRIM_TRY(brim_exec_write(lane->exec, lane->adopt, value_of(lane, f), lane->scratch));
  }
  return BRIM_OK;
}

brim_status brim_kept_check(const brim_kept *k, int64_t client)
{
  return k && brim_states_has(k->states, client) ? brim_states_check(k->states, client) : BRIM_OK;
}

brim_status brim_kept_write(brim_kept *k, const brim_keeping *lane)
{
  return k ? write_fields(k, lane, k->field, k->count) : BRIM_OK;
}

brim_status brim_kept_write_personal(brim_kept *k, const brim_keeping *lane)
{
  return k ? write_fields(k, lane, k->personal, k->personals) : BRIM_OK;
}

brim_status brim_kept_steer(brim_kept *k, const brim_keeping *lane)
{
  return k && k->control ? brim_control_write(k->control, k->states, lane) : BRIM_OK;
}

/* Checks that these values are finite, because the distance that the client has moved does not cover them. */
static brim_status stage_fields(brim_kept *k, const brim_keeping *lane, const field *first, size_t count,
                                const char *what)
{
  for (const field *f = first; f < first + count; f++) {
    BRIM_TRY(brim_exec_read(lane->exec, lane->adopt, value_of(lane, f), lane->scratch));
    if (!brim_all_finite(f->dtype, lane->scratch, (size_t)f->count))
      return brim_fail(BRIM_ENUMERIC, "client %lld has diverged: %s '%s' is not finite", (long long)lane->client, what,
                       f->name);
    BRIM_TRY(brim_states_write(k->states, lane->place, f->at, lane->scratch, f->bytes));
  }
  return BRIM_OK;
}

brim_status brim_kept_stage_personal(brim_kept *k, const brim_keeping *lane)
{
  return k ? stage_fields(k, lane, k->personal, k->personals, "its personal model's parameter") : BRIM_OK;
}

brim_status brim_kept_begin(brim_kept *k, const brim_keeping *lane)
{
  return k ? brim_states_unstamp(k->states, lane->place) : BRIM_OK;
}

static const field *residual_of(const brim_kept *k, size_t parameter)
{
  for (size_t i = 0; k && i < k->residuals; i++)
    if (k->residual[i].parameter == parameter) return &k->residual[i];
  return NULL;
}

/* The first half of scratch contains the parameter's whole change until it is compressed. */
brim_status brim_kept_add_residual(brim_kept *k, const brim_keeping *lane, size_t parameter, double *change)
{
  const field *f = residual_of(k, parameter);
  if (!f) return BRIM_OK;
  double *whole = lane->scratch, *raw = whole + f->count;
  if (brim_states_has(k->states, lane->client)) {
    BRIM_TRY(brim_states_read(k->states, lane->client, f->at, raw, f->bytes));
    brim_convert(BRIM_DTYPE_F64, whole, f->dtype, raw, (size_t)f->count);
    for (int64_t i = 0; i < f->count; i++) change[i] += whole[i];
  }
  memcpy(whole, change, (size_t)f->count * sizeof *whole);
  return BRIM_OK;
}

brim_status brim_kept_stage_residual(brim_kept *k, const brim_keeping *lane, size_t parameter, const double *change)
{
  const field *f = residual_of(k, parameter);
  if (!f) return BRIM_OK;
  double *whole = lane->scratch, *raw = whole + f->count;
  for (int64_t i = 0; i < f->count; i++) whole[i] -= change[i];
  brim_convert(f->dtype, raw, BRIM_DTYPE_F64, whole, (size_t)f->count);
  return brim_states_write(k->states, lane->place, f->at, raw, f->bytes);
}

brim_status brim_kept_stage(brim_kept *k, const brim_keeping *lane, int64_t round, double rates)
{
  if (!k) return BRIM_OK;
  BRIM_TRY(stage_fields(k, lane, k->field, k->count, "its parameter"));
  if (k->control) BRIM_TRY(brim_control_stage(k->control, k->states, lane, rates));
  return brim_states_stamp(k->states, lane->place, lane->client, round);
}

size_t brim_kept_tensors(brim_kept *k, brim_safetensor *out)
{
  if (!k) return 0;
  if (out)
    *out = (brim_safetensor){.name = "clients.last_kept",
                             .dtype = BRIM_DTYPE_I32,
                             .shape = {1, {k->clients}},
                             .data = brim_states_rounds(k->states)};
  return 1 + brim_control_tensors(k->control, out ? out + 1 : NULL);
}
