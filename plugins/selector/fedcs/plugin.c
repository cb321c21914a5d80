/* Selects as many clients as fit within a round's deadline (Nishio, Yonetani: Client Selection for Federated Learning
 * with Heterogeneous Resources in Mobile Edge, ICC 2019, algorithm 3). The selector asks some random clients for their
 * times. Then it repeatedly adds the client that makes the schedule longer by the least time, as long as the round ends
 * in time:
 *
 *     added(k)  = upload(k) + max(0, update(k) - scheduled)
 *     scheduled <- scheduled + added(k)                           while it is at most the deadline
 *
 * Clients compute in parallel and upload one after another. upload(k) is the share `upload` of seconds(k), and
 * update(k) is the rest. With upload=0 (each client has its own channel, as in brim's simulation) a round lasts as long
 * as its slowest client. added(k) grows with seconds(k) for any schedule, so clients are added in the order of their
 * times.
 *
 * Without a deadline, the selector takes the fastest of the clients that it has asked. Clients never seen are treated
 * like all others, because times are predicted. A client without a time has the average time; if no client has a time,
 * the choice is random. If no client fits, only the fastest is selected. */
#include "brim/brim.h"

typedef struct settings {
  int64_t asked;
  double upload;
} settings;

static const brim_param table[] = {
    BRIM_PARAM(I64, settings, asked, "0", "[0,1000000]", "size of the random sample; 0: twice clients_per_round"),
    BRIM_PARAM(F64, settings, upload, "0", "[0,1]", "part of a client's time in which no other client can upload"),
    BRIM_PARAMS_END,
};

/* Schedules the clients that were asked, in the order of their times. Their scores are -seconds. */
static void schedule(const settings *s, const brim_selection_query *q, const brim_best *asked, brim_selection *out)
{
  const double deadline = q->deadline_seconds > 0 ? q->deadline_seconds : INFINITY;
  double scheduled = 0;
  for (int64_t i = 0; out->count < q->wanted; i++) {
    const double seconds = -asked[i].score, update = (1 - s->upload) * seconds - scheduled;
    const double added = s->upload * seconds + (update > 0 ? update : 0);
    if (out->count > 0 && scheduled + added > deadline) return;
    scheduled += added;
    out->client[out->count++] = asked[i].client;
  }
}

static brim_status select_clients(void *self, const brim_selection_query *q, brim_selection *out)
{
  const settings *s = self;
  int64_t room = s->asked > 0 ? s->asked : 2 * q->wanted, count = 0;
  if (room < q->wanted) room = q->wanted;
  if (room > q->candidates) room = q->candidates;
  brim_best *asked = brim_selection_alloc(room, sizeof *asked);
  if (!asked) return BRIM_ENOMEM_HOST;
  for (int64_t i = 0; i < q->candidates; i++)
    brim_best_add(asked, &count, room, q->candidate[i], brim_selection_draw(q, 0, q->candidate[i]));
  const double mean = brim_mean_known(q, q->clients->seconds);
  if (isfinite(mean)) {
    for (int64_t i = 0; i < count; i++) {
      const double seconds = (double)q->clients->seconds[asked[i].client];
      asked[i].score = isfinite(seconds) ? -seconds : -mean;
    }
    brim_best_sort(asked, count);
    schedule(s, q, asked, out);
  } else {
    brim_best_sort(asked, count);
    for (; out->count < q->wanted; out->count++) out->client[out->count] = asked[out->count].client;
  }
  free(asked);
  return BRIM_OK;
}

static const brim_selector_ops ops = {.size = sizeof ops, .select = select_clients};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_SELECTOR,
                                   .id = "fedcs",
                                   .help = "as many clients as fit within the deadline, out of a random sample",
                                   .params_size = sizeof(settings),
                                   .params = table,
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-selectors", "1.0", plugins)
