/* A selector that misbehaves as $BRIM_BAD says, like the bad policy. Without the variable, it takes the clients in the
 * order of their numbers, beginning with the one that its state counts. */
#include "bad.h"

static brim_status create(const void *params, void **self)
{
  (void)params;
  BRIM_TRY(bad_in("create", 0)); /* if this fails, the selector has allocated nothing */
  *self = calloc(1, 16);
  return BRIM_OK;
}

static void destroy(void *self)
{
  free(self);
}

static void state(const void *self, const brim_clients *clients, int64_t *own, int64_t *of_client)
{
  (void)self, (void)clients;
  *own = bad_is("state", "huge") ? INT64_MAX / 2 : 1;
  *of_client = bad_is("state", "negative") ? -1 : 1;
}

/* Selects a client that is away, if there is one. */
static void select_away(const brim_selection_query *q, brim_selection *out)
{
  int64_t k = 0;
  while (k < q->candidates && q->candidate[k] == k) k++;
  if (k < q->clients->count) out->client[0] = k;
}

/* Writes memory outside of the answer. */
static void write_elsewhere(const brim_selection_query *q, brim_selection *out)
{
  static int64_t own[1000];
  if (bad_is("select", "past")) q->of_client[q->clients->count] = 1;
  if (bad_is("select", "column")) *(float *)(uintptr_t)&q->clients->loss[0] = 1;
  if (bad_is("select", "pointer")) out->client = own;
}

/* Returns the place of the first selected client, which follows from the state. With the fault "moves" it follows from
 * the number of calls instead. */
static int64_t find_first(int64_t *self, const brim_selection_query *q)
{
  static int64_t calls;
  if (bad_is("select", "moves")) return ++calls;
  return (int64_t)q->own[0] + self[0];
}

static brim_status select_clients(void *self, const brim_selection_query *q, brim_selection *out)
{
  const int64_t first = find_first(self, q);
  for (; out->count < q->wanted; out->count++)
    out->client[out->count] = q->candidate[(first + out->count) % q->candidates];
  while (bad_is("select", "slow") && q->clients->count > 50000) continue;
  if (q->round < 2) return BRIM_OK;
  write_elsewhere(q, out);
  if (bad_is("select", "away")) select_away(q, out);
  if (bad_is("select", "losses")) return q->losses(q, q->candidate, 1, &(float){0});
  if (bad_is("select", "memory")) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the scores");
  if (bad_is("select", "twice") && q->wanted > 1) out->client[1] = out->client[0];
  if (bad_is("select", "stranger")) out->client[0] = q->clients->count;
  if (bad_is("select", "negative")) out->client[0] = -1;
  if (bad_is("select", "none")) out->count = 0;
  if (bad_is("select", "many")) out->count = q->wanted + 1;
  return bad_in("select", 0);
}

static brim_status learn(void *self, const brim_selection_result *r)
{
  ((int64_t *)self)[0] += bad_is("learn", "keeps");
  for (int64_t i = 0; i < r->count; i++) r->of_client[r->client[i]] += 1;
  r->own[0] += 1;
  return r->round < 2 ? BRIM_OK : bad_in("learn", 0);
}

static const brim_selector_ops ops = {.size = sizeof ops, .state = state, .select = select_clients, .learn = learn};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_SELECTOR,
                                   .id = "bad",
                                   .help = "a selector that behaves badly",
                                   .create = create,
                                   .destroy = destroy,
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("bad-selector", "1.0", plugins)
