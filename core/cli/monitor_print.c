/* See monitor_print.h. */
#include "cli/monitor_print.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/table.h"
#include "brim/backend.h"

static const char *bytes_of(brim_look *look, uint64_t bytes)
{
  char text[32];
  return bytes == BRIM_BYTES_UNKNOWN ? "-"
                                     : brim_arena_string(&look->arena, brim_format_bytes(text, sizeof text, bytes));
}

static const char *time_of(brim_look *look, double seconds)
{
  char text[32];
  return seconds >= 0 && seconds < 1e9
             ? brim_arena_string(&look->arena, brim_format_seconds(text, sizeof text, seconds))
             : "-";
}

static void begin(brim_table *table, brim_look *look, const char *const *head, size_t columns)
{
  *table = (brim_table){.arena = &look->arena, .columns = columns};
  for (size_t i = 0; i < columns; i++) brim_table_add(table, head[i]);
}

/* Tables are separated by an empty line; one without rows is left out. */
static void end(const brim_table *table, brim_text *out)
{
  if (table->count == table->columns) return;
  if (out->length > 0) brim_text_add(out, "\n");
  brim_table_print(table, out);
}

/* The host's name, if there are several. */
static const char *host_of(const brim_look *look, size_t host)
{
  return look->hosts > 1 ? look->host[host].name : "";
}

static void print_hosts(brim_look *look, brim_text *out)
{
  static const char *const head[] = {"host", "load", "of", "memory", "of", ""};
  brim_table table;
  begin(&table, look, head, sizeof head / sizeof head[0]);
  for (size_t i = 0; i < look->hosts; i++) {
    const brim_look_host *h = &look->host[i];
    const bool failed = h->failure[0];
    brim_table_add(&table, h->name);
    brim_table_number(&table, h->load, 1);
    brim_table_number(&table, h->processors, 0);
    brim_table_add(&table, failed ? "-" : bytes_of(look, h->ram_used_bytes));
    brim_table_add(&table, failed ? "-" : bytes_of(look, h->ram_total_bytes));
    brim_table_add(&table, h->failure);
  }
  end(&table, out);
}

static void print_devices(brim_look *look, brim_text *out)
{
  static const char *const head[] = {"host", "device", "mine",   "brim", "libraries", "other",
                                     "free", "total",  "load %", "C",    "watts",     "name"};
  brim_table table;
  begin(&table, look, head, sizeof head / sizeof head[0]);
  for (size_t i = 0; i < look->devices; i++) {
    const brim_look_device *d = &look->device[i];
    const uint64_t bytes[] = {d->mine_bytes,  d->brim_bytes, d->libraries_bytes,
                              d->other_bytes, d->free_bytes, d->total_bytes};
    brim_table_add(&table, host_of(look, d->host));
    brim_table_add(&table, d->label);
    for (size_t j = 0; j < sizeof bytes / sizeof bytes[0]; j++) brim_table_add(&table, bytes_of(look, bytes[j]));
    brim_table_number(&table, d->load, 0);
    brim_table_number(&table, d->celsius, 0);
    brim_table_number(&table, d->watts, 0);
    brim_table_add(&table, d->name);
  }
  end(&table, out);
}

static void print_queue(brim_look *look, brim_text *out)
{
  static const char *const head[] = {"host", "queue", "wants", "needs", "waits", "starts", "run", "pid", "user"};
  brim_table table;
  begin(&table, look, head, sizeof head / sizeof head[0]);
  for (size_t i = 0; i < look->tickets; i++) {
    const brim_look_ticket *t = &look->ticket[i];
    const double now = look->host[t->host].time;
    char hour[16] = "";
    if (isfinite(t->starts)) brim_format_hour(hour, sizeof hour, t->starts);
    brim_table_add(&table, host_of(look, t->host));
    brim_table_add(&table,
                   t->device == BRIM_LOOK_NONE ? brim_arena_printf(&look->arena, "%" PRId64, t->place) : "starts");
    brim_table_add(&table, t->device == BRIM_LOOK_NONE ? t->wish : look->device[t->device].label);
    brim_table_add(&table, bytes_of(look, t->need_bytes));
    brim_table_add(&table, time_of(look, now - t->since));
    brim_table_add(&table, hour[0] ? brim_arena_printf(&look->arena, "~%s", hour) : "-");
    brim_table_add(&table, t->run == BRIM_LOOK_NONE ? "-" : look->run[t->run].name);
    brim_table_add(&table, brim_arena_printf(&look->arena, "%" PRId64, t->pid));
    brim_table_add(&table, t->user);
  }
  end(&table, out);
}

static const char *steps_of(brim_look *look, const brim_look_run *run)
{
  if (run->step < 0) return "-";
  if (run->steps < 0) return brim_arena_printf(&look->arena, "%" PRId64, run->step);
  return brim_arena_printf(&look->arena, "%" PRId64 "/%" PRId64, run->step, run->steps);
}

static void print_runs(brim_look *look, brim_text *out)
{
  static const char *const head[] = {"host", "run",  "model", "state", "device", "memory",
                                     "step", "loss", "rate",  "left",  "user",   "pid"};
  brim_table table;
  begin(&table, look, head, sizeof head / sizeof head[0]);
  for (size_t i = 0; i < look->runs; i++) {
    const brim_look_run *run = &look->run[i];
    const char *rank =
        run->ranks > 1 ? brim_arena_printf(&look->arena, " rank %" PRId64 "/%" PRId64, run->rank, run->ranks) : "";
    brim_table_add(&table, host_of(look, run->host));
    brim_table_add(&table, brim_arena_printf(&look->arena, "%s%s", run->name, rank));
    brim_table_add(&table, run->model);
    brim_table_add(&table, brim_look_state_names[run->state]);
    brim_table_add(&table, run->device_text);
    brim_table_add(&table, bytes_of(look, run->device_bytes));
    brim_table_add(&table, steps_of(look, run));
    brim_table_number(&table, run->loss, 4);
    brim_table_number(&table, run->rate, 0);
    brim_table_add(&table, time_of(look, run->seconds_left));
    brim_table_add(&table, run->user);
    brim_table_add(&table, brim_arena_printf(&look->arena, "%" PRId64, run->pid));
  }
  end(&table, out);
}

void brim_monitor_print(brim_look *look, brim_text *out)
{
  print_hosts(look, out);
  print_devices(look, out);
  print_queue(look, out);
  print_runs(look, out);
  if (look->advices > 0) brim_text_add(out, "\n");
  for (size_t i = 0; i < look->advices; i++)
    brim_text_printf(out, "%zu  %s\n   %s\n", i + 1, look->advice[i].text, look->advice[i].command);
  if (look->problems > 0) brim_text_add(out, "\n");
  for (size_t i = 0; i < look->problems; i++) brim_text_printf(out, "not read: %s\n", look->problem[i]);
}
