#include "federate/selection.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/guard.h"
#include "base/log.h"
#include "federate/selection_call.h"

/* The columns of a client that a round changes. */
typedef struct row {
  float loss, square_loss, norm, accuracy, personal;
  int32_t last_round, times;
} row;

/* Arguments and results of a call of the selector. They outlive the call, because a selector that hangs may still write
 * to them later. */
typedef struct call {
  brim_selection_host *host;
  brim_selection_query query;
  brim_selection out;
  brim_selection_result result;
  brim_losses_fn losses;
  void *context;
  brim_status asked; /* status of the host's last computation of losses for the selector */
  brim_error loss;   /* error text of `asked`, if other ranks could not be reached */
} call;

struct brim_selection_host {
  const brim_setup *setup;
  const brim_config_choice *choice;
  const brim_selector_ops *ops;
  void *self;
  bool is_made;      /* `self` must be destroyed */
  brim_guard *guard; /* NULL: a selector of the core */
  call call;
  brim_clients clients;
  /* columns, [count] */
  int64_t *samples, *candidate;
  float *loss, *square_loss, *norm, *accuracy, *seconds, *joules;
  float *personal; /* accuracies of personal models, which selectors do not see; NULL if there are none */
  int32_t *last_round, *times;
  uint32_t *labels;
  float *sketch; /* [count, BRIM_SKETCH] */
  /* state: from after the last round that was learned; the selector writes to `next` */
  double *state, *next;
  int64_t own_count, client_count; /* numbers in the state: for the whole federation, and for each client */
  /* the last learned round */
  row *before; /* [undo_count] previous values of the round's clients, until the next selection */
  int64_t *undo, undo_count, undo_room;
  float *sketch_before;  /* [undo_room, BRIM_SKETCH] */
  uint8_t *arrived;      /* [undo_room] */
  uint8_t *is_chosen;    /* a bit per client, for the check of a selection */
  int64_t *chosen, room; /* [room] the selector's answer */
};

static size_t state_bytes(const brim_selection_host *h)
{
  return (size_t)(h->own_count + h->client_count * h->clients.count) * sizeof(double);
}

/* ---- calling ---- */

/* Converts a selector's failure in a round to EPLUGIN, with a text that names the selector. Out-of-memory errors keep
 * their status, because a cleanup may help, and so do errors of the host while it computes losses. */
static brim_status run(brim_selection_host *h, const char *function, bool decides, brim_guard_work work)
{
  const brim_plugin_call about = {h->choice, function, decides};
  h->call.host = h;
  h->call.asked = BRIM_OK;
  const brim_status status = brim_selection_call(h->guard, &about, work, &h->call);
  if (h->call.asked == BRIM_ECOMM) {
    brim_error_put(&h->call.loss);
    return BRIM_ECOMM;
  }
  if (status == BRIM_OK || status == BRIM_EPLUGIN || !decides || h->call.asked != BRIM_OK) return status;
  return brim_fail(status == BRIM_ENOMEM_HOST ? status : BRIM_EPLUGIN, "selector '%s' failed in %s: %s",
                   h->choice->plugin->id, function, brim_error_text());
}

static brim_status call_create(void *context)
{
  call *c = context;
  return c->host->choice->plugin->create(c->host->choice->params, &c->host->self);
}
static brim_status call_destroy(void *context)
{
  call *c = context;
  c->host->choice->plugin->destroy(c->host->self);
  return BRIM_OK;
}
static brim_status call_state(void *context)
{
  call *c = context;
  brim_selection_host *h = c->host;
  h->ops->state(h->self, &h->clients, &h->own_count, &h->client_count);
  return BRIM_OK;
}
static brim_status call_select(void *context)
{
  call *c = context;
  return c->host->ops->select(c->host->self, &c->query, &c->out);
}
static brim_status call_learn(void *context)
{
  call *c = context;
  return c->host->ops->learn(c->host->self, &c->result);
}

/* ---- opening and closing ---- */

