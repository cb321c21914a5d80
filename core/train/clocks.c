/* See clocks.h. */
#include "train/clocks.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/text.h"
#include "base/tracing.h"

#define EXCHANGES 32

typedef struct message {
  uint64_t boot; /* equal on ranks with the same clock */
  int64_t before, after_last;
} message;

/* d = own clock - first clock. Rank 0 sent its message after its `before`, and this rank received it before its own
 * `after`, so d <= own after - first before. The reverse message gives the other bound. */
brim_clock_offset brim_clock_offset_of(const brim_clock_reading *first, const brim_clock_reading *own, size_t count)
{
  int64_t least = INT64_MIN, most = INT64_MAX;
  for (size_t i = 0; i < count; i++) {
    if (own[i].after - first[i].before < most) most = own[i].after - first[i].before;
    if (own[i].before - first[i].after > least) least = own[i].before - first[i].after;
  }
  if (count == 0) return (brim_clock_offset){0, INT64_MAX};
  return (brim_clock_offset){least + (most - least) / 2, (most - least) / 2};
}

/* Returns a number for this boot of this machine; 0: unknown. */
static uint64_t boot_of(void)
{
  char id[64];
  const size_t length = brim_file_start("/proc/sys/kernel/random/boot_id", id, sizeof id);
  return length > 0 ? brim_hash(BRIM_HASH_START, id, length) : 0;
}

brim_status brim_clocks_compare(brim_dist *dist, brim_clock_offset *out, int64_t *now)
{
  const brim_world world = brim_dist_world(dist);
  brim_clock_reading first[EXCHANGES] = {{0, 0}}, own[EXCHANGES] = {{0, 0}};
  *out = (brim_clock_offset){0, 0};
  *now = brim_tracing_clock();
  if (!dist || world.ranks < 2) return BRIM_OK;
  /* Must not fail, because other ranks take part in the exchanges. */
  message *all = brim_xcalloc((size_t)world.ranks, sizeof *all);
  message mine = {.boot = boot_of()};
  brim_status status = BRIM_OK;
  /* One more exchange follows, which shows when the one before it ended. */
  for (int i = 0; i <= EXCHANGES && status == BRIM_OK; i++) {
    mine.after_last = i > 0 ? own[i - 1].after : 0;
    mine.before = brim_tracing_clock();
    status = brim_dist_exchange(dist, &mine, sizeof mine, all);
    if (i < EXCHANGES) own[i] = (brim_clock_reading){mine.before, brim_tracing_clock()};
    if (i < EXCHANGES) first[i].before = all[0].before;
    if (i > 0) first[i - 1].after = all[0].after_last;
  }
  if (status == BRIM_OK) {
    *out = brim_clock_offset_of(first, own, EXCHANGES);
    *now = all[0].before;
    const bool same = mine.boot != 0 && all[0].boot == mine.boot;
    if (same && out->nanoseconds <= out->error && out->nanoseconds >= -out->error) *out = (brim_clock_offset){0, 0};
  }
  free(all);
  return status;
}
