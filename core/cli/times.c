/* See times.h. */
#include "cli/times.h"

#include <math.h>

#include "base/table.h"
#include "store/summary.h"

#define SHOWN 24 /* operations; the others are put together */

static double ratio(double a, double b)
{
  return b > 0 ? a / b : NAN;
}

static void add_figures(brim_table *table, double seconds, double all, double floor)
{
  brim_table_number(table, 1e3 * seconds, 3);
  brim_table_number(table, 100 * ratio(seconds, all), 1);
  brim_table_number(table, floor > 0 ? 1e3 * floor : NAN, 3);
  brim_table_number(table, floor > 0 ? seconds / floor : NAN, 2);
}

static void add_operation(brim_table *table, const brim_op_time *e, double all)
{
  brim_table_add(table,
                 brim_arena_printf(
                     table->arena, "%s '%s'%s", e->op, e->name,
                     e->nodes > 1 ? brim_arena_printf(table->arena, " and %lld more", (long long)e->nodes - 1) : ""));
  brim_table_number(table, e->times, 0);
  add_figures(table, e->seconds, all, e->floor);
  brim_table_number(table, 1e-9 * ratio((double)e->cost.flops, e->seconds), 1);
  brim_table_number(table, 1e-9 * ratio((double)e->cost.bytes, e->seconds), 1);
}

static void add_line(brim_table *table, const char *name, double times, double seconds, double all, double floor)
{
  brim_table_add(table, name);
  brim_table_number(table, times, 0);
  add_figures(table, seconds, all, floor);
  brim_table_add(table, "");
  brim_table_add(table, "");
}

void brim_cli_print_times(const brim_times *t, brim_text *out)
{
  static const char *const heading[] = {"operation", "times", "ms", "%", "floor", "x floor", "GFLOP/s", "GB/s"};
  brim_arena arena = {0};
  brim_table table = {.arena = &arena, .columns = sizeof heading / sizeof *heading};
  brim_op_time others = {0};
  double floor = 0;
  for (size_t i = 0; i < table.columns; i++) brim_table_add(&table, heading[i]);
  for (size_t i = 0; i < t->count; i++) {
    const brim_op_time *e = &t->op[i];
    floor += e->floor;
    if (i < SHOWN) {
      add_operation(&table, e, t->seconds);
      continue;
    }
    others.times += e->times;
    others.seconds += e->seconds;
    others.floor += e->floor;
  }
  if (others.times > 0) add_line(&table, "other operations", others.times, others.seconds, t->seconds, others.floor);
  add_line(&table, "besides operations", NAN, t->rest_seconds, t->seconds, 0);
  add_line(&table, "a step", NAN, t->seconds, t->seconds, floor);
  brim_text_printf(
      out,
      "where a step's time goes, by what is above the floor: what its work takes at least at %.0f GFLOP/s, "
      "as a large product here, and %.1f GB/s, as a copy\n",
      1e-9 * t->ceiling.flops, 1e-9 * t->ceiling.bytes);
  brim_table_print(&table, out);
  brim_arena_release(&arena);
}

json_t *brim_cli_times_json(const brim_times *t)
{
  json_t *rows = json_array();
  for (size_t i = 0; i < t->count; i++) {
    const brim_op_time *e = &t->op[i];
    json_t *row =
        json_pack("{s:s, s:s, s:I, s:f, s:I, s:I}", "op", e->op, "name", e->name, "nodes", (json_int_t)e->nodes,
                  "times", e->times, "flops", (json_int_t)e->cost.flops, "bytes", (json_int_t)e->cost.bytes);
    json_object_set_new(row, "seconds", brim_json_figure(e->seconds));
    json_object_set_new(row, "floor_seconds", brim_json_figure(e->floor));
    json_array_append_new(rows, row);
  }
  return json_pack("{s:f, s:f, s:f, s:f, s:o}", "seconds", t->seconds, "rest_seconds", t->rest_seconds,
                   "flops_per_second", t->ceiling.flops, "bytes_per_second", t->ceiling.bytes, "operations", rows);
}