/* Counts each client's samples per class. */
static brim_status count_labels(brim_selection_host *h)
{
  const brim_setup *s = h->setup;
  const int64_t classes = h->clients.classes;
  void *scratch = brim_try_malloc(s->data.scratch_bytes);
  h->labels = brim_try_calloc((size_t)(h->clients.count * classes), sizeof *h->labels);
  brim_status status = BRIM_OK;
  if (!scratch || !h->labels)
    status = brim_fail(BRIM_ENOMEM_HOST, "no host memory for the classes of %" PRId64 " clients", h->clients.count);
  for (int64_t client = 0; client < h->clients.count && status == BRIM_OK; client++)
    for (int64_t i = 0; i < h->samples[client] && status == BRIM_OK; i++) {
      int32_t label = 0;
      const int64_t order = brim_partition_order(&s->partition, client, i);
      status = brim_partition_label(&s->data, &s->partition, order, scratch, &label);
      if (status == BRIM_OK) h->labels[client * classes + label]++;
    }
  free(scratch);
  h->clients.labels = h->labels;
  return status;
}

static brim_status make_columns(brim_selection_host *h)
{
  const size_t count = (size_t)h->setup->partition.clients;
  h->samples = brim_try_malloc(count * sizeof *h->samples);
  h->candidate = brim_try_malloc(count * sizeof *h->candidate);
  h->is_chosen = brim_try_calloc((count + 7) / 8, 1);
  float **const reals[] = {&h->loss, &h->square_loss, &h->norm, &h->accuracy, &h->seconds, &h->joules};
  bool all = h->samples && h->candidate && h->is_chosen;
  for (size_t k = 0; k < sizeof reals / sizeof reals[0]; k++) {
    *reals[k] = brim_try_malloc(count * sizeof(float));
    for (size_t i = 0; *reals[k] && i < count; i++) (*reals[k])[i] = NAN;
    all = all && *reals[k];
  }
  if (brim_setup_is_ditto(h->setup)) {
    h->personal = brim_try_malloc(count * sizeof *h->personal);
    for (size_t i = 0; h->personal && i < count; i++) h->personal[i] = NAN;
    all = all && h->personal;
  }
  h->last_round = brim_try_malloc(count * sizeof *h->last_round);
  h->times = brim_try_calloc(count, sizeof *h->times);
  if (!all || !h->last_round || !h->times)
    return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the statistics of %zu clients", count);
  for (size_t i = 0; i < count; i++) {
    h->samples[i] = brim_partition_count(&h->setup->partition, (int64_t)i);
    h->candidate[i] = (int64_t)i;
    h->last_round[i] = -1;
  }
  h->clients =
      (brim_clients){.size = sizeof h->clients,
                     .count = (int64_t)count,
                     .classes = h->setup->data.train.task == BRIM_TASK_CLASS ? h->setup->data.train.classes : 0,
                     .samples = h->samples,
                     .loss = h->loss,
                     .square_loss = h->square_loss,
                     .norm = h->norm,
                     .seconds = h->seconds,
                     .joules = h->joules,
                     .last_round = h->last_round,
                     .times = h->times,
                     .accuracy = h->accuracy};
  if (h->ops->needs & BRIM_NEED_SKETCH) {
    h->clients.sketch = h->sketch = brim_try_calloc(count * BRIM_SKETCH, sizeof *h->sketch);
    if (!h->sketch) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the sketches of %zu clients", count);
  }
  return h->ops->needs & BRIM_NEED_LABELS && h->clients.classes > 0 ? count_labels(h) : BRIM_OK;
}

/* Whether the selector comes from a plugin's file. */
static bool is_guarded(const brim_config_choice *choice)
{
  return choice->file[0] != '\0';
}

static brim_status open_host(brim_selection_host *h)
{
  if (is_guarded(h->choice)) BRIM_TRY(brim_guard_open(&h->guard));
  h->self = h->choice->params;
  BRIM_TRY(make_columns(h));
  if (h->choice->plugin->create) BRIM_TRY(run(h, "create", false, call_create));
  h->is_made = true;
  if (h->ops->state) BRIM_TRY(run(h, "state", false, call_state));
  BRIM_TRY(brim_selection_check_state(h->choice->plugin->id, h->own_count, h->client_count));
  if (state_bytes(h) == 0) return BRIM_OK;
  h->state = brim_try_calloc(state_bytes(h), 1);
  h->next = brim_try_calloc(state_bytes(h), 1);
  if (h->state && h->next) return BRIM_OK;
  return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the state of selector '%s'", h->choice->plugin->id);
}

