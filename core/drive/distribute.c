/* See distribute.h. */
#include "drive/distribute.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "drive/drive.h"
#include "drive/precision.h"
#include "planner/figures.h"
#include "store/record.h"

#define KEPT_ROOM 65536 /* bytes of the recorded shares, which rank 0 sends when a run resumes */

/* ---- records in a run's folder ---- */

static json_t *numbers(const int64_t *value, int32_t count)
{
  json_t *out = json_array();
  for (int32_t i = 0; i < count; i++) json_array_append_new(out, json_integer((json_int_t)value[i]));
  return out;
}

void brim_distribution_describe(const brim_drive *d, json_t *plan)
{
  if (d->setup->world.ranks <= 1) return;
  json_object_set_new(plan, "ranks", json_integer(d->setup->world.ranks));
  if (d->setup->distribution.weight)
    json_object_set_new(plan, "deal", numbers(d->setup->distribution.weight, d->setup->world.ranks));
  if (d->setup->distribution.batch)
    json_object_set_new(plan, "batch_sizes", numbers(d->setup->distribution.batch, d->setup->world.ranks));
}

/* Reads the recorded keys from the folder's plan.json, as text; empty if it has none, or if it is for another number of
 * ranks. */
static void read_kept(const brim_drive *d, char *out, size_t room)
{
  static const char *const keys[] = {"deal", "batch_sizes"};
  char path[4200];
  if (!d->setup->options.resume) return;
  snprintf(path, sizeof path, "%s/plan.json", d->setup->options.resume);
  json_t *plan = brim_json_load(path, 0, NULL), *kept = json_object();
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
    json_object_set(kept, keys[i], json_object_get(plan, keys[i]));
  const bool fits = json_integer_value(json_object_get(plan, "ranks")) == d->setup->world.ranks;
  const size_t length = fits ? json_dumpb(kept, out, room - 1, JSON_COMPACT) : 0;
  out[length < room ? length : 0] = '\0';
  json_decref(plan);
  json_decref(kept);
}

/* Reads one number for each rank, each at least 1, with the sum `sum` (0: any sum); otherwise returns NULL. */
static int64_t *parse_numbers(const json_t *array, int32_t ranks, int64_t sum)
{
  int64_t left = sum;
  bool fits = json_array_size(array) == (size_t)ranks;
  int64_t *out = brim_xcalloc((size_t)ranks, sizeof *out);
  for (int32_t r = 0; r < ranks && fits; r++) {
    out[r] = json_integer_value(json_array_get(array, (size_t)r));
    fits = out[r] >= 1 && (sum == 0 || out[r] <= left);
    if (sum > 0 && fits) left -= out[r];
  }
  if (fits && left == 0) return out;
  free(out);
  return NULL;
}

static void parse_kept(const char *text, int32_t ranks, brim_distribution *out)
{
  json_t *kept = json_loads(text, 0, NULL);
  out->weight = parse_numbers(json_object_get(kept, "deal"), ranks, (int64_t)BRIM_PARTS_A_RANK * ranks);
  out->batch = parse_numbers(json_object_get(kept, "batch_sizes"), ranks, 0);
  json_decref(kept);
}

/* ---- agreeing ---- */

/* The message that ranks exchange. */
typedef struct word {
  int32_t status;
  uint32_t kept_bytes;  /* length of rank 0's text about a resumed run; 0 if it has none */
  uint64_t device;      /* hash of the device's description */
  uint64_t sample_time; /* predicted nanoseconds; 0 if unknown */
  int32_t precision;    /* enum brim_precision */
} word;

/* Collects every rank's word in `all`. A rank that failed keeps its own status; the others get EPEER. */
static brim_status exchange(brim_dist *dist, const word *own, word *all)
{
  brim_error error;
  const int32_t ranks = brim_dist_world(dist).ranks;
  brim_error_take(&error);
  BRIM_TRY(brim_dist_exchange(dist, own, sizeof *own, all));
  if (own->status != BRIM_OK) {
    brim_error_put(&error);
    return own->status;
  }
  for (int32_t r = 0; r < ranks; r++)
    if (all[r].status != BRIM_OK)
      return brim_fail(BRIM_EPEER, "rank %d failed before its first plan: %s", (int)r, brim_status_text(all[r].status));
  return BRIM_OK;
}

static uint64_t hash_device(const brim_drive *drive)
{
  const brim_device_info *d = &drive->planner.device_info;
  return brim_hash(brim_hash(BRIM_HASH_START, d->name, strlen(d->name)), &d->threads, sizeof d->threads);
}

