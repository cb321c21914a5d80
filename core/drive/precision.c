/* See precision.h. */
#include "drive/precision.h"

#include <stdio.h>
#include <string.h>

#include "setup/setup_parts.h"
#include "store/record.h"

#define IS_AUTO "precision_is_auto" /* key of plan.json */

/* ---- reports ---- */

static const brim_yaml *key_of(const brim_config *config)
{
  return brim_yaml_get_path(config->root, "precision");
}

/* Logs "precision=auto: bf16: the device multiplies 16-bit values on tensor cores; precision=fp32 keeps fp32". Reports
 * fp32 only if the user set precision=auto, or if the run used 16 bits on an earlier device. */
static void report_choice(const brim_drive *d, int32_t before)
{
  const brim_device_info *device = &d->planner.device_info;
  const int32_t precision = brim_setup_precision(d->setup);
  char reason[200];
  const bool is_news = before > BRIM_PRECISION_FP32 || !brim_setup_is_untouched(key_of(d->setup->config));
  if (precision == BRIM_PRECISION_FP32 && !is_news) return;
  if (precision != BRIM_PRECISION_FP32)
    snprintf(reason, sizeof reason, "the device multiplies 16-bit values %s; precision=fp32 keeps fp32",
             device->capability_major > 0 ? "on tensor cores" : "by its own instructions");
  else if (device->on_host)
    snprintf(reason, sizeof reason, "the default on the host's processors; precision=bf16 may take less memory");
  else
    snprintf(reason, sizeof reason,
             "the device has no instructions that multiply bf16, or the backend does not use them");
  brim_policies_report(d->dialogue.policies, "precision=auto", brim_precision_names[precision], reason);
}

/* Whether the precision of this configuration comes from another run, for which precision=auto chose it. Writes the
 * folder of that run to `out`. */
static bool find_run(const brim_config *config, char *out, size_t room)
{
  const char *file = config->request.file, *slash = file ? strrchr(file, '/') : NULL;
  const brim_yaml *key = key_of(config);
  char path[4200];
  if (!slash || !key->origin.file || strcmp(key->origin.file, file) != 0) return false;
  snprintf(out, room, "%.*s", (int)(slash - file), file);
  snprintf(path, sizeof path, "%s/plan.json", out);
  json_t *plan = brim_json_load(path, 0, NULL);
  const bool is_auto = json_is_true(json_object_get(plan, IS_AUTO));
  json_decref(plan);
  return is_auto;
}

static void report_kept(const brim_drive *d)
{
  char run[4096], reason[4400];
  const int32_t precision = brim_setup_precision(d->setup),
                here = brim_setup_auto_precision(d->setup, &d->planner.device_info);
  if (here == precision || !find_run(d->setup->config, run, sizeof run)) return;
  snprintf(reason, sizeof reason, "kept from '%s', whose device chose it; for this device precision=auto would be %s",
           run, brim_precision_names[here]);
  brim_policies_report(d->dialogue.policies, "precision", brim_precision_names[precision], reason);
}

/* ---- resolving ---- */

void brim_precision_settle(brim_drive *d, int32_t before)
{
  const bool is_auto = d->setup->settings->precision == BRIM_PRECISION_AUTO;
  if (before >= 0 && d->dialogue.has_begun)
    d->setup->precision = before;
  else
    brim_setup_see_device(d->setup, &d->planner.device_info);
  d->choice.precision = brim_setup_precision(d->setup);
  if (before == d->choice.precision) return; /* reported already */
  is_auto ? report_choice(d, before) : report_kept(d);
}

bool brim_precision_agree(brim_drive *d, const int32_t *all, int32_t ranks)
{
  brim_setup *setup = d->setup;
  bool differ = false;
  for (int32_t r = 1; r < ranks; r++) differ = differ || all[r] != all[0];
  if (!differ || setup->settings->precision != BRIM_PRECISION_AUTO) return true;
  if (setup->world.rank == 0)
    brim_policies_report(d->dialogue.policies, "precision=auto", "fp32",
                         "some of the ranks' devices do not multiply 16-bit values, and all ranks use one type");
  setup->again.word[setup->again.count++] = "precision=fp32";
  setup->again.by_data = true;
  return false;
}

/* ---- records ---- */

void brim_precision_describe(const brim_setup *s, json_t *plan)
{
  char run[4096];
  const bool is_auto = s->settings->precision == BRIM_PRECISION_AUTO || find_run(s->config, run, sizeof run);
  json_object_set_new(plan, "precision", json_string(brim_precision_names[brim_setup_precision(s)]));
  json_object_set_new(plan, IS_AUTO, json_boolean(is_auto));
}

void brim_precision_record(brim_config *config, const brim_setup *s)
{
  const brim_yaml_origin origin = {.file = "precision=auto, for the run's device"};
  if (config->settings.precision != BRIM_PRECISION_AUTO) return;
  const char *name = brim_precision_names[brim_setup_precision(s)];
  brim_yaml_set(&config->arena, config->root, "precision", brim_yaml_scalar(&config->arena, name, origin));
}
