#include "drive/fits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decide/decide.h"
#include "planner/room.h"

void brim_fits_release(brim_fits *fits)
{
  free(fits->device);
  *fits = (brim_fits){0};
}

/* ---- one device ---- */

/* Finds the largest micro-batch whose plan takes at most `room`. Peaks grow with the micro-batch, with few exceptions.
 * The result was planned and fits, and the next larger size was planned and does not fit. */
static brim_status search(brim_drive *d, const brim_choice *within, uint64_t room, brim_fit *out)
{
  const size_t count = brim_planner_list_cuts(&d->planner);
  size_t low = 0, high = count; /* the list is descending: entries before low do not fit; the entry at high does */
  uint64_t peak = 0, fitting = 0;
  *out = (brim_fit){0};
  while (low < high) {
    const size_t middle =
        low == 0 && high == count ? 0 : low + (high - low) / 2; /* mostly, the largest fits: try it first */
    const brim_choice c = brim_choice_cut(within, d->planner.micro_batch[middle]);
    BRIM_TRY(brim_planner_peak(&d->planner, &c, &peak));
    if (peak <= room) {
      high = middle;
      fitting = peak;
    } else {
      low = middle + 1;
    }
  }
  if (high == count) return BRIM_OK;
  const int64_t batch = d->planner.micro_batch[high];
  *out = (brim_fit){batch, brim_setup_micros(d->setup, batch), fitting};
  return BRIM_OK;
}

static brim_status find_fit(brim_drive *d, uint64_t room, brim_fit *out)
{
  brim_choice within = d->choice;
  within.within_bytes = brim_planner_within(&d->planner, room > 0 ? room : 1);
  return search(d, &within, room, out);
}

static uint64_t less(uint64_t bytes, uint64_t taken)
{
  return bytes > taken ? bytes - taken : 0;
}

/* Fills the row of the run's device or of one like it, which has the same plans. On a device that is not selected, the
 * driver and the libraries do not use memory yet. */
static brim_status fill(brim_drive *drive, int index, const brim_device_limit *limit, brim_device_fit *d)
{
  const uint64_t taken = drive->planner.device_info.taken_bytes;
  brim_device_info info = drive->planner.device_info;
  if (index != drive->planner.device) {
    info.total_bytes = d->info.total_bytes;
    info.free_bytes = less(d->info.free_bytes, taken);
  }
  const uint64_t now = brim_planner_room_on(&drive->planner, &info, limit->bytes, info.free_bytes);
  const uint64_t empty = brim_planner_room_on(&drive->planner, &info, limit->bytes, less(info.total_bytes, taken));
  BRIM_TRY(find_fit(drive, brim_planner_room_beside(&drive->planner, &info, now, false), &d->now));
  return find_fit(drive, brim_planner_room_beside(&drive->planner, &info, empty, true), &d->empty);
}

/* ---- the devices of a backend ---- */

/* Whether plans are the same on both devices. */
static bool are_alike(const brim_device_info *a, const brim_device_info *b)
{
  return a->capability_major == b->capability_major && a->capability_minor == b->capability_minor &&
         strcmp(a->name, b->name) == 0;
}

static brim_status add_rows(brim_fits *fits, const brim_drive *drive, int count)
{
  const char *backend = brim_setup_backend_id(drive->setup);
  fits->device = brim_xrealloc(fits->device, (fits->count + (size_t)count) * sizeof *fits->device);
  for (int i = 0; i < count; i++) {
    brim_device_fit *d = &fits->device[fits->count + (size_t)i];
    *d = (brim_device_fit){.backend = backend, .chosen = i == drive->planner.device};
    snprintf(d->name, sizeof d->name, "%s:%d", backend, i);
    BRIM_TRY(drive->setup->backend_ops->describe(drive->setup->backend, i, &d->info));
  }
  fits->count += (size_t)count;
  return BRIM_OK;
}

