#include "federate/selection_call.h"

#include <inttypes.h>

#include "base/error.h"

#define OF_CLIENT_MAX 1024
#define OWN_MAX ((int64_t)1 << 27)

brim_status brim_selection_call(brim_guard *guard, const brim_plugin_call *call, brim_guard_work work, void *context)
{
  const brim_status status = guard ? brim_plugin_run(guard, call, work, context) : work(context);
  if (status != BRIM_ENOTSUP) return status;
  return brim_fail(BRIM_EPLUGIN, "selector '%s' returned BRIM_ENOTSUP from %s, but no other selector can answer",
                   call->choice->plugin->id, call->function);
}

brim_status brim_selection_check_state(const char *id, int64_t own, int64_t of_client)
{
  if (own >= 0 && own <= OWN_MAX && of_client >= 0 && of_client <= OF_CLIENT_MAX) return BRIM_OK;
  return brim_fail(BRIM_EPLUGIN,
                   "selector '%s' asks for a state of %" PRId64 " numbers, and %" PRId64 " for each client", id, own,
                   of_client);
}

/* Candidates are in ascending order. */
static bool is_candidate(const brim_selection_query *q, int64_t client)
{
  int64_t from = 0, to = q->candidates;
  while (from < to) {
    const int64_t middle = from + (to - from) / 2;
    if (q->candidate[middle] < client)
      from = middle + 1;
    else
      to = middle;
  }
  return from < q->candidates && q->candidate[from] == client;
}

static brim_status check_client(const char *id, const brim_selection_query *q, int64_t client, uint8_t *is_chosen)
{
  const long long k = (long long)client, round = (long long)q->round + 1;
  if (client < 0 || client >= q->clients->count)
    return brim_fail(BRIM_EPLUGIN, "selector '%s' selected client %lld in round %lld; there are %lld clients", id, k,
                     round, (long long)q->clients->count);
  if (!is_candidate(q, client))
    return brim_fail(BRIM_EPLUGIN,
                     "selector '%s' selected client %lld in round %lld, which is not among the candidates", id, k,
                     round);
  if (is_chosen[client / 8] & 1u << client % 8)
    return brim_fail(BRIM_EPLUGIN, "selector '%s' selected client %lld twice in round %lld", id, k, round);
  is_chosen[client / 8] |= (uint8_t)(1u << client % 8);
  return BRIM_OK;
}

brim_status brim_selection_check(const char *id, const brim_selection_query *q, const brim_selection *out,
                                 const int64_t *room, uint8_t *is_chosen)
{
  if (out->client != room)
    return brim_fail(BRIM_EPLUGIN,
                     "selector '%s' replaced the pointer `client` in round %lld; it must write the clients to the "
                     "memory that `client` points to",
                     id, (long long)q->round + 1);
  if (out->count < 1 || out->count > q->wanted)
    return brim_fail(BRIM_EPLUGIN, "selector '%s' selected %lld clients in round %lld; it must select 1 to %lld", id,
                     (long long)out->count, (long long)q->round + 1, (long long)q->wanted);
  brim_status status = BRIM_OK;
  int64_t checked = 0;
  for (; checked < out->count && status == BRIM_OK; checked++)
    status = check_client(id, q, out->client[checked], is_chosen);
  for (int64_t i = 0; i < checked; i++)
    if (out->client[i] >= 0 && out->client[i] < q->clients->count) is_chosen[out->client[i] / 8] = 0;
  return status;
}

brim_status brim_selection_check_question(uint32_t needs, const brim_selection_query *q, const int64_t *client,
                                          int64_t count)
{
  if (!(needs & BRIM_NEED_LOSSES))
    return brim_fail(BRIM_EINVAL, "losses was called, but the selector's needs lack BRIM_NEED_LOSSES");
  for (int64_t i = 0; i < count; i++)
    if (client[i] < 0 || client[i] >= q->clients->count)
      return brim_fail(BRIM_EINVAL, "losses was called for client %lld; there are %lld clients", (long long)client[i],
                       (long long)q->clients->count);
  return BRIM_OK;
}
