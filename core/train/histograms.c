#include "train/histograms.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/convert.h"
#include "base/file.h"
#include "dist/dist.h"
#include "observe/events.h"
#include "setup/setup.h"

#define LINE_BYTES 8192 /* a line with all bins takes about 3,000 bytes plus the tensor's name */

/* Returns the program whose graph has the parameters as training changes them, with their gradients. */
static const brim_program *program_of(const brim_trainer *t)
{
  const brim_plan *plan = brim_trainer_plan(t);
  const brim_program *update = brim_plan_program(plan, BRIM_PROGRAM_UPDATE, 0);
  return update ? update : &plan->program[0];
}

static const brim_graph *graph_of(const brim_trainer *t)
{
  return program_of(t)->graph;
}

/* ---- opening ---- */

static int64_t sampled(int64_t values)
{
  return values < BRIM_HISTOGRAM_VALUES_MAX ? values : BRIM_HISTOGRAM_VALUES_MAX;
}

static int64_t count_sampled(const brim_graph *g)
{
  int64_t count = 0;
  for (size_t i = 0; i < g->parameter_count; i++)
    if (brim_parameter_is_trained(&g->parameter[i])) count += sampled(brim_shape_count(&g->parameter[i].value->shape));
  return count;
}

/* Returns the number of complete lines for steps up to `step`. The file may be missing. */
static int64_t count_lines(const char *path, int64_t step)
{
  FILE *file = brim_fopen_to_read(path);
  char *line = NULL;
  size_t room = 0;
  int64_t count = 0;
  long long of = 0;
  while (file && getline(&line, &room, file) > 0 && sscanf(line, "{\"step\":%lld,", &of) == 1 && of <= step) count++;
  free(line);
  if (file) fclose(file);
  return count;
}

static brim_status allocate(brim_histograms *h, const brim_trainer *t, bool writes)
{
  const brim_setup *s = brim_trainer_drive(t)->setup;
  const size_t ranks = s->options.dist ? (size_t)s->world.ranks : 0, one = sizeof *h->of;
  const size_t kept = writes ? (size_t)count_sampled(graph_of(t)) : 0;
  h->of = brim_try_malloc(one);
  h->change = brim_try_malloc(one);
  h->block = brim_try_malloc(BRIM_HISTOGRAM_VALUES_MAX * sizeof *h->block);
  h->raw = brim_try_malloc(BRIM_HISTOGRAM_VALUES_MAX * sizeof(double));
  h->of_ranks = brim_try_malloc(ranks * one);
  h->all = brim_try_malloc(ranks * BRIM_EXCHANGE_BYTES);
  h->before = brim_try_malloc(kept * sizeof *h->before);
  if (h->of && h->change && h->block && h->raw && h->of_ranks && h->all && h->before) return BRIM_OK;
  return brim_fail(BRIM_ENOMEM_HOST, "no host memory for histograms (%zu bytes)", kept * sizeof *h->before);
}

/* Histograms are turned on only if they are on every rank, because with slices of gradients all ranks take part. */
static brim_status agree(brim_histograms *h, const brim_trainer *t, brim_status own)
{
  const brim_setup *s = brim_trainer_drive(t)->setup;
  const char on = own == BRIM_OK;
  brim_status met = BRIM_OK;
  char *all = s->options.dist ? brim_xcalloc((size_t)s->world.ranks, 1) : NULL;
  if (all) met = brim_dist_exchange(s->options.dist, &on, 1, all);
  for (int32_t r = 0; all && met == BRIM_OK && r < s->world.ranks; r++) h->on = h->on && all[r];
  free(all);
  if (met == BRIM_OK && own == BRIM_OK && !h->on) own = brim_fail(BRIM_EPEER, "another rank cannot make histograms");
  if (met != BRIM_OK || !h->on) brim_histograms_close(h);
  return met == BRIM_OK ? own : met;
}

brim_status brim_histograms_open(brim_histograms *h, const brim_trainer *t, const char *dir, int64_t step)
{
  char path[sizeof h->log.path];
  *h = (brim_histograms){.log.fd = -1, .before_step = -1};
  brim_status status = allocate(h, t, dir != NULL);
  if (status == BRIM_OK && dir) {
    const int length = snprintf(path, sizeof path, "%s/" BRIM_HISTOGRAMS_NAME, dir);
    if (length < 0 || (size_t)length >= sizeof path)
      status = brim_fail(BRIM_EINVAL, "path '%.200s...' is too long", dir);
    else
      status = brim_jsonl_open(&h->log, path, count_lines(path, step));
  }
  h->on = status == BRIM_OK;
  brim_text_reserve(&h->line, LINE_BYTES);
  return agree(h, t, status);
}

void brim_histograms_close(brim_histograms *h)
{
  void *const blocks[] = {h->of, h->change, h->of_ranks, h->all, h->block, h->raw, h->before};
  for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) free(blocks[i]);
  brim_jsonl_close(&h->log);
  brim_text_release(&h->line);
  *h = (brim_histograms){.log.fd = -1, .before_step = -1};
}

