/* A selector that behaves badly where $BRIM_BAD says, as the bad policy does. Without it, it takes the clients in the
 * order of their numbers, from one on that its state counts. */
#include "bad.h"

static brim_status create(const void *params, void **self)
{
  (void)params;
  *self = calloc(1, 16);
  return bad_in("create", 0);
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

static brim_status select_clients(void *self, const brim_selection_query *q, brim_selection *out)
{
  (void)self;
  for (; out->count < q->wanted; out->count++)
    out->client[out->count] = ((int64_t)q->own[0] + out->count) % q->clients->count;
  if (q->round < 2) return BRIM_OK;
  if (bad_is("select", "twice")) out->client[1] = out->client[0];
  if (bad_is("select", "stranger")) out->client[0] = q->clients->count;
  if (bad_is("select", "negative")) out->client[0] = -1;
  if (bad_is("select", "nobody")) out->count = 0;
  if (bad_is("select", "many")) out->count = q->wanted + 1;
  return bad_in("select", 0);
}

static brim_status learn(void *self, const brim_selection_result *r)
{
  (void)self;
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
