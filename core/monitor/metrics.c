/* See metrics.h. */
#include "monitor/metrics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "brim/backend.h"
#include "observe/openmetrics.h"

/* ---- devices ---- */

static void begin_device(brim_text *out, const char *name, const brim_look *look, const brim_look_device *d)
{
  const char *number = strchr(d->label, ':');
  brim_openmetrics_begin(out, name);
  if (d->uuid[0]) { /* a GPU */
    brim_openmetrics_label(out, "gpu", number ? number + 1 : "");
    brim_openmetrics_label(out, "UUID", d->uuid);
  }
  brim_openmetrics_label(out, "Hostname", look->host[d->host].name);
  brim_openmetrics_label(out, "backend_device", d->label);
}

static void add_owner(brim_text *out, const char *name, const brim_look *look, const brim_look_device *d,
                      const char *owner, uint64_t bytes)
{
  if (bytes == BRIM_BYTES_UNKNOWN) return;
  begin_device(out, name, look, d);
  brim_openmetrics_label(out, "owner", owner);
  brim_openmetrics_end(out, (double)bytes);
}

/* Two shares of a host may have the same label if their sizes differ; only the first is exported, because two samples
 * with the same labels make the whole file void. */
static bool is_repeated(const brim_look *look, size_t device)
{
  const brim_look_device *d = look->device;
  for (size_t i = 0; i < device; i++)
    if (d[i].host == d[device].host && strcmp(d[i].label, d[device].label) == 0 &&
        strcmp(d[i].uuid, d[device].uuid) == 0)
      return true;
  return false;
}

static void add_devices(const brim_look *look, brim_text *out)
{
  static const char bytes[] = "brim_device_bytes", load[] = "brim_device_load_percent";
  if (look->devices == 0) return;
  brim_openmetrics_family(out, "brim_device_info", "1 for each device; its labels describe it", "gauge");
  for (size_t i = 0; i < look->devices; i++) {
    if (is_repeated(look, i)) continue;
    begin_device(out, "brim_device_info", look, &look->device[i]);
    brim_openmetrics_label(out, "name", look->device[i].name);
    brim_openmetrics_end(out, 1);
  }
  brim_openmetrics_family(out, bytes, "memory of the device by owner; the sum is its total memory", "gauge");
  for (size_t i = 0; i < look->devices; i++) {
    const brim_look_device *d = &look->device[i];
    if (is_repeated(look, i)) continue;
    const bool is_known = d->mine_bytes != BRIM_BYTES_UNKNOWN && d->brim_bytes != BRIM_BYTES_UNKNOWN;
    add_owner(out, bytes, look, d, "brim", is_known ? d->mine_bytes + d->brim_bytes : BRIM_BYTES_UNKNOWN);
    add_owner(out, bytes, look, d, "libraries", d->libraries_bytes);
    add_owner(out, bytes, look, d, "other", d->other_bytes);
    add_owner(out, bytes, look, d, "free", d->free_bytes);
  }
  bool has_family = false;
  for (size_t i = 0; i < look->devices; i++) {
    if (!isfinite(look->device[i].load) || is_repeated(look, i)) continue;
    if (!has_family) brim_openmetrics_family(out, load, "time in which the device computed", "gauge");
    has_family = true;
    begin_device(out, load, look, &look->device[i]);
    brim_openmetrics_end(out, look->device[i].load);
  }
}

/* ---- the queue ---- */

/* ---- runs ---- */

static double known(uint64_t bytes)
{
  return bytes == BRIM_BYTES_UNKNOWN ? NAN : (double)bytes;
}

static double whole(int64_t value)
{
  return value < 0 ? NAN : (double)value;
}

