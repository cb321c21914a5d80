/* For clients of one job that share a host. A table gives each client a share of one or more devices. A client uses
 * only a device of which it has a share, and no more memory than its share.
 *
 *     policy=capped policy.capped.client=alice
 *     'policy.capped.shares={cuda:0: {alice: 0.4, server: 0.4}, cuda:1: {bob: 8000MB}}'
 *
 * The policy refuses a table in which the shares of a device add up to more than its memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "brim/brim.h"

typedef struct capped {
  brim_shares shares;
  const char *client;
} capped;

static const brim_param table[] = {
    BRIM_PARAM(SHARES, capped, shares, "{}", NULL,
               "memory per device and client, as a share or in bytes: {cuda:0: {alice: 0.5, bob: 8000MB}}"),
    BRIM_PARAM(STR, capped, client, "", NULL, "client whose share this run uses; empty: $CLIENT_ID"),
    BRIM_PARAMS_END,
};

static uint64_t bytes_of(const brim_share *share, const brim_device_view *d)
{
  return share->fraction > 0 ? (uint64_t)(share->fraction * (double)d->total_bytes) : share->bytes;
}

/* Adds "8.0 GiB alice" to a list. */
static void add_to_list(char *list, size_t room, const char *client, uint64_t bytes)
{
  const size_t length = strlen(list);
  char text[32];
  snprintf(list + length, room - length, "%s%s %s", length ? " + " : "", brim_format_bytes(text, sizeof text, bytes),
           client);
}

/* Returns the device's name in the table. A process that was started with a single visible device numbers it 0; the
 * environment has the device's number among all devices. */
static const char *name_of(const brim_device_query *q, const brim_device_view *d)
{
  const char *alone = getenv("BRIM_SHARE_DEVICE");
  return q->count == 1 && alone && alone[0] ? alone : d->name;
}

/* Fails if the shares of a device add up to more than its memory. */
static brim_status check_device(const capped *p, const brim_device_view *d, const char *name)
{
  uint64_t sum = 0;
  char list[1024] = "", a[32], b[32];
  for (size_t i = 0; i < p->shares.count; i++) {
    const brim_share *share = &p->shares.item[i];
    if (strcmp(share->of, name) != 0) continue;
    sum += bytes_of(share, d);
    add_to_list(list, sizeof list, share->who, bytes_of(share, d));
  }
  if (sum <= d->total_bytes) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG, "the shares of %s add up to %.4g %% of it: %s of %s\n%s", name,
                   100 * (double)sum / (double)d->total_bytes, brim_format_bytes(a, sizeof a, sum),
                   brim_format_bytes(b, sizeof b, d->total_bytes), list);
}

static brim_status fail_unknown(const capped *p, const char *client)
{
  char names[1024] = "";
  for (size_t i = 0; i < p->shares.count; i++) {
    const size_t length = strlen(names);
    snprintf(names + length, sizeof names - length, "%s%s of %s", i ? ", " : "", p->shares.item[i].who,
             p->shares.item[i].of);
  }
  if (client[0])
    return brim_fail(BRIM_ECONFIG, "client '%s' has no share of a device of this backend\npolicy.capped.shares has: %s",
                     client, names);
  return brim_fail(BRIM_ECONFIG,
                   "policy.capped.client, or $CLIENT_ID, must name the client whose share the run uses\n"
                   "policy.capped.shares has: %s",
                   names);
}

static const brim_device_view *find_device(const brim_device_query *q, const char *name)
{
  for (size_t i = 0; i < q->count; i++)
    if (strcmp(name_of(q, &q->device[i]), name) == 0) return &q->device[i];
  return NULL;
}

static brim_status choose_device(void *self, const brim_device_query *q, brim_place *out)
{
  const capped *p = self;
  const char *environment = getenv("CLIENT_ID"), *client = p->client[0] ? p->client : environment ? environment : "";
  const brim_device_view *best = NULL;
  const char *elsewhere = NULL; /* a device of which the client has a share, but which it did not ask for */
  char bytes[32];
  if (p->shares.count == 0 && p->client[0])
    return brim_fail(BRIM_ECONFIG, "policy.capped.client is '%s', but policy.capped.shares is empty", p->client);
  if (p->shares.count == 0) return BRIM_ENOTSUP;
  for (size_t i = 0; i < q->count; i++) BRIM_TRY(check_device(p, &q->device[i], name_of(q, &q->device[i])));
  for (size_t i = 0; i < p->shares.count; i++) {
    const brim_share *share = &p->shares.item[i];
    const brim_device_view *d = find_device(q, share->of);
    if (!d || strcmp(share->who, client) != 0 || (best && d->free_bytes <= best->free_bytes)) continue;
    elsewhere = d->name;
    if (strcmp(q->demands->device, "auto") != 0 && strcmp(q->demands->device, d->name) != 0) continue;
    best = d;
    out->limit_bytes = bytes_of(share, d);
  }
  if (!best && elsewhere)
    return brim_fail(BRIM_ECONFIG, "device=%s, but client '%s' has a share only of %s", q->demands->device, client,
                     elsewhere);
  if (!best) return fail_unknown(p, client);
  out->kind = BRIM_PLACE_DEVICE;
  out->device = (int32_t)(best - q->device);
  brim_reason(out->reason, "the share of client '%s', of %s", client,
              brim_format_bytes(bytes, sizeof bytes, best->total_bytes));
  return BRIM_OK;
}

static const brim_policy_ops ops = {.size = sizeof ops, .choose_device = choose_device, .limits = 1};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_POLICY,
                                   .id = "capped",
                                   .help = "gives each client a device and a limit on its memory, from a table",
                                   .params_size = sizeof(capped),
                                   .params = table,
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-policies", "1.0", plugins)
