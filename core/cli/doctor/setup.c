/* Checks plugins, configuration, devices, and whether the run would start. See doctor.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/host.h"
#include "base/text.h"
#include "cli/doctor/doctor.h"
#include "drive/placement.h"
#include "exec/profile.h"
#include "memory/board.h"
#include "monitor/backends.h"
#include "planner/room.h"

#define PROFILE_DAYS_MAX 180
#define FREE_SHARE_MIN 0.05 /* part of a device's memory that should be free */

void brim_doctor_plugins(brim_doctor *d)
{
  const brim_registry *r = d->cli->registry;
  const size_t count = brim_registry_count(r), failures = brim_registry_failure_count(r);
  brim_doctor_add(d, BRIM_FINDING_OK, "program", NULL, "brim %s, plugin ABI %d.%d", BRIM_VERSION, BRIM_ABI_MAJOR,
                  BRIM_ABI_MINOR);
  if (!brim_registry_find(r, BRIM_BACKEND, "cpu") && !brim_registry_find(r, BRIM_BACKEND, "cuda"))
    brim_doctor_add(d, BRIM_FINDING_WARNING, "plugins",
                    "install the package brim-plugins, or build with oneDNN (libdnnl-dev) or CUDA",
                    "there is neither backend 'cpu' nor 'cuda'; 'reference' is slow");
  for (size_t i = 0; i < failures; i++) {
    const brim_registry_failure *f = brim_registry_failure_at(r, i);
    const char *rest = strchr(f->reason, '\n');
    brim_doctor_add(d, BRIM_FINDING_WARNING, "plugins",
                    rest ? rest + 1 : "build it again for this brim, or remove it or its folder from the search path",
                    "%s: %.*s", f->file, (int)strcspn(f->reason, "\n"), f->reason);
  }
  brim_doctor_add(d, BRIM_FINDING_OK, "plugins", NULL, "%zu can be used", count);
}

void brim_doctor_configuration(brim_doctor *d)
{
  if (brim_cli_config(d->cli, NULL, d->words->word, d->words->number, d->words->count, &d->config) != BRIM_OK) {
    brim_doctor_add_error(d, BRIM_FINDING_PROBLEM, "configuration",
                          "`brim config` shows the configuration, `brim train --help` lists all keys");
    d->config = NULL;
    return;
  }
  brim_shared_folder_set(d->config->settings.claims.dir);
  brim_doctor_add(d, BRIM_FINDING_OK, "configuration", NULL, "model %s, dataset %s, backend %s",
                  brim_config_choice_of(d->config, "model")->name, brim_config_choice_of(d->config, "dataset")->name,
                  brim_config_choice_of(d->config, "backend")->name);
}

/* ---- devices ---- */

/* Predicted times come from a profile; an old one may describe the device before an update of its driver. */
static void look_at_profile(brim_doctor *d, const brim_backend_seen *b, const char *name, const brim_device_info *info)
{
  char path[BRIM_PATH_MAX];
  struct stat file;
  const brim_profile_subject subject = brim_profile_subject_of(b->id, b->entry->file, info);
  brim_profile *profile = NULL;
  /* Without a path there is no cache; another check reports that. */
  if (!brim_profile_default_path(&subject, path, sizeof path)) return;
  if (stat(path, &file) != 0) {
    brim_doctor_add(d, BRIM_FINDING_NOTE, "profile",
                    "nothing to do for training; `brim plan` measures times, and so do runs with policy=auto_plan",
                    "no operation was timed on %s yet, so predicted times are guesses", name);
    return;
  }
  if (brim_profile_open(path, &subject, &profile) != BRIM_OK) {
    brim_doctor_add_error(d, BRIM_FINDING_WARNING, "profile", "`brim devices --forget-times` deletes all profiles");
    return;
  }
  brim_profile_close(profile);
  const int days = (int)(difftime(time(NULL), file.st_mtime) / 86400);
  if (days > PROFILE_DAYS_MAX)
    brim_doctor_add(d, BRIM_FINDING_WARNING, "profile", "measure again: brim devices --forget-times",
                    "the times of %s are %d days old", name, days);
  else
    brim_doctor_add(d, BRIM_FINDING_OK, "profile", NULL, "the times of %s are %d day%s old", name, days,
                    brim_plural(days));
}

static void look_at_device(brim_doctor *d, const brim_backend_seen *b, int i)
{
  char name[64], free[32], total[32];
  brim_device_seen seen;
  snprintf(name, sizeof name, "%s:%d", b->id, i);
  if (brim_device_see(b, i, &d->arena, &seen) != BRIM_OK) {
    brim_doctor_add_error(d, BRIM_FINDING_PROBLEM, "devices", "`brim devices` shows all devices");
    return;
  }
  const brim_device_info *info = &seen.info;
  brim_format_bytes(free, sizeof free, info->free_bytes);
  brim_format_bytes(total, sizeof total, info->total_bytes);
  if ((double)info->free_bytes < FREE_SHARE_MIN * (double)info->total_bytes)
    brim_doctor_add(d, BRIM_FINDING_WARNING, "devices",
                    "`brim devices` lists the processes that use it; wait_for_gpu=true joins its queue",
                    "%s: only %s of %s free (%s)", name, free, total, info->name);
  else
    brim_doctor_add(d, BRIM_FINDING_OK, "devices", NULL, "%s: %s of %s free (%s)", name, free, total, info->name);
  if (strcmp(b->id, "reference") != 0) look_at_profile(d, b, name, info);
}