void brim_histograms_mute(brim_histograms *h)
{
  brim_jsonl_close(&h->log);
  h->log.fd = -1;
}

brim_status brim_histograms_rewind(brim_histograms *h, int64_t step)
{
  char path[sizeof h->log.path];
  h->before_step = -1;
  if (h->log.fd < 0) return BRIM_OK;
  snprintf(path, sizeof path, "%s", h->log.path);
  brim_jsonl_close(&h->log);
  return brim_jsonl_open(&h->log, path, count_lines(path, step));
}

/* ---- reading ---- */

/* Reads elements of a tensor as floats. */
static brim_status read_values(brim_histograms *h, brim_trainer *t, const brim_tensor *tensor, int64_t first,
                               int64_t count, float *out)
{
  void *to = tensor->dtype == BRIM_DTYPE_F32 ? out : h->raw;
  BRIM_TRY(brim_exec_read_range(brim_trainer_exec(t), program_of(t), tensor, first, count, to));
  if (to != out) brim_convert(BRIM_DTYPE_F32, out, tensor->dtype, to, (size_t)count);
  return BRIM_OK;
}

/* Reads the blocks of a tensor, one after another; returns the number of their values. */
static brim_status read_blocks(brim_histograms *h, brim_trainer *t, const brim_tensor *tensor, float *out)
{
  const int64_t values = brim_shape_count(&tensor->shape);
  int64_t first, count;
  for (int64_t k = 0; brim_histogram_block(values, k, &first, &count); k++, out += count)
    BRIM_TRY(read_values(h, t, tensor, first, count, out));
  return BRIM_OK;
}

brim_status brim_histograms_before(brim_histograms *h, brim_trainer *t, int64_t step)
{
  const brim_graph *g = graph_of(t);
  float *at = h->before;
  h->before_step = -1;
  if (h->log.fd < 0) return BRIM_OK;
  for (size_t i = 0; i < g->parameter_count; i++) {
    const brim_tensor *value = g->parameter[i].value;
    if (!brim_parameter_is_trained(&g->parameter[i])) continue;
    BRIM_TRY(read_blocks(h, t, value, at));
    at += sampled(brim_shape_count(&value->shape));
  }
  h->before_step = step;
  return BRIM_OK;
}

/* ---- lines ---- */

static const char *const kinds[] = {"weights", "gradients", "updates"};
enum kind { WEIGHTS, GRADIENTS, UPDATES };

static brim_status write_line(brim_histograms *h, int64_t step, const brim_tensor *value, enum kind kind,
                              const brim_histogram *of, double change_rms, double ratio, brim_tensorboard *tensorboard)
{
  brim_histogram_figures f;
  brim_text *line = &h->line;
  char name[160];
  brim_histogram_read(of, &f);
  brim_text_clear(line);
  brim_text_printf(line, "{\"step\":%" PRId64 ",\"tensor\":\"", step);
  for (const char *s = value->name; *s; s++)
    brim_text_add_n(line, *s < ' ' || *s > '~' || *s == '"' || *s == '\\' ? "?" : s, 1);
  brim_text_printf(line, "\",\"of\":\"%s\",\"shape\":[", kinds[kind]);
  for (int32_t d = 0; d < value->shape.rank; d++)
    brim_text_printf(line, d > 0 ? ",%" PRId64 : "%" PRId64, value->shape.dim[d]);
  brim_text_printf(line, "],\"values\":%" PRId64 ",", brim_shape_count(&value->shape));
  brim_histogram_print(&f, line);
  if (kind == UPDATES && isfinite(change_rms)) brim_text_printf(line, ",\"change_rms\":%.9g", change_rms);
  if (kind == UPDATES && isfinite(ratio)) brim_text_printf(line, ",\"ratio\":%.9g", ratio);
  brim_text_add(line, "}\n");
  BRIM_TRY(brim_jsonl_append(&h->log, brim_text_str(line), line->length));
  snprintf(name, sizeof name, "%s/%.120s", kinds[kind], value->name);
  if (!tensorboard || tensorboard->fd < 0) return BRIM_OK;
  if (brim_tensorboard_histogram(tensorboard, step, name, &f) != BRIM_OK) brim_tensorboard_give_up(tensorboard);
  return BRIM_OK;
}

/* Writes the histogram of weights and, if their earlier values were kept, of updates. *before advances to the next
 * parameter's values. */