/* Predicts the time of a sample with the drive's current plan. Leaves out the update, which begins when the ranks have
 * summed their gradients, and takes the same time for any shares. */
static brim_status predict_sample(brim_drive *d, uint64_t *nanoseconds)
{
  brim_figures f;
  const brim_choice v = d->choice;
  const int64_t share = brim_setup_step_samples(d->setup);
  *nanoseconds = 0;
  if (share == 0) return BRIM_OK;
  BRIM_TRY(brim_planner_figures(&d->planner, &v, &f));
  const double each = 1e9 * (f.step_seconds - f.update_seconds) / (double)share;
  if (isfinite(each) && each >= 1 && each < 1e18) *nanoseconds = (uint64_t)each;
  return BRIM_OK;
}

static void log_weights(const brim_drive *d)
{
  brim_text text = {0};
  for (int32_t r = 0; r < d->setup->world.ranks; r++)
    brim_text_printf(&text, "%s%lld", r ? ":" : "", (long long)d->setup->distribution.weight[r]);
  if (d->setup->world.rank == 0)
    brim_log(BRIM_LOG_INFO,
             "devices differ: dist.deal=auto divides the samples among the ranks as %s, by predicted times",
             brim_text_str(&text));
  brim_text_release(&text);
}

/* Computes the ranks' weights from the times that they predict; does nothing if a rank cannot predict. */
static brim_status weigh_ranks(brim_dist *dist, brim_drive *d, word *own, word *all)
{
  const int32_t ranks = d->setup->world.ranks;
  own->status = predict_sample(d, &own->sample_time);
  BRIM_TRY(exchange(dist, own, all));
  uint64_t *times = brim_xmalloc((size_t)ranks * sizeof *times);
  int64_t *weight = brim_xmalloc((size_t)ranks * sizeof *weight);
  for (int32_t r = 0; r < ranks; r++) times[r] = all[r].sample_time;
  if (brim_distribution_weigh(times, ranks, weight)) {
    brim_drive_distribute(d, weight);
    log_weights(d);
  } else {
    free(weight);
  }
  free(times);
  return BRIM_OK;
}

static bool are_alike(const word *all, int32_t ranks)
{
  for (int32_t r = 1; r < ranks; r++)
    if (all[r].device != all[0].device) return false;
  return true;
}

/* Rank 0 sends the records of the run's folder, so that all ranks use the same shares. This is the ranks' first
 * exchange: if a rank has no drive, it reports that, and all ranks stop. */
static brim_status share_kept(brim_dist *dist, brim_status before, const brim_drive *d, word *all,
                              brim_distribution *kept)
{
  char *text = brim_xcalloc(1, KEPT_ROOM);
  const brim_world world = brim_dist_world(dist);
  word own = {.status = before};
  if (before == BRIM_OK && world.rank == 0) read_kept(d, text, KEPT_ROOM);
  if (text[0]) own.kept_bytes = (uint32_t)strlen(text) + 1;
  if (before == BRIM_OK) own.precision = brim_setup_precision(d->setup);
  brim_status status = exchange(dist, &own, all);
  if (status == BRIM_OK && all[0].kept_bytes > 0) {
    status = brim_dist_share_text(dist, text, all[0].kept_bytes);
    if (status == BRIM_OK) parse_kept(text, world.ranks, kept);
  }
  free(text);
  return status;
}

static void take_kept(brim_drive *d, brim_distribution *kept)
{
  free(d->setup->distribution.batch);
  d->setup->distribution.batch = kept->batch;
  if (kept->weight && d->setup->settings->dist.deal == BRIM_DEAL_AUTO)
    brim_drive_distribute(d, kept->weight);
  else
    free(kept->weight);
}

static brim_status agree_on_precision(brim_drive **drive, const word *all)
{
  const int32_t ranks = (*drive)->setup->world.ranks;
  int32_t *precision = brim_xcalloc((size_t)ranks, sizeof *precision);
  for (int32_t r = 0; r < ranks; r++) precision[r] = all[r].precision;
  const bool agree = brim_precision_agree(*drive, precision, ranks);
  free(precision);
  return agree ? BRIM_OK : brim_drive_remake(drive);
}