static void describe(const brim_look *look, const brim_look_run *run, brim_openmetrics_counts *counts,
                     brim_openmetrics_run *out)
{
  *out = (brim_openmetrics_run){.host = look->host[run->host].name,
                                .run = run->name,
                                .user = run->user,
                                .pid = run->pid,
                                .rank = run->rank,
                                .model = run->model,
                                .dataset = run->dataset,
                                .device = run->device_text,
                                .command = run->command,
                                .phase = brim_look_state_names[run->state],
                                .score_name = run->score_name,
                                .unit = run->counts_tokens ? "tokens" : "samples",
                                .step = whole(run->step),
                                .steps = whole(run->steps),
                                .epoch = run->epoch,
                                .loss = run->loss,
                                .score = run->score,
                                .samples = NAN,
                                .rate = run->rate,
                                .seconds_left = run->seconds_left,
                                .queue_seconds = run->queue_seconds,
                                .rank_wait_seconds = NAN,
                                .retries = run->folder[0] ? (double)run->retries : NAN};
  for (size_t i = 0; i < run->classes && i < BRIM_OPENMETRICS_COUNTS_MAX; i++) {
    out->memory[i].name = run->memory[i].name;
    out->memory[i].bytes = known(run->memory[i].bytes);
  }
  out->classes = run->classes < BRIM_OPENMETRICS_COUNTS_MAX ? run->classes : BRIM_OPENMETRICS_COUNTS_MAX;
  *counts = (brim_openmetrics_counts){
      .count = run->decided_count < BRIM_OPENMETRICS_COUNTS_MAX ? run->decided_count : BRIM_OPENMETRICS_COUNTS_MAX};
  for (size_t i = 0; i < counts->count; i++) {
    snprintf(counts->of[i].policy, sizeof counts->of[i].policy, "%s", run->decided[i].policy);
    snprintf(counts->of[i].kind, sizeof counts->of[i].kind, "%s", run->decided[i].kind);
    counts->of[i].count = run->decided[i].count;
  }
  out->decisions = counts;
}

/* Whether two runs have the same labels: processes of different containers may have the same pid, which names a run
 * without a folder. */
static bool is_same(const brim_openmetrics_run *a, const brim_openmetrics_run *b)
{
  return a->pid == b->pid && a->rank == b->rank && strcmp(a->run, b->run) == 0 && strcmp(a->host, b->host) == 0 &&
         strcmp(a->user, b->user) == 0;
}

static void add_runs(brim_look *look, brim_text *out)
{
  brim_openmetrics_run *run = BRIM_ARENA_NEW(&look->arena, brim_openmetrics_run, look->runs);
  brim_openmetrics_counts *counts = BRIM_ARENA_NEW(&look->arena, brim_openmetrics_counts, look->runs);
  size_t count = 0;
  for (size_t i = 0; i < look->runs; i++) {
    size_t j = 0;
    if (!brim_look_is_live(look->run[i].state)) continue;
    describe(look, &look->run[i], &counts[count], &run[count]);
    while (j < count && !is_same(&run[j], &run[count])) j++;
    if (j < count) run[count].run = brim_arena_printf(&look->arena, "%s (%zu)", run[count].run, count);
    count++;
  }
  brim_openmetrics_runs(run, count, brim_look_state_names, BRIM_LOOK_FINISHED, out);
}

void brim_look_metrics(brim_look *look, brim_text *out)
{
  add_devices(look, out);
  static const char runs[] = "brim_queue_runs", seconds[] = "brim_queue_seconds";
  brim_openmetrics_family(out, runs, "runs that wait for a device", "gauge");
  for (size_t h = 0; h < look->hosts; h++) {
    size_t count = 0;
    if (look->host[h].failure[0]) continue;
    for (size_t i = 0; i < look->tickets; i++)
      count += look->ticket[i].host == h && look->ticket[i].device == BRIM_LOOK_NONE;
    brim_openmetrics_begin(out, runs);
    brim_openmetrics_label(out, "Hostname", look->host[h].name);
    brim_openmetrics_end(out, (double)count);
  }
  brim_openmetrics_family(out, seconds, "longest time that a run has waited so far", "gauge");
  for (size_t h = 0; h < look->hosts; h++) {
    double longest = 0;
    if (look->host[h].failure[0]) continue;
    for (size_t i = 0; i < look->tickets; i++) {
      const brim_look_ticket *t = &look->ticket[i];
      if (t->host == h && t->device == BRIM_LOOK_NONE) longest = fmax(longest, look->host[h].time - t->since);
    }
    brim_openmetrics_begin(out, seconds);
    brim_openmetrics_label(out, "Hostname", look->host[h].name);
    brim_openmetrics_end(out, longest);
  }
  add_runs(look, out);
  brim_openmetrics_finish(out);
}