brim_status brim_selection_open(const brim_setup *setup, brim_selection_host **out)
{
  brim_selection_host *h = brim_try_calloc(1, sizeof *h);
  if (!h) return brim_fail(BRIM_ENOMEM_HOST, "no host memory to select clients");
  h->setup = setup;
  h->choice = brim_config_choice_of(setup->config, "method");
  h->ops = h->choice->plugin->ops;
  const brim_status status = open_host(h);
  if (status == BRIM_OK)
    *out = h;
  else
    brim_selection_close(h);
  return status;
}

void brim_selection_close(brim_selection_host *h)
{
  if (!h) return;
  const bool is_lost = h->guard && brim_guard_is_lost(h->guard), ends = h->is_made && h->choice->plugin->destroy;
  if (ends && !is_lost && run(h, "destroy", false, call_destroy) != BRIM_OK)
    brim_log(BRIM_LOG_WARN, "%s", brim_error_text());
  if (h->guard && brim_guard_is_lost(h->guard)) return; /* the hung thread may still use all of this */
  brim_guard_close(h->guard);
  void *const all[] = {h->samples, h->candidate,  h->loss,    h->square_loss, h->norm,    h->seconds,
                       h->joules,  h->last_round, h->times,   h->labels,      h->sketch,  h->sketch_before,
                       h->state,   h->next,       h->before,  h->undo,        h->arrived, h->is_chosen,
                       h->chosen,  h->accuracy,   h->personal};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) free(all[i]);
  free(h);
}

/* ---- a round ---- */

typedef struct question {
  call *call;
  const int64_t *client;
  int64_t count;
  float *out;
} question;

static brim_status answer_losses(void *context)
{
  const question *q = context;
  q->call->asked = q->call->losses(q->call->context, q->client, q->count, q->out);
  if (q->call->asked == BRIM_ECOMM) brim_error_take(&q->call->loss);
  return q->call->asked;
}

/* Called on the selector's thread. */
static brim_status ask_losses(const brim_selection_query *query, const int64_t *client, int64_t count, float *out)
{
  call *c = query->host;
  question q = {c, client, count, out};
  BRIM_TRY(brim_selection_check_question(c->host->ops->needs, query, client, count));
  return brim_guard_back(answer_losses, &q);
}

brim_fleet_columns brim_selection_columns(brim_selection_host *h)
{
  return (brim_fleet_columns){h->candidate, h->seconds, h->joules};
}

static brim_status make_room(brim_selection_host *h, int64_t wanted)
{
  if (wanted <= h->room) return BRIM_OK;
  free(h->chosen);
  h->chosen = brim_try_malloc((size_t)wanted * sizeof *h->chosen);
  h->room = h->chosen ? wanted : 0;
  return h->chosen ? BRIM_OK : brim_fail(BRIM_ENOMEM_HOST, "no host memory to select %" PRId64 " clients", wanted);
}

/* Draws clients independently (Poisson sampling), for privacy: a round has clients_per_round clients on average, and
 * may have none. More than `wanted` clients end the run, which has a negligible probability: see
 * brim_privacy_most_clients. */
static brim_status draw_independently(brim_selection_host *h, const brim_selection_wish *wish)
{
  const brim_settings *s = h->setup->settings;
  const double rate = (double)s->clients_per_round / (double)s->total_clients;
  brim_selection *out = &h->call.out;
  brim_philox r = {{0}};
  for (int64_t k = 0; k < h->clients.count; k++) {
    if (k % 2 == 0)
      r = brim_random4(brim_privacy_seed(s), BRIM_STREAM_SELECT, 0xFFFFFEu, (uint64_t)wish->round, (uint32_t)(k / 2));
    const uint64_t bits = ((uint64_t)r.v[2 * (k % 2)] << 32 | r.v[2 * (k % 2) + 1]) >> 11;
    if ((double)bits * 0x1p-53 >= rate) continue;
    if (out->count == wish->wanted)
      return brim_fail(BRIM_ENUMERIC,
                       "round %" PRId64 ": more than %" PRId64
                       " clients were drawn, which has a negligible probability",
                       wish->round + 1, wish->wanted);
    out->client[out->count++] = k;
  }
  return BRIM_OK;
}

void brim_selection_begin(brim_selection_host *h)
{
  if (h->state) memcpy(h->next, h->state, state_bytes(h));
}