/* Fills the rows of devices that are like the run's. */
static brim_status fill_kind(brim_drive *d, const brim_device_limit *limit, brim_device_fit *row, bool *done, int count)
{
  for (int i = 0; i < count; i++) {
    if (done[i] || !are_alike(&row[i].info, &d->planner.device_info)) continue;
    done[i] = true;
    BRIM_TRY(fill(d, i, &limit[i], &row[i]));
  }
  return BRIM_OK;
}

/* Fills the rows of all devices that the run may use, kind after kind, beginning with the run's own. If a device cannot
 * be selected, nothing fits on it. */
static brim_status fill_rows(brim_drive *d, const brim_device_limit *limit, brim_device_fit *row, int count)
{
  const int own = d->planner.device;
  const brim_device_info own_info = d->planner.device_info;
  bool *done = brim_xcalloc((size_t)count, sizeof *done);
  for (int i = 0; i < count; i++) done[i] = !limit[i].allowed;
  brim_status status = fill_kind(d, limit, row, done, count);
  for (int i = 0; i < count && status == BRIM_OK; i++)
    if (!done[i] && brim_drive_move(d, i) == BRIM_OK) status = fill_kind(d, limit, row, done, count);
  if (d->planner.device != own && status == BRIM_OK) status = brim_drive_move(d, own);
  d->planner.device_info = own_info; /* the memory of a GPU's context is known only when the context exists */
  free(done);
  return status;
}

brim_status brim_fits_add(brim_fits *fits, brim_drive *d)
{
  const size_t before = fits->count;
  const int count = d->setup->backend_ops->device_count(d->setup->backend);
  brim_status status = add_rows(fits, d, count);
  brim_device_limit *limit = brim_xcalloc((size_t)count, sizeof *limit);
  if (status == BRIM_OK) status = brim_decide_limits(&d->dialogue, limit, count);
  if (status == BRIM_OK) status = fill_rows(d, limit, fits->device + before, count);
  free(limit);
  if (status != BRIM_OK) fits->count = before;
  return status;
}

/* ---- other backends ---- */

static brim_status add_backend(brim_fits *fits, const brim_drive *like, const char *id)
{
  char backend[80];
  brim_config *config = NULL;
  brim_drive *d = NULL;
  snprintf(backend, sizeof backend, "backend=%s", id);
  const char *const words[] = {backend, "device=auto"};
  BRIM_TRY(brim_config_load_again(like->setup->config, words, sizeof words / sizeof words[0], &config));
  brim_status status = brim_drive_open(config, &(brim_setup_options){.world = like->setup->world}, &d);
  if (status == BRIM_OK) {
    const size_t before = fits->count;
    const bool same = strcmp(brim_setup_backend_id(d->setup), id) == 0;
    /* if the backends differ, a policy has moved the drive to another device. */
    if (same) status = brim_fits_add(fits, d);
    for (size_t i = before; i < fits->count; i++) fits->device[i].chosen = false;
    brim_drive_close(d);
  }
  brim_config_free(config);
  return status;
}

static bool has_backend(const brim_fits *fits, const char *id)
{
  for (size_t i = 0; i < fits->count; i++)
    if (strcmp(fits->device[i].backend, id) == 0) return true;
  return false;
}

/* Whether a backend computes on the host. Does not load brim's own GPU backend for that. */
static bool is_for_host(const brim_registry *registry, const char *id)
{
  if (strcmp(id, "cuda") == 0) return false;
  const brim_registry_entry *entry = brim_registry_find(registry, BRIM_BACKEND, id);
  return entry && !BRIM_HAS(brim_backend_ops, (const brim_backend_ops *)entry->plugin->ops, select);
}

void brim_fits_add_others(brim_fits *fits, const brim_drive *d)
{
  const brim_registry *registry = d->setup->config->registry;
  const char *id;
  for (size_t i = 0; (id = brim_registry_home(registry, BRIM_BACKEND, i)) != NULL; i++) {
    if (has_backend(fits, id) || !is_for_host(registry, id)) continue;
    if (add_backend(fits, d, id) != BRIM_OK)
      brim_log(BRIM_LOG_DEBUG, "backend '%s' is left out of the devices: %s", id, brim_error_text());
  }
}
