#include "cli/plan_print.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/table.h"
#include "graph/plan_json.h"
#include "planner/room.h"
#include "planner/strict.h"
#include "planner/taken.h"
#include "report/plan_svg.h"
#include "store/rundir.h"
#include "store/summary.h"

#define SHOWN 24 /* most operations shown; the others are summed */

/* ---- precision and slow operations ---- */

const char *brim_cli_format_precision(const brim_setup *setup, char out[BRIM_CLI_PRECISION_BYTES])
{
  const int32_t precision = brim_setup_precision(setup);
  out[0] = '\0';
  if (precision != BRIM_PRECISION_FP32)
    snprintf(out, BRIM_CLI_PRECISION_BYTES, "%s, ", brim_precision_names[precision]);
  return out;
}

void brim_cli_print_slower(const brim_drive *d, const brim_plan *plan)
{
  brim_text text = {0};
  brim_plan_print_refused(plan, &text);
  if (text.length > 0) brim_text_add(&text, "\n");
  const size_t refused = text.length;
  brim_strict_print_precision(d->setup, &d->planner.device_info, &text);
  if (text.length > refused) brim_text_add(&text, "\n");
  if (text.length > 0) printf("%s", text.s);
  brim_text_release(&text);
}

/* ---- plans that fit ---- */

brim_status brim_cli_find_fits(const brim_cli *cli, brim_drive *d, bool others, brim_fits *out)
{
  brim_cli_hush(cli, true);
  const brim_status status = brim_fits_add(out, d);
  if (status == BRIM_OK && others) brim_fits_add_others(out, d);
  brim_cli_hush(cli, false);
  return status;
}

/* Adds "64 x 2      44.6 MiB", or dashes. */
static void add_fit(const brim_fit *fit, brim_text *out)
{
  char bytes[32], cut[48];
  snprintf(cut, sizeof cut, "%lld x %lld", (long long)fit->micro_batch, (long long)fit->accumulation);
  brim_format_bytes(bytes, sizeof bytes, fit->peak_bytes);
  const bool fits = fit->micro_batch > 0;
  brim_text_printf(out, "  %12s  %10s", fits ? cut : "-", fits ? bytes : "-");
}

void brim_cli_print_fits(const brim_fits *fits, brim_text *out)
{
  char a[32], b[32];
  int width = (int)strlen("device");
  for (size_t i = 0; i < fits->count; i++)
    if ((int)strlen(fits->device[i].name) > width) width = (int)strlen(fits->device[i].name);
  brim_text_printf(out, "  %-*s  %10s  %10s  %12s  %10s  %12s  %10s\n", width, "device", "free", "total", "fits now",
                   "peak", "if empty", "peak");
  for (size_t i = 0; i < fits->count; i++) {
    const brim_device_fit *d = &fits->device[i];
    brim_text_printf(out, "%c %-*s  %10s  %10s", d->chosen ? '*' : ' ', width, d->name,
                     brim_format_bytes(a, sizeof a, d->info.free_bytes),
                     brim_format_bytes(b, sizeof b, d->info.total_bytes));
    add_fit(&d->now, out);
    add_fit(&d->empty, out);
    brim_text_add(out, "\n");
  }
}

/* Returns a fit as JSON; null: nothing fits. */
static json_t *fit_json(const brim_fit *fit)
{
  if (fit->micro_batch == 0) return json_null();
  return json_pack("{s:I, s:I, s:I}", "batch_size", (json_int_t)fit->micro_batch, "gradient_accumulation_steps",
                   (json_int_t)fit->accumulation, "peak_bytes", (json_int_t)fit->peak_bytes);
}

json_t *brim_cli_fits_json(const brim_fits *fits)
{
  json_t *rows = json_array();
  for (size_t i = 0; i < fits->count; i++) {
    const brim_device_fit *d = &fits->device[i];
    json_array_append_new(rows,
                          json_pack("{s:s, s:s, s:s, s:I, s:I, s:b, s:o, s:o}", "device", d->name, "backend",
                                    d->backend, "name", d->info.name, "free_bytes", (json_int_t)d->info.free_bytes,
                                    "total_bytes", (json_int_t)d->info.total_bytes, "chosen", d->chosen, "fits_now",
                                    fit_json(&d->now), "fits_empty", fit_json(&d->empty)));
  }
  return rows;
}

/* ---- cards ---- */

/* Appends "     5120     6.9 GiB", or dashes. */
static void add_most(int64_t most, uint64_t peak, int width, brim_text *out)
{
  char number[32], bytes[32];
  snprintf(number, sizeof number, "%lld", (long long)most);
  brim_format_bytes(bytes, sizeof bytes, peak);
  brim_text_printf(out, "  %*s  %9s", width, most > 0 ? number : "-", most > 0 ? bytes : "-");
}

static bool has_all_samples(const brim_cards *cards)
{
  for (size_t i = 0; i < cards->count; i++)
    if (cards->card[i].micro_batch > 0 && cards->card[i].micro_batch == cards->samples) return true;
  return false;
}

