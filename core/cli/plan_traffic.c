/* Prints the traffic of a step, as text and as JSON. */
#include <math.h>
#include <stdlib.h>

#include "base/table.h"
#include "cli/plan_print.h"
#include "store/summary.h"

/* Returns the decimals with which a number shows three digits. */
static int decimals_of(double number)
{
  return number >= 100 ? 0 : number >= 10 ? 1 : number >= 1 ? 2 : 3;
}

/* The sums in the table's units, with as many decimals as the whole step needs. */
static void add_sum(brim_table *table, const char *name, const brim_traffic_sum *s, const brim_traffic_sum *step)
{
  brim_table_add(table, name);
  brim_table_number(table, s->nodes > 0 ? s->nodes : NAN, 0);
  brim_table_number(table, s->launches, 0);
  brim_table_number(table, 1e-9 * s->flops, decimals_of(1e-9 * step->flops));
  brim_table_number(table, 1e-9 * s->bytes, decimals_of(1e-9 * step->bytes));
  brim_table_number(table, 1e3 * s->seconds, 3);
  brim_table_number(table, 100 * s->seconds / step->seconds, 1);
  brim_table_number(table, 1e3 * s->launch_seconds, 3);
  brim_table_add(table, brim_bound_names[brim_traffic_bound(s)]);
}

/* Sorts the kinds; the one with the greatest lower bound is first. */
static size_t sort_kinds(const brim_traffic *t, int kind[BRIM_TRAFFICS])
{
  size_t count = 0;
  for (int k = 0; k < BRIM_TRAFFICS; k++) {
    const brim_traffic_sum *s = &t->kind[k];
    if (s->launches == 0 && s->bytes == 0) continue;
    size_t at = count++;
    for (; at > 0 && s->seconds > t->kind[kind[at - 1]].seconds; at--) kind[at] = kind[at - 1];
    kind[at] = k;
  }
  return count;
}

static void print_rates(const brim_traffic *t, const char *device, brim_text *out)
{
  const brim_device_rates *r = &t->rates;
  if (!(r->bytes > 0)) {
    brim_text_printf(out,
                     "the traffic of a step; its least time is not known, as the rates of %s were not measured: remove "
                     "--no-timing and memory.timing=false\n",
                     device);
    return;
  }
  brim_text_printf(out, "the traffic of a step, and the least time that it takes on %s", device);
  if (t->is_measured) {
    brim_text_printf(out, ", at %.0f GFLOP/s, the rate of a large matrix product here, and %.1f GB/s, that of a copy\n",
                     1e-9 * r->flops, 1e-9 * r->bytes);
    return;
  }
  brim_text_printf(out,
                   ", by its data sheet: %.0f TFLOP/s for products of bf16 and fp16, %.0f of fp32, %.0f for the rest, "
                   "%.0f GB/s\n",
                   1e-12 * r->products_16, 1e-12 * r->products_f32, 1e-12 * r->flops, 1e-9 * r->bytes);
}

void brim_cli_print_traffic(const brim_traffic *t, const char *device, brim_text *out)
{
  static const char *const heading[] = {"class", "nodes", "launches",  "GFLOP",   "GB",
                                        "ms",    "%",     "launch ms", "bound by"};
  brim_arena arena = {0};
  brim_table table = {.arena = &arena, .columns = sizeof heading / sizeof *heading};
  int kind[BRIM_TRAFFICS];
  const size_t count = sort_kinds(t, kind);
  print_rates(t, device, out);
  for (size_t i = 0; i < table.columns; i++) brim_table_add(&table, heading[i]);
  for (size_t i = 0; i < count; i++) add_sum(&table, brim_traffic_names[kind[i]], &t->kind[kind[i]], &t->step);
  add_sum(&table, "a step", &t->step, &t->step);
  brim_table_print(&table, out);
  double products = 0;
  for (int k = 0; k < BRIM_OP_KINDS; k++)
    if (brim_kind_is_product((enum brim_op_kind)k)) products += t->kind[k].compute_seconds;
  if (products > 0)
    brim_text_printf(out,
                     "  the arithmetic of its products takes %.3f ms of that; the step takes at least %.2f times as "
                     "long, with launches one after another %.2f times\n",
                     1e3 * products, t->step.seconds / products, (t->step.seconds + t->step.launch_seconds) / products);
  brim_arena_release(&arena);
}

/* ---- JSON ---- */

static void add_figures(json_t *to, const brim_traffic_sum *s)
{
  json_object_set_new(to, "nodes", json_integer((json_int_t)s->nodes));
  json_object_set_new(to, "launches", json_integer((json_int_t)s->launches));
  json_object_set_new(to, "flops", json_integer((json_int_t)s->flops));
  json_object_set_new(to, "bytes", json_integer((json_int_t)s->bytes));
  json_object_set_new(to, "compute_seconds", brim_json_figure(s->compute_seconds));
  json_object_set_new(to, "memory_seconds", brim_json_figure(s->memory_seconds));
  json_object_set_new(to, "least_seconds", brim_json_figure(s->seconds));
  json_object_set_new(to, "launch_seconds", brim_json_figure(s->launch_seconds));
  const enum brim_bound bound = brim_traffic_bound(s);
  json_object_set_new(to, "bound", bound ? json_string(brim_bound_names[bound]) : json_null());
}

static json_t *rates_json(const brim_traffic *t)
{
  const brim_device_rates *r = &t->rates;
  return json_pack(
      "{s:o, s:o, s:o, s:o, s:f, s:b}", "products_16", brim_json_figure(r->products_16 > 0 ? r->products_16 : NAN),
      "products_f32", brim_json_figure(r->products_f32 > 0 ? r->products_f32 : NAN), "flops",
      brim_json_figure(r->flops > 0 ? r->flops : NAN), "bytes", brim_json_figure(r->bytes > 0 ? r->bytes : NAN),
      "launch_seconds", r->launch_seconds, "measured", t->is_measured);
}

static json_t *row_json(const brim_traffic_row *r)
{
  json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:b}", "class", brim_traffic_names[r->kind], "op", r->op, "name",
                        r->name, "signature", r->signature, "dtype", brim_dtype_name(r->dtype), "product",
                        brim_kind_is_product((enum brim_op_kind)r->kind));
  json_object_set_new(o, "further_bytes", json_integer((json_int_t)r->further_bytes));
  add_figures(o, &r->sum);
  return o;
}

json_t *brim_cli_traffic_json(const brim_traffic *t, const char *device)
{
  json_t *classes = json_array(), *rows = json_array(), *step = json_object();
  int kind[BRIM_TRAFFICS];
  const size_t count = sort_kinds(t, kind);
  for (size_t i = 0; i < count; i++) {
    json_t *o = json_pack("{s:s}", "class", brim_traffic_names[kind[i]]);
    add_figures(o, &t->kind[kind[i]]);
    json_array_append_new(classes, o);
  }
  for (size_t i = 0; i < t->count; i++) json_array_append_new(rows, row_json(&t->row[i]));
  add_figures(step, &t->step);
  return json_pack("{s:s, s:o, s:o, s:o, s:o}", "device", device, "rates", rates_json(t), "step", step, "classes",
                   classes, "operations", rows);
}