static brim_status write_values(brim_histograms *h, brim_trainer *t, int64_t step, const brim_tensor *value,
                                const float **before, brim_tensorboard *tensorboard)
{
  brim_histogram_figures weights, change;
  const size_t count = (size_t)sampled(brim_shape_count(&value->shape));
  BRIM_TRY(read_blocks(h, t, value, h->block));
  memset(h->of, 0, sizeof *h->of);
  brim_histogram_add(h->of, h->block, count, 1);
  brim_histogram_read(h->of, &weights);
  BRIM_TRY(write_line(h, step, value, WEIGHTS, h->of, NAN, NAN, tensorboard));
  if (h->before_step == step) {
    memset(h->of, 0, sizeof *h->of);
    memset(h->change, 0, sizeof *h->change);
    brim_histogram_add_ratios(h->of, h->change, *before, h->block, count);
    brim_histogram_read(h->change, &change);
    BRIM_TRY(write_line(h, step, value, UPDATES, h->of, change.rms, change.rms / weights.rms, tensorboard));
  }
  *before += count;
  return BRIM_OK;
}

/* ---- gradients ---- */

/* Counts a parameter's gradient; for a slice of this rank, the part of each block that lies in it. */
static brim_status count_gradient(brim_histograms *h, brim_trainer *t, const brim_tensor *gradient, int64_t from,
                                  int64_t values, float factor)
{
  int64_t first, count;
  const int64_t end = from + brim_shape_count(&gradient->shape);
  for (int64_t k = 0; brim_histogram_block(values, k, &first, &count); k++) {
    const int64_t low = first > from ? first : from, high = first + count < end ? first + count : end;
    if (low >= high) continue;
    BRIM_TRY(read_values(h, t, gradient, low - from, high - low, h->block));
    brim_histogram_add(h->of, h->block, (size_t)(high - low), factor);
  }
  return BRIM_OK;
}

/* Adds up the histograms of all ranks. */
static brim_status add_ranks(brim_histograms *h, const brim_setup *s)
{
  const size_t bytes = sizeof *h->of;
  for (size_t at = 0; at < bytes; at += BRIM_EXCHANGE_BYTES) {
    const size_t some = bytes - at < BRIM_EXCHANGE_BYTES ? bytes - at : BRIM_EXCHANGE_BYTES;
    BRIM_TRY(brim_dist_exchange(s->options.dist, (const char *)h->of + at, (uint32_t)some, h->all));
    for (int32_t r = 0; r < s->world.ranks; r++)
      memcpy((char *)&h->of_ranks[r] + at, (const char *)h->all + (size_t)r * some, some);
  }
  memset(h->of, 0, bytes);
  for (int32_t r = 0; r < s->world.ranks; r++) brim_histogram_merge(h->of, &h->of_ranks[r]);
  return BRIM_OK;
}

/* Gradients are sums of the samples' losses times the loss scale; updates divide by both. */
static brim_status write_gradient(brim_histograms *h, brim_trainer *t, int64_t step, size_t parameter,
                                  brim_tensorboard *tensorboard)
{
  const brim_setup *s = brim_trainer_drive(t)->setup;
  const brim_graph *g = graph_of(t);
  const brim_parameter *p = &g->parameter[parameter];
  const brim_own_slice *slice = g->slice ? &g->slice[parameter] : NULL;
  const brim_tensor *gradient = slice ? slice->gradient : p->gradient;
  brim_status status = BRIM_OK;
  if (!slice && (!gradient || h->log.fd < 0)) return BRIM_OK;
  memset(h->of, 0, sizeof *h->of);
  if (gradient)
    status = count_gradient(h, t, gradient, slice ? slice->first : 0, brim_shape_count(&p->value->shape),
                            (float)brim_trainer_gradient_scale(t));
  h->of->lost = status != BRIM_OK;
  if (slice) {
    BRIM_TRY(add_ranks(h, s));
    if (status == BRIM_OK && h->of->lost > 0) status = brim_fail(BRIM_EPEER, "another rank could not read its part");
  }
  BRIM_TRY(status);
  return h->log.fd < 0 ? BRIM_OK : write_line(h, step, p->value, GRADIENTS, h->of, NAN, NAN, tensorboard);
}

brim_status brim_histograms_after(brim_histograms *h, brim_trainer *t, int64_t step, brim_tensorboard *tensorboard)
{
  const brim_setup *s = brim_trainer_drive(t)->setup;
  const brim_graph *g = graph_of(t);
  const bool has_gradients = !brim_setup_is_federated(s);
  const float *before = h->before;
  brim_status status = BRIM_OK;
  for (size_t i = 0; i < g->parameter_count; i++) {
    if (!brim_parameter_is_trained(&g->parameter[i])) continue;
    if (h->log.fd >= 0 && status == BRIM_OK)
      status = write_values(h, t, step, g->parameter[i].value, &before, tensorboard);
    const brim_status own =
        has_gradients && (status == BRIM_OK || g->slice)
            ? write_gradient(h, t, step, i, tensorboard)
            : BRIM_OK; /* with slices, all ranks exchange their histograms, even after a failure here */
    if (own == BRIM_ECOMM) return own;
    if (status == BRIM_OK) status = own;
  }
  h->before_step = -1;
  return status;
}