brim_status brim_selection_select(brim_selection_host *h, const brim_selection_wish *wish, const int64_t **out,
                                  int64_t *count)
{
  const brim_settings *s = h->setup->settings;
  const brim_philox seed = brim_random4((uint64_t)s->seed, BRIM_STREAM_SELECT, 0xFFFFFFu, (uint64_t)wish->number, 0);
  call *c = &h->call;
  BRIM_TRY(make_room(h, wish->wanted));
  if (!wish->continues) brim_selection_begin(h);
  *c = (call){.losses = wish->losses, .context = wish->context, .out = {h->chosen, 0}};
  c->query = (brim_selection_query){.size = sizeof c->query,
                                    .round = wish->round,
                                    .wanted = wish->wanted,
                                    .deadline_seconds = s->federate.deadline_seconds,
                                    .clients = &h->clients,
                                    .candidate = h->candidate,
                                    .candidates = wish->candidates,
                                    .seed = (uint64_t)seed.v[0] << 32 | seed.v[1],
                                    .own = h->next,
                                    .of_client = h->next ? h->next + h->own_count : NULL,
                                    .losses = ask_losses,
                                    .host = c};
  if (s->privacy.draws_poisson) {
    BRIM_TRY(draw_independently(h, wish));
  } else {
    BRIM_TRY(run(h, "select", true, call_select));
    BRIM_TRY(brim_selection_check(h->choice->plugin->id, &c->query, &c->out, h->chosen, h->is_chosen));
  }
  *out = h->chosen;
  *count = c->out.count;
  return BRIM_OK;
}

/* ---- learning ---- */

static brim_status make_undo(brim_selection_host *h, int64_t count)
{
  if (count > h->undo_room) {
    free(h->before);
    free(h->undo);
    free(h->arrived);
    h->before = brim_try_malloc((size_t)count * sizeof *h->before);
    h->undo = brim_try_malloc((size_t)count * sizeof *h->undo);
    h->arrived = brim_try_malloc((size_t)count);
    free(h->sketch_before);
    h->sketch_before = h->sketch ? brim_try_malloc((size_t)count * BRIM_SKETCH * sizeof(float)) : NULL;
    h->undo_room = h->before && h->undo && h->arrived && (h->sketch_before || !h->sketch) ? count : 0;
    if (h->undo_room == 0)
      return brim_fail(BRIM_ENOMEM_HOST, "no host memory for the results of %" PRId64 " clients", count);
  }
  return BRIM_OK;
}

/* Swaps a client's sketch with the i-th saved one. */
static void swap_sketch(brim_selection_host *h, int64_t client, int64_t i, const float *now)
{
  float *own = h->sketch + client * BRIM_SKETCH, *before = h->sketch_before + i * BRIM_SKETCH;
  if (now) memcpy(before, own, BRIM_SKETCH * sizeof *own);
  memcpy(own, now ? now : before, BRIM_SKETCH * sizeof *own);
}

/* Returns a client's accuracy during its training; NAN if targets are real numbers or training was only simulated. */
static double accuracy_of(const brim_selection_host *h, const brim_client_result *c)
{
  const int32_t task = h->setup->data.train.task;
  if (task == BRIM_TASK_VALUES) return NAN;
  return c->correct / (task == BRIM_TASK_TOKENS ? c->tokens : (double)c->samples);
}

static void take_in(brim_selection_host *h, int64_t round, const brim_client_result *c)
{
  const int64_t k = c->client;
  h->before[h->undo_count] =
      (row){h->loss[k],       h->square_loss[k], h->norm[k], h->accuracy[k], h->personal ? h->personal[k] : NAN,
            h->last_round[k], h->times[k]};
  h->undo[h->undo_count] = k;
  if (h->sketch) swap_sketch(h, k, h->undo_count, c->arrived ? c->sketch : h->sketch + k * BRIM_SKETCH);
  h->arrived[h->undo_count++] = c->arrived;
  h->last_round[k] = (int32_t)round;
  h->times[k]++;
  if (!c->arrived) return;
  h->loss[k] = (float)(c->loss / c->counted);
  h->square_loss[k] = (float)(c->squares / c->counted);
  h->norm[k] = (float)c->norm;
  h->accuracy[k] = (float)accuracy_of(h, c);
  if (h->personal) h->personal[k] = (float)c->personal;
}