void brim_cli_print_cards(const brim_cards *cards, const brim_setup *setup, brim_text *out)
{
  char bytes[32];
  const int32_t precision = brim_setup_precision(setup);
  const bool is_auto = setup->settings->precision == BRIM_PRECISION_AUTO && precision == BRIM_PRECISION_FP32;
  if (cards->count == 0) return;
  brim_text_printf(out, "\nlargest samples and micro-batches by the size of a GPU's memory, in %s%s:\n",
                   brim_precision_names[precision], is_auto ? " (GPUs take precision=bf16 by default)" : "");
  const int width = snprintf(bytes, sizeof bytes, "micro-batch of %lld", (long long)cards->context);
  brim_text_printf(out, "  memory   for a plan  longest context       peak  %s       peak\n", bytes);
  for (size_t i = 0; i < cards->count; i++) {
    const brim_card *c = &cards->card[i];
    brim_text_printf(out, "  %2llu GiB  %11s", (unsigned long long)(c->card_bytes >> 30),
                     brim_format_bytes(bytes, sizeof bytes, c->room_bytes));
    add_most(c->context, c->context_peak_bytes, 15, out);
    add_most(c->micro_batch, c->batch_peak_bytes, width, out);
    brim_text_add(out, "\n");
  }
  brim_text_printf(out,
                   "  each peak is %s, with the most recompute that memory.recompute allows; the rest, %s, is %s\n",
                   cards->is_described ? "exact but for the scratch of libraries, which is assumed" : "exact",
                   brim_format_bytes(bytes, sizeof bytes, cards->besides_bytes),
                   cards->is_measured ? "the driver's and the libraries', as measured here, and the headroom"
                                      : "assumed for a GPU's driver and libraries: it is not measured here");
  if (cards->limited) brim_text_add(out, "  the model's own limit bounds the longest context\n");
  if (has_all_samples(cards))
    brim_text_printf(out, "  a micro-batch of %lld has all training samples\n", (long long)cards->samples);
}

static json_t *most_json(int64_t most, uint64_t peak, const char *name)
{
  if (most == 0) return json_null();
  return json_pack("{s:I, s:I}", name, (json_int_t)most, "peak_bytes", (json_int_t)peak);
}

json_t *brim_cli_cards_json(const brim_cards *cards)
{
  json_t *rows = json_array();
  for (size_t i = 0; i < cards->count; i++) {
    const brim_card *c = &cards->card[i];
    json_array_append_new(rows, json_pack("{s:I, s:I, s:o, s:o}", "card_bytes", (json_int_t)c->card_bytes, "room_bytes",
                                          (json_int_t)c->room_bytes, "longest",
                                          most_json(c->context, c->context_peak_bytes, "context"), "largest",
                                          most_json(c->micro_batch, c->batch_peak_bytes, "batch_size")));
  }
  return json_pack("{s:I, s:b, s:b, s:I, s:o}", "besides_bytes", (json_int_t)cards->besides_bytes, "measured",
                   cards->is_measured, "described", cards->is_described, "samples", (json_int_t)cards->samples, "rows",
                   rows);
}

/* ---- the frontier ---- */

const char *const brim_basis_names[] = {
    [BRIM_BASIS_TIMED] = "timed", [BRIM_BASIS_DERIVED] = "derived", [BRIM_BASIS_GUESSED] = "guessed"};

static double samples_per_second(const brim_setup *s, const brim_frontier_row *c)
{
  return (double)brim_setup_step_samples(s) / c->figures.step_seconds;
}

const char *brim_cli_format_time(double seconds, enum brim_basis basis, char *out, size_t room)
{
  static const char *const mark[] = {[BRIM_BASIS_TIMED] = "", [BRIM_BASIS_DERIVED] = "~", [BRIM_BASIS_GUESSED] = "?"};
  const double ms = 1e3 * seconds;
  snprintf(out, room, "%s%.*f ms", mark[basis], ms >= 100 ? 0 : ms >= 10 ? 1 : 2, ms);
  return out;
}

static void print_choice(const brim_setup *s, const brim_frontier_row *c, bool precisions, brim_text *out)
{
  char peak[32], activations[32], step[32], extra[32] = "";
  const brim_figures *f = &c->figures;
  brim_cli_format_time(f->step_seconds, f->basis, step, sizeof step);
  if (f->recompute_share > 0) snprintf(extra, sizeof extra, "%.1f %%", 100 * f->recompute_share);
  brim_text_printf(out, "%c %11lld  %12lld  %9s  ", c->chosen ? '*' : ' ', (long long)c->choice.micro_batch,
                   (long long)brim_setup_micros(s, c->choice.micro_batch),
                   brim_recompute_name((enum brim_recompute_kind)c->choice.recompute));
  if (precisions) brim_text_printf(out, "%9s  ", brim_precision_names[c->choice.precision]);
  const double rate = samples_per_second(s, c);
  brim_text_printf(out, "%10s  %11s  %10s  %9.*f%s%s\n", brim_format_bytes(peak, sizeof peak, f->peak_bytes),
                   brim_format_bytes(activations, sizeof activations, f->activation_bytes), step, rate < 10 ? 2 : 0,
                   rate, extra[0] ? "  " : "", extra);
}