/* A GPU on the bus that no backend can use is the most common broken set-up. */
static void look_at_gpus(brim_doctor *d, const brim_backends *all)
{
  bool has_cuda = false;
  for (size_t i = 0; i < all->count; i++) has_cuda = has_cuda || strcmp(all->backend[i].id, "cuda") == 0;
  if (!brim_host_has_nvidia(BRIM_PCI_BUS)) {
    brim_doctor_add(d, BRIM_FINDING_NOTE, "devices", NULL, "there is no NVIDIA GPU on the PCI bus");
    return;
  }
  if (access("/proc/driver/nvidia/version", F_OK) != 0)
    brim_doctor_add(d, BRIM_FINDING_PROBLEM, "devices",
                    "install NVIDIA's driver (Debian: nvidia-driver), then load it or restart the machine; in a "
                    "container, pass the GPU in: --gpus all (Docker), --nv (Apptainer)",
                    "there is an NVIDIA GPU, but its driver is not loaded");
  if (!has_cuda)
    brim_doctor_add(d, BRIM_FINDING_PROBLEM, "devices",
                    "build brim where CUDA 12.8 or later and cuDNN 9 are installed (see docs/guide/gpus.md)",
                    "there is an NVIDIA GPU, but this brim has no backend 'cuda'");
}

void brim_doctor_devices(brim_doctor *d)
{
  brim_backends all = {0};
  const char *chosen = d->config ? brim_config_choice_of(d->config, "backend")->plugin->id : "";
  brim_backends_open(d->cli->registry, d->config, &d->arena, &all);
  for (size_t i = 0; i < all.count; i++) {
    const brim_backend_seen *b = &all.backend[i];
    if (b->failure) {
      const char *rest = strchr(b->failure, '\n');
      brim_doctor_add(d, strcmp(b->id, chosen) == 0 ? BRIM_FINDING_PROBLEM : BRIM_FINDING_WARNING, "devices",
                      rest ? rest + 1 : "choose another backend, or repair this one (see docs/guide/gpus.md)",
                      "backend '%s' cannot be used: %.*s", b->id, (int)strcspn(b->failure, "\n"), b->failure);
      continue;
    }
    if (b->devices == 0)
      brim_doctor_add(d, BRIM_FINDING_WARNING, "devices", "look at CUDA_VISIBLE_DEVICES and at `nvidia-smi`",
                      "backend '%s' sees no device", b->id);
    for (int k = 0; k < b->devices; k++) look_at_device(d, b, k);
  }
  look_at_gpus(d, &all);
  brim_backends_close(&all);
}

/* ---- the run ---- */

static brim_status try_plan(const brim_config *config, brim_drive **drive, brim_plan **plan)
{
  const brim_setup_options options = {.no_timing = true};
  BRIM_TRY(brim_drive_open(config, &options, drive));
  BRIM_TRY(brim_placement_try(drive));
  BRIM_TRY(brim_planner_plan(&(*drive)->planner, &(*drive)->choice, false, plan));
  return brim_planner_check(&(*drive)->planner, &(*drive)->choice, *plan);
}

/* Checks the weights, which a plan does not read. */
static void look_at_weights(brim_doctor *d)
{
  const char *path = d->config->settings.model.weights;
  if (path[0] && access(path, R_OK) != 0)
    brim_doctor_add(d, BRIM_FINDING_PROBLEM, "run", "set model.weights to a file, a folder or a run with weights",
                    "the weights '%s' cannot be read: %s", path, strerror(errno));
}

/* Opens dataset and model and plans, as `brim plan` does. */
void brim_doctor_run(brim_doctor *d)
{
  brim_drive *drive = NULL;
  brim_plan *plan = NULL;
  char bytes[32];
  if (!d->config) return;
  look_at_weights(d);
  if (try_plan(d->config, &drive, &plan) == BRIM_OK)
    brim_doctor_add(d, BRIM_FINDING_OK, "run", NULL, "the data can be read, and the plan of %s in %s fits %s:%d",
                    brim_format_bytes(bytes, sizeof bytes, plan->peak_bytes),
                    brim_precision_names[brim_setup_precision(drive->setup)], brim_setup_backend_id(drive->setup),
                    drive->planner.device);
  else
    brim_doctor_add_error(d, BRIM_FINDING_PROBLEM, "run", "`brim plan` with the same arguments shows details");
  brim_plan_free(plan);
  brim_drive_close(drive);
}
