/* Replaces the plans and plugins of a job's drive by the scenario's, or by plans of a real model. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "graph/recompute.h"
#include "planner/figures.h"
#include "simulate/job.h"

/* ---- plans by the scenario's model ---- */

static bool is_half(const brim_choice *v)
{
  return v->precision == BRIM_PRECISION_BF16 || v->precision == BRIM_PRECISION_FP16;
}

/* Interpolates between two known peaks, or extrapolates from the nearest two. */
static void interpolate(const brim_scene_model *m, int64_t batch, double *fixed, double *all)
{
  size_t i = m->peak_count > 1 ? 1 : 0;
  while (i + 1 < m->peak_count && m->peak[i].micro_batch < batch) i++;
  const brim_scene_peak *b = &m->peak[i], *a = i > 0 ? b - 1 : b;
  const double slope = i > 0 ? (double)(b->bytes - a->bytes) / (double)(b->micro_batch - a->micro_batch) : 0;
  const double start = m->peak_count > 1 ? (double)(m->peak[1].bytes - m->peak[0].bytes) /
                                               (double)(m->peak[1].micro_batch - m->peak[0].micro_batch)
                                         : 0;
  *fixed = fmax(0, (double)m->peak[0].bytes - start * (double)m->peak[0].micro_batch);
  *all = fmax(*fixed, (double)b->bytes + slope * (double)(batch - b->micro_batch));
  for (size_t k = 0; k < m->peak_count; k++)
    if (m->peak[k].micro_batch == batch) *all = (double)m->peak[k].bytes;
}

/* Returns the peak with a level of recompute; 0: none. */
static uint64_t level_peak(const brim_scene_model *m, const brim_choice *v, size_t level)
{
  double fixed = (double)m->fixed, all = fixed + (double)m->sample * (double)v->micro_batch;
  if (m->peak_count > 0) interpolate(m, v->micro_batch, &fixed, &all);
  double activations = all - fixed;
  if (is_half(v) && m->half_memory > 0) activations *= m->half_memory;
  if (level > 0) activations *= m->recompute[level - 1].memory;
  const double bytes = fixed + activations;
  return bytes < 0x1p62 ? (uint64_t)bytes : UINT64_C(1) << 62;
}

static size_t find_level(const brim_scene_model *m, const brim_choice *v)
{
  size_t level = 0;
  if (v->recompute == BRIM_RECOMPUTE_BLOCKS) return m->recompute_count > 0;
  if (v->recompute == BRIM_RECOMPUTE_FULL) return m->recompute_count;
  if (v->recompute == BRIM_RECOMPUTE_AUTO)
    while (level < m->recompute_count && level_peak(m, v, level) > v->within_bytes) level++;
  return level;
}

/* Finds the figures of a choice; times are for a device of speed 1. */
static void find_figures(const brim_sim_job *job, const brim_choice *v, brim_figures *out)
{
  const brim_scene_model *m = job->plans;
  const brim_scene_peak *known = NULL;
  for (size_t i = 0; i < m->peak_count; i++)
    if (m->peak[i].micro_batch == v->micro_batch && m->peak[i].time > 0) known = &m->peak[i];
  const size_t level = find_level(m, v);
  const uint64_t peak = level_peak(m, v, level);
  const double samples = (double)brim_setup_share(job->drive->setup),
               micros = (double)brim_setup_micros(job->drive->setup, v->micro_batch);
  const double half = is_half(v) ? m->half_time : 1, again = level > 0 ? m->recompute[level - 1].work : 0;
  const double work = known ? known->time * half : samples * m->sample_time * half + micros * m->micro_batch_time;
  *out = (brim_figures){.peak_bytes = peak,
                        .lower_bound_bytes = peak,
                        .recompute_share = again,
                        .step_seconds = (work + m->step_time) * (1 + again),
                        .basis = (enum brim_basis)(BRIM_BASIS_TIMED + (known ? known->basis : 0))};
}