static brim_status settle_together(brim_dist *dist, brim_status before, brim_drive **drive, word *all)
{
  brim_distribution kept = {0};
  BRIM_TRY(share_kept(dist, before, before == BRIM_OK ? *drive : NULL, all, &kept));
  const bool is_kept = kept.weight || kept.batch;
  take_kept(*drive, &kept);
  word own = {.status = agree_on_precision(drive, all)};
  if (own.status == BRIM_OK) own.status = brim_drive_settle(drive);
  if (own.status == BRIM_OK) own.device = hash_device(*drive);
  BRIM_TRY(exchange(dist, &own, all));
  brim_drive *d = *drive;
  d->setup->distribution.is_settled = true;
  /* A federation assigns clients in each round, by the times of earlier rounds. */
  if (is_kept || d->setup->settings->dist.deal == BRIM_DEAL_EVEN || are_alike(all, d->setup->world.ranks) ||
      brim_setup_is_federated(d->setup))
    return BRIM_OK;
  BRIM_TRY(weigh_ranks(dist, d, &own, all));
  if (!d->setup->distribution.weight) return BRIM_OK;
  own.status = brim_drive_settle(drive);
  return exchange(dist, &own, all);
}

brim_status brim_distribution_settle(brim_dist *dist, brim_status before, brim_drive **drive)
{
  const bool alone = !dist || brim_dist_world(dist).ranks == 1;
  if (alone || (before == BRIM_OK && (*drive)->setup->distribution.is_settled)) {
    BRIM_TRY(before);
    return brim_drive_settle(drive);
  }
  word *all = brim_xcalloc((size_t)brim_dist_world(dist).ranks, sizeof *all);
  const brim_status status = settle_together(dist, before, drive, all);
  free(all);
  return status;
}

brim_status brim_distribution_exchange_batches(brim_drive *d)
{
  if (d->setup->world.ranks == 1 || !d->setup->options.dist) return BRIM_OK;
  int64_t *all = brim_xcalloc((size_t)d->setup->world.ranks, sizeof *all);
  const brim_status status =
      brim_dist_exchange(d->setup->options.dist, &d->choice.micro_batch, sizeof d->choice.micro_batch, all);
  if (status != BRIM_OK) {
    free(all);
    return status;
  }
  free(d->setup->distribution.batch);
  d->setup->distribution.batch = all;
  return BRIM_OK;
}

/* ---- output ---- */

/* Whether all ranks have the same number of samples in a full step, and the same micro-batches as far as they are
 * known. */
static bool is_even(const brim_drive *d)
{
  const int64_t step = brim_setup_all_samples(d->setup), units = brim_setup_norm_groups(d->setup, step);
  if (d->setup->distribution.weight || brim_setup_step_samples(d->setup) * d->setup->world.ranks != step) return false;
  if (d->setup->norm_group > 0 && units % d->setup->world.ranks != 0) return false;
  for (int32_t r = 0; d->setup->distribution.batch && r < d->setup->world.ranks; r++)
    if (d->setup->distribution.batch[r] != d->setup->distribution.batch[0]) return false;
  return true;
}

void brim_distribution_print(const brim_drive *d, brim_text *out)
{
  char cut[BRIM_CUT_ROOM];
  const long long effective = (long long)d->setup->settings->training.effective_batch_size,
                  step = (long long)brim_setup_all_samples(d->setup);
  if (brim_setup_is_isolated(d->setup)) {
    brim_text_printf(out, "the server, and a process for each of %lld clients, batches of %lld",
                     (long long)d->setup->settings->total_clients, effective);
    return;
  }
  if (brim_setup_is_federated(d->setup)) {
    if (d->setup->world.ranks > 1) brim_text_printf(out, "on each of %d ranks ", (int)d->setup->world.ranks);
    brim_text_printf(out, "%d client%s at a time, batches of %lld", (int)d->choice.lanes, brim_plural(d->choice.lanes),
                     effective);
    if (d->choice.micro_batch < effective)
      brim_text_printf(out, " in pieces of %lld", (long long)d->choice.micro_batch);
    return;
  }
  brim_setup_format_cut(d->setup, d->choice.micro_batch, cut, sizeof cut);
  brim_text_printf(out, "effective batch %lld", step);
  if (d->setup->world.ranks == 1)
    brim_text_printf(out, " = %s", cut);
  else if (is_even(d))
    brim_text_printf(out, " = %d ranks x %s", (int)d->setup->world.ranks, cut);
  else
    brim_text_printf(out, " divided among %d ranks, of which rank %d has %lld = %s", (int)d->setup->world.ranks,
                     (int)d->setup->world.rank, (long long)brim_setup_step_samples(d->setup), cut);
  if (step < effective)
    brim_text_printf(out, " (requested: %lld; the data have %lld training samples)", effective, step);
}
