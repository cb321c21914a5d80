/* The topology is read from Linux's /sys; if that fails, every processor counts as a core. */
#include "dist/processors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/host.h"
#include "base/text.h"

/* ---- dividing ---- */

typedef struct processor {
  long package, core;
  int number;
} processor;

static long read_topology(int number, const char *what, long otherwise)
{
  char path[128], text[32], *end = text;
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/%s", number, what);
  (void)brim_file_start(path, text, sizeof text);
  const long value = strtol(text, &end, 10);
  return end > text ? value : otherwise;
}

static int by_place(const void *a, const void *b)
{
  const processor *p = a, *q = b;
  if (p->package != q->package) return p->package < q->package ? -1 : 1;
  if (p->core != q->core) return p->core < q->core ? -1 : 1;
  return (p->number > q->number) - (p->number < q->number);
}

/* Lists the processors that this process may run on, neighbours together; returns 0 if unknown. */
static int list_processors(processor *out)
{
  cpu_set_t set;
  int count = 0;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 0;
  for (int i = 0; i < CPU_SETSIZE; i++)
    if (CPU_ISSET((size_t)i, &set))
      out[count++] = (processor){read_topology(i, "physical_package_id", 0), read_topology(i, "core_id", i), i};
  qsort(out, (size_t)count, sizeof *out, by_place);
  return count;
}

cpu_set_t brim_processors_cut(int32_t ranks, int32_t rank)
{
  processor p[CPU_SETSIZE];
  cpu_set_t out;
  const int count = list_processors(p);
  int cores = 0, core = -1;
  CPU_ZERO(&out);
  for (int i = 0; i < count; i++) cores += i == 0 || p[i].core != p[i - 1].core || p[i].package != p[i - 1].package;
  const int each = cores / ranks;
  for (int i = 0; i < count && each > 0; i++) {
    core += i == 0 || p[i].core != p[i - 1].core || p[i].package != p[i - 1].package;
    if (core / each == rank) CPU_SET((size_t)p[i].number, &out);
  }
  return out;
}

/* ---- sharing ---- */

typedef struct place {
  uint64_t host; /* hash of its name */
  cpu_set_t set;
} place;

/* A processor that k ranks may run on counts as 1/k for each. */
static double share_of(const place *own, const place *all, int32_t ranks, int32_t *here)
{
  double share = 0;
  *here = 0;
  for (int32_t r = 0; r < ranks; r++) *here += all[r].host == own->host;
  for (size_t i = 0; i < CPU_SETSIZE; i++) {
    int32_t users = 0;
    if (!CPU_ISSET(i, &own->set)) continue;
    for (int32_t r = 0; r < ranks; r++) users += all[r].host == own->host && CPU_ISSET(i, &all[r].set);
    share += 1.0 / users;
  }
  return share;
}

brim_status brim_processors_share(brim_dist *dist)
{
  const int32_t ranks = brim_dist_world(dist).ranks;
  char name[256] = "";
  place own = {.host = 0};
  gethostname(name, sizeof name - 1);
  own.host = brim_hash(BRIM_HASH_START, name, strlen(name));
  if (sched_getaffinity(0, sizeof own.set, &own.set) != 0) CPU_ZERO(&own.set);
  place *all = brim_xcalloc((size_t)ranks, sizeof *all);
  const brim_status status = brim_dist_exchange(dist, &own, sizeof own, all);
  if (status == BRIM_OK) {
    int32_t here;
    const double share = share_of(&own, all, ranks, &here);
    brim_host_share_with(here, share);
  }
  free(all);
  return status;
}