brim_status brim_selection_accuracy(const brim_selection_host *h, brim_spread *out)
{
  const float *accuracy = h->personal ? h->personal : h->accuracy;
  brim_tally tally = {0};
  brim_status status = BRIM_OK;
  for (int64_t k = 0; k < h->setup->partition.clients && status == BRIM_OK; k++)
    if (!isnan(accuracy[k])) status = brim_tally_add(&tally, (double)accuracy[k]);
  if (status == BRIM_OK) *out = brim_tally_spread(&tally);
  brim_tally_release(&tally);
  return status;
}

static void swap_states(brim_selection_host *h)
{
  double *state = h->state;
  h->state = h->next;
  h->next = state;
}

static void put_back(brim_selection_host *h)
{
  while (h->undo_count > 0) {
    const row *r = &h->before[--h->undo_count];
    const int64_t k = h->undo[h->undo_count];
    if (h->sketch) swap_sketch(h, k, h->undo_count, NULL);
    h->loss[k] = r->loss;
    h->square_loss[k] = r->square_loss;
    h->norm[k] = r->norm;
    h->accuracy[k] = r->accuracy;
    if (h->personal) h->personal[k] = r->personal;
    h->last_round[k] = r->last_round;
    h->times[k] = r->times;
  }
}

brim_status brim_selection_learn(brim_selection_host *h, int64_t round, const brim_client_result *client, int64_t count,
                                 double accuracy, double seconds)
{
  BRIM_TRY(make_undo(h, count));
  h->undo_count = 0;
  for (int64_t i = 0; i < count; i++) take_in(h, round, &client[i]);
  h->call.result = (brim_selection_result){.size = sizeof h->call.result,
                                           .round = round,
                                           .count = count,
                                           .client = h->undo,
                                           .arrived = h->arrived,
                                           .accuracy = accuracy,
                                           .seconds = seconds,
                                           .clients = &h->clients,
                                           .own = h->next,
                                           .of_client = h->next ? h->next + h->own_count : NULL};
  const brim_status learned = h->ops->learn ? run(h, "learn", true, call_learn) : BRIM_OK;
  if (learned != BRIM_OK) {
    put_back(h);
    return learned;
  }
  swap_states(h);
  return BRIM_OK;
}

void brim_selection_end(brim_selection_host *h, bool is_committed)
{
  if (is_committed) h->undo_count = 0;
  if (h->undo_count == 0) return; /* true also if the selector has not learned from the round */
  put_back(h);
  swap_states(h);
}

int64_t brim_selection_most_times(const brim_selection_host *h)
{
  int64_t most = 0;
  for (int64_t k = 0; k < h->clients.count; k++)
    if (h->times[k] > most) most = h->times[k];
  return most;
}

size_t brim_selection_tensors(brim_selection_host *h, brim_safetensor out[BRIM_SELECTION_TENSORS])
{
  const brim_shape clients = {1, {h->clients.count}};
  size_t count = 0;
  const struct {
    const char *name;
    uint32_t dtype;
    const void *data;
  } columns[] = {{"clients.loss", BRIM_DTYPE_F32, h->loss},
                 {"clients.square_loss", BRIM_DTYPE_F32, h->square_loss},
                 {"clients.norm", BRIM_DTYPE_F32, h->norm},
                 {"clients.accuracy", BRIM_DTYPE_F32, h->accuracy},
                 {"clients.last_round", BRIM_DTYPE_I32, h->last_round},
                 {"clients.times", BRIM_DTYPE_I32, h->times}};
  for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++)
    out[count++] = (brim_safetensor){
        .name = columns[i].name, .dtype = columns[i].dtype, .shape = clients, .data = columns[i].data};
  if (h->sketch)
    out[count++] = (brim_safetensor){.name = "clients.sketch",
                                     .dtype = BRIM_DTYPE_F32,
                                     .shape = {2, {h->clients.count, BRIM_SKETCH}},
                                     .data = h->sketch};
  if (h->personal)
    out[count++] = (brim_safetensor){
        .name = "clients.personal_accuracy", .dtype = BRIM_DTYPE_F32, .shape = clients, .data = h->personal};
  if (h->state)
    out[count++] = (brim_safetensor){.name = "clients.state",
                                     .dtype = BRIM_DTYPE_F64,
                                     .shape = {1, {(int64_t)(state_bytes(h) / sizeof(double))}},
                                     .data = h->state};
  return count;
}
