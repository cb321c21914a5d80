/* For clients in separate processes: before any process places its plan, all exchange their devices. If processes share
 * a device and do not fit it together, the run ends with an error, because otherwise they would wait for each other.
 * See run.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "config/federation.h"
#include "memory/claims.h"
#include "planner/headroom.h"
#include "train/run_parts.h"

#define SHOWN 16 /* processes that are listed at the beginning */

/* A process and its device. */
typedef struct place {
  uint64_t host, key;                /* key of the device on this host */
  uint64_t peak, need, total, limit; /* need: peak with the headroom. limit: a policy's; 0: none */
  int32_t is_shared;
  char device[64];
} place;

static brim_status find_own(const brim_running *r, place *out)
{
  brim_planner *p = &r->drive->planner;
  const brim_setup *s = r->drive->setup;
  const char *known = getenv(BRIM_SHARE_DEVICE), *backend = brim_setup_backend_id(s);
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  *out = (place){.host = brim_hash(BRIM_HASH_START, host, strlen(host)),
                 .key = brim_device_key(backend, p->device, s->backend_ops->device_count(s->backend), &p->device_info),
                 .total = p->device_info.total_bytes,
                 .limit = p->limit_bytes,
                 .is_shared = brim_device_is_shared(&p->device_info)};
  if (known && known[0])
    snprintf(out->device, sizeof out->device, "%s", known);
  else
    snprintf(out->device, sizeof out->device, "%s:%d", backend, p->device);
  BRIM_TRY(brim_planner_peak(p, &r->drive->choice, &out->peak));
  out->need = out->peak + brim_planner_headroom(p, &p->device_info);
  return BRIM_OK;
}

/* Checks a device; the first process on it reports for all. */
static brim_status check_device(const place *all, int32_t ranks, int32_t own)
{
  uint64_t sum = 0;
  int32_t first = -1;
  char a[32], b[32], name[32];
  brim_text list = {0};
  for (int32_t k = 0; k < ranks; k++) {
    if (!all[k].is_shared || all[k].host != all[own].host || all[k].key != all[own].key) continue;
    if (first < 0) first = k;
    sum += all[k].need;
    brim_text_printf(&list, "%s%s %s", k == first ? "" : " + ", brim_format_bytes(a, sizeof a, all[k].need),
                     brim_federation_process(k, name, sizeof name));
  }
  brim_status status = BRIM_OK;
  if (first == own && sum > all[own].total)
    status = brim_fail(BRIM_EBUDGET,
                       "the processes on %s need %s together, but it has %s\n%s\ngive some of them another device "
                       "(policy.capped.shares), or lower training.batch_size or training.eval_batch_size",
                       all[own].device, brim_format_bytes(a, sizeof a, sum),
                       brim_format_bytes(b, sizeof b, all[own].total), brim_text_str(&list));
  brim_text_release(&list);
  return status;
}

static void say_places(const place *all, int32_t ranks)
{
  char bytes[32], name[32];
  brim_text text = {0};
  for (int32_t k = 0; k < ranks && k < SHOWN; k++) {
    brim_text_printf(&text, "%s%s %s of %s", k ? "; " : "", brim_federation_process(k, name, sizeof name),
                     brim_format_bytes(bytes, sizeof bytes, all[k].peak), all[k].device);
    if (all[k].limit > 0) brim_text_printf(&text, ", at most %s", brim_format_bytes(bytes, sizeof bytes, all[k].limit));
  }
  if (ranks > SHOWN) brim_text_printf(&text, "; and %d more", (int)ranks - SHOWN);
  brim_say("processes: %s", brim_text_str(&text));
  brim_text_release(&text);
}

brim_status brim_running_check_processes(brim_running *r)
{
  const int32_t ranks = r->drive->setup->world.ranks, own = r->drive->setup->world.rank;
  place here;
  if (!brim_setup_is_isolated(r->drive->setup) || !r->options->dist) return BRIM_OK;
  BRIM_TRY(brim_running_begin_together(r, find_own(r, &here)));
  place *all = brim_xcalloc((size_t)ranks, sizeof *all);
  brim_status status = brim_dist_exchange(r->options->dist, &here, sizeof here, all);
  if (status == BRIM_OK) status = brim_running_begin_together(r, check_device(all, ranks, own));
  if (status == BRIM_OK && own == 0) say_places(all, ranks);
  free(all);
  return status;
}
