/* See frontier.h. */
#include "cli/frontier.h"

#include <stdio.h>

#include "base/table.h"
#include "store/summary.h"

static const char *const basis_names[] = {
    [BRIM_BASIS_TIMED] = "timed", [BRIM_BASIS_DERIVED] = "derived", [BRIM_BASIS_GUESSED] = "guessed"};

static double samples_per_second(const brim_setup *s, const brim_frontier_row *c)
{
  return (double)brim_setup_step_samples(s) / c->figures.step_seconds;
}

static bool has_precisions(const brim_frontier *f)
{
  bool differ = false;
  for (size_t i = 1; i < f->count; i++) differ = differ || f->row[i].choice.precision != f->row[0].choice.precision;
  return differ;
}

/* Milliseconds with three figures; what was not timed as it is has a mark. */
static void print_time(const brim_figures *f, char *out, size_t room)
{
  static const char *const mark[] = {[BRIM_BASIS_TIMED] = "", [BRIM_BASIS_DERIVED] = "~", [BRIM_BASIS_GUESSED] = "?"};
  const double ms = 1e3 * f->step_seconds;
  snprintf(out, room, "%s%.*f ms", mark[f->basis], ms >= 100 ? 0 : ms >= 10 ? 1 : 2, ms);
}

static void print_choice(const brim_setup *s, const brim_frontier_row *c, bool precisions, brim_text *out)
{
  char peak[32], activations[32], step[32], extra[32] = "";
  const brim_figures *f = &c->figures;
  print_time(f, step, sizeof step);
  if (f->recompute_share > 0) snprintf(extra, sizeof extra, "%.1f %%", 100 * f->recompute_share);
  brim_text_printf(out, "%c %11lld  %12lld  %9s  ", c->chosen ? '*' : ' ', (long long)c->choice.micro_batch,
                   (long long)brim_setup_micros(s, c->choice.micro_batch),
                   brim_recompute_name((enum brim_recompute_kind)c->choice.recompute));
  if (precisions) brim_text_printf(out, "%9s  ", brim_precision_names[c->choice.precision]);
  brim_text_printf(out, "%10s  %11s  %10s  %9.0f%s%s\n", brim_format_bytes(peak, sizeof peak, f->peak_bytes),
                   brim_format_bytes(activations, sizeof activations, f->activation_bytes), step,
                   samples_per_second(s, c), extra[0] ? "  " : "", extra);
}

static void print_notes(const brim_frontier *f, brim_text *out)
{
  bool used[BRIM_BASIS_GUESSED + 1] = {false};
  for (size_t i = 0; i < f->count; i++) used[f->row[i].figures.basis] = true;
  if (used[BRIM_BASIS_DERIVED]) brim_text_add(out, "  ~ partly by times of other micro-batches\n");
  if (used[BRIM_BASIS_GUESSED])
    brim_text_add(out, "  ? partly guessed by common rates: the device profile has no times of such kernels\n");
}

void brim_cli_print_frontier(const brim_frontier *f, const brim_setup *s, brim_text *out)
{
  char bytes[32];
  const bool precisions = has_precisions(f);
  bool drawn = false;
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
  print_notes(f, out);
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
    json_object_set_new(row, "basis", json_string(basis_names[c->figures.basis]));
    json_array_append_new(rows, row);
  }
  return json_pack("{s:I, s:o}", "limit_bytes", (json_int_t)f->room_bytes, "choices", rows);
}