void brim_cli_print_basis_notes(const bool used[BRIM_BASIS_GUESSED + 1], brim_text *out)
{
  if (used[BRIM_BASIS_DERIVED]) brim_text_add(out, "  ~ partly from times of other micro-batches\n");
  if (used[BRIM_BASIS_GUESSED])
    brim_text_add(out, "  ? partly estimated from typical rates: the device profile has no times for these kernels\n");
}

void brim_cli_print_frontier(const brim_frontier *f, const brim_setup *s, brim_text *out)
{
  char bytes[32];
  bool precisions = false;
  for (size_t i = 1; i < f->count; i++)
    precisions = precisions || f->row[i].choice.precision != f->row[0].choice.precision;
  bool drawn = false, used[BRIM_BASIS_GUESSED + 1] = {false};
  brim_text_printf(
      out, "  micro-batch  accumulation  recompute  %s      peak  activations        step  samples/s  more work\n",
      precisions ? "precision  " : "");
  for (size_t i = 0; i <= f->count; i++) {
    if (!drawn && (i == f->count || f->row[i].figures.peak_bytes > f->room_bytes)) {
      brim_text_printf(out, "  ------ limit %s ------\n", brim_format_bytes(bytes, sizeof bytes, f->room_bytes));
      drawn = true;
    }
    if (i < f->count) print_choice(s, &f->row[i], precisions, out);
  }
  for (size_t i = 0; i < f->count; i++) used[f->row[i].figures.basis] = true;
  brim_cli_print_basis_notes(used, out);
}

json_t *brim_cli_frontier_json(const brim_frontier *f, const brim_setup *s)
{
  json_t *rows = json_array();
  for (size_t i = 0; i < f->count; i++) {
    const brim_frontier_row *c = &f->row[i];
    json_t *row = json_pack(
        "{s:I, s:I, s:s, s:s, s:I, s:I, s:b, s:b}", "batch_size", (json_int_t)c->choice.micro_batch,
        "gradient_accumulation_steps", (json_int_t)brim_setup_micros(s, c->choice.micro_batch), "recompute",
        brim_recompute_name((enum brim_recompute_kind)c->choice.recompute), "precision",
        brim_precision_names[c->choice.precision], "peak_bytes", (json_int_t)c->figures.peak_bytes, "activation_bytes",
        (json_int_t)c->figures.activation_bytes, "fits", c->figures.peak_bytes <= f->room_bytes, "chosen", c->chosen);
    json_object_set_new(row, "step_seconds", brim_json_figure(c->figures.step_seconds));
    json_object_set_new(row, "samples_per_second", brim_json_figure(samples_per_second(s, c)));
    json_object_set_new(row, "recompute_share", brim_json_figure(c->figures.recompute_share));
    json_object_set_new(row, "basis", json_string(brim_basis_names[c->figures.basis]));
    json_array_append_new(rows, row);
  }
  return json_pack("{s:I, s:o}", "limit_bytes", (json_int_t)f->room_bytes, "choices", rows);
}

/* ---- times of a step ---- */

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
      "the time of a step, sorted by the excess over the floor: the least time at %.0f GFLOP/s, the rate of a large "
      "matrix product here, and %.1f GB/s, that of a copy\n",
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

/* ---- a picture ---- */

brim_status brim_cli_write_picture(const brim_drive *d, const brim_plan *plan, const brim_program *program,
                                   const char *title, const char *path)
{
  const uint64_t budget = plan->request.budget_bytes, room = brim_planner_room(&d->planner, true);
  const brim_plan_picture picture = {title, budget > 0 && budget < room ? budget : room};
  brim_text text = {0};
  brim_plan_svg(plan, program, &picture, &text);
  const brim_status status = brim_file_write_atomic(path, brim_text_str(&text), text.length);
  brim_text_release(&text);
  if (status == BRIM_OK) brim_log(BRIM_LOG_INFO, "picture in %s", path);
  return status;
}

void brim_cli_print_taken(const brim_drive *d, const brim_plan *plan, brim_text *out)
{
  char bytes[32];
  brim_taken taken;
  if (!brim_taken_is_measured(d->setup->backend_ops)) return;
  brim_taken_predict(&d->planner, plan, &taken);
  brim_text_printf(out, "\nthe process takes %s of %s:%d, as measured so far:\n",
                   brim_format_bytes(bytes, sizeof bytes, taken.total_bytes), brim_setup_backend_id(d->setup),
                   d->planner.device);
  brim_taken_print(&taken, out);
}

void brim_cli_add_taken(const brim_drive *d, const brim_plan *plan, json_t *out)
{
  brim_taken taken;
  if (!brim_taken_is_measured(d->setup->backend_ops)) return;
  brim_taken_predict(&d->planner, plan, &taken);
  json_object_set_new(out, "device_memory", brim_taken_json(&taken));
}