/* ---- plans of a real model ---- */

#define REMEMBERED 64 /* limit for remembered plans; a simulation reuses a few */

typedef struct remembered {
  brim_choice choice; /* including its budget */
  brim_figures figures;
} remembered;

struct brim_real_plans {
  brim_drive *drive;
  remembered plan[REMEMBERED];
  size_t count, next; /* next: the entry to replace */
};

brim_status brim_real_plans_open(const brim_config *config, brim_real_plans **out)
{
  const brim_setup_options options = {.no_timing = true};
  brim_real_plans *p = brim_xcalloc(1, sizeof *p);
  const brim_status status = brim_drive_open(config, &options, &p->drive);
  if (status != BRIM_OK) {
    free(p);
    return status;
  }
  *out = p;
  return BRIM_OK;
}

void brim_real_plans_close(brim_real_plans *p)
{
  if (!p) return;
  brim_drive_close(p->drive);
  free(p);
}

/* Finds the figures of a choice with its budget. */
static brim_status find_real_figures(brim_real_plans *p, const brim_choice *choice, brim_figures *out)
{
  for (size_t i = 0; i < p->count; i++) {
    if (!brim_choice_equal(&p->plan[i].choice, choice)) continue;
    *out = p->plan[i].figures;
    return BRIM_OK;
  }
  BRIM_TRY(brim_planner_figures(&p->drive->planner, choice, out));
  if (p->count < REMEMBERED) p->count++;
  p->plan[p->next] = (remembered){*choice, *out};
  p->next = (p->next + 1) % REMEMBERED;
  return BRIM_OK;
}

/* ---- plans of the drive ---- */

static brim_status answer_figures(void *context, const brim_choice *v, brim_figures *out)
{
  const brim_sim_job *job = context;
  const brim_scenario *s = job->all->scenario;
  if (job->all->real)
    BRIM_TRY(find_real_figures(job->all->real, v, out));
  else
    find_figures(job, v, out);
  out->step_seconds /= job->on_host ? s->host.speed : s->device[job->drive->planner.device].speed;
  return BRIM_OK;
}

brim_status brim_sim_step_seconds(brim_sim_job *job, double *seconds, double *again)
{
  brim_figures f;
  BRIM_TRY(brim_planner_figures(&job->drive->planner, &job->drive->choice, &f));
  *seconds = f.step_seconds * brim_scene_slowness(job->all->scene, job->place); /* no prediction includes this factor */
  *again = *seconds * f.recompute_share / (1 + f.recompute_share);
  return BRIM_OK;
}

/* ---- plugins ---- */

static int device_count(void *self)
{
  const brim_sim_job *job = self;
  return job->on_host ? 1 : (int)job->all->scenario->device_count;
}

static brim_status describe(void *self, int device, brim_device_info *out)
{
  const brim_sim_job *job = self;
  brim_scene_describe(job->all->scene, job->on_host ? BRIM_SCENE_HOST : device, out);
  if (job->all->real && !out->on_host) out->multiplies = job->all->real->drive->planner.device_info.multiplies;
  return BRIM_OK;
}

/* Replaces the configuration's plugin by the scenario's, in the same group. */
static void put_in_place(brim_config *config, const char *group, const brim_plugin *plugin)
{
  for (size_t i = 0; i < config->choice_count; i++)
    if (strcmp(config->choice[i].group, group) == 0) config->choice[i].plugin = plugin;
}

/* Handles the word "model=mlp", which concerns the scenario. */
static brim_status take_model(brim_sim_job *job, const char *id)
{
  const brim_scenario *s = job->all->scenario;
  const brim_scene_model *all[] = {&s->model, &s->small_model};
  if (job->all->real)
    return brim_fail(BRIM_ECONFIG,
                     "model=%s: the plans are for the model set on the command line, which policies cannot change here",
                     id);
  for (size_t i = 0; i < 2; i++) {
    if (!all[i]->id || strcmp(all[i]->id, id) != 0) continue;
    job->plans = all[i];
    return BRIM_OK;
  }
  return brim_fail(BRIM_ECONFIG, "model=%s: the scenario has %s%s%s", id, s->model.id, s->small_model.id ? " and " : "",
                   s->small_model.id ? s->small_model.id : "");
}

/* ---- the setup ---- */

/* Opens the parts that policies and plans need. The job replaces the plugin instances, and no part must be closed. */
static brim_status open_setup(void *context, brim_setup *s)
{
  brim_sim_job *job = context;
  const brim_scenario *scene = job->all->scenario;
  brim_config *config = s->own_config ? s->own_config : job->config;
  const uint32_t half = BRIM_STORES(BRIM_DTYPE_BF16) | BRIM_STORES(BRIM_DTYPE_F16);
  job->backend_ops = (brim_backend_ops){.size = sizeof job->backend_ops,
                                        .real = BRIM_DTYPE_F32,
                                        .stores = job->plans->half_memory > 0 || job->all->real ? half : 0,
                                        .device_count = device_count,
                                        .describe = describe};
  job->backend = (brim_plugin){.size = sizeof job->backend,
                               .kind = BRIM_BACKEND,
                               .id = job->on_host ? "cpu" : scene->backend,
                               .help = "",
                               .ops = &job->backend_ops};
  job->model = (brim_plugin){.size = sizeof job->model, .kind = BRIM_MODEL, .id = job->plans->id, .help = ""};
  put_in_place(config, "backend", &job->backend);
  if (!job->all->real) put_in_place(config, "model", &job->model);
  s->backend = job;
  s->backend_ops = &job->backend_ops;
  s->data.count[BRIM_PART_TRAIN] = scene->samples;
  s->grain = s->settings->training.grain >= 0 ? s->settings->training.grain : scene->grain;
  s->norm_group = scene->norm_group;
  if (job->all->real) {
    const brim_setup *real = job->all->real->drive->setup;
    s->data.count[BRIM_PART_TRAIN] = real->data.count[BRIM_PART_TRAIN];
    s->grain = real->grain;
    s->norm_group = real->norm_group;
  }
  if (brim_setup_precisions(s) >> brim_setup_precision(s) & 1) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG, "precision=%s: the scenario's model has only fp32\nset its model.half_memory",
                   brim_precision_names[brim_setup_precision(s)]);
}

/* Handles the words for the scenario; the configuration handles the other words. */
static brim_status hear(void *context, brim_again *again)
{
  brim_sim_job *job = context;
  const brim_again all = *again;
  again->count = 0;
  for (size_t i = 0; i < all.count; i++) {
    const char *word = all.word[i];
    if (strcmp(word, "backend=cpu") == 0) job->on_host = true;
    if (brim_starts_with(word, "model="))
      BRIM_TRY(take_model(job, word + strlen("model=")));
    else
      again->word[again->count++] = word;
  }
  return BRIM_OK;
}

static void on_decision(void *context, const brim_decision *d)
{
  brim_sim_job *job = context;
  if (d->sight) return;
  brim_sim_report(job, d->policy, d->choice, d->reason);
  job->costs.decided++;
}

brim_status brim_sim_open(brim_sim_job *job)
{
  job->maker = (brim_setup_maker){job, open_setup, hear};
  job->model_of_plans = (brim_plan_model){job, answer_figures};
  job->env = brim_sim_env(job);
  job->drive_place = (brim_drive_place){.env = &job->env,
                                        .model = &job->model_of_plans,
                                        .listen = on_decision,
                                        .context = job,
                                        .answers_at_once = !job->all->real}; /* plans of a real model take time */
  const brim_setup_options options = {.maker = &job->maker};
  return brim_drive_open_in(&job->drive_place, job->config, &options, &job->drive);
}
