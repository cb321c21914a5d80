/* Instances, data, device and plans of a run. */
#include "train/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static brim_status make_instance(const brim_config_choice *choice, void **self)
{
  *self = choice->params;
  if (!choice->plugin->create) return BRIM_OK;
  *self = NULL;
  const brim_status status = choice->plugin->create(choice->params, self);
  if (status != BRIM_OK) brim_fail_add(status, "while making %s '%s'", choice->group, choice->plugin->id);
  return status;
}

static void drop_instance(const brim_config *config, const char *group, void *self)
{
  const brim_config_choice *choice = brim_config_choice_of(config, group);
  if (self && choice->plugin->destroy) choice->plugin->destroy(self);
}

/* device=auto | <backend> | <backend>:<index> */
static brim_status find_device(brim_session *s)
{
  const char *device = s->settings->device, *id = brim_config_choice_of(s->config, "backend")->plugin->id;
  const int count = s->backend_ops->device_count(s->backend);
  if (strcmp(device, "auto") != 0) {
    const size_t n = strlen(id);
    char *end = NULL;
    const bool named = strncmp(device, id, n) == 0 && (device[n] == '\0' || device[n] == ':');
    const long index = named && device[n] == ':' ? strtol(device + n + 1, &end, 10) : 0;
    if (!named || (end && (end == device + n + 1 || *end)) || index < 0 || index >= count)
      return brim_fail(BRIM_ENODEVICE, "no device '%s': backend '%s' has %d (%s:0%s); device=auto takes the first",
                       device, id, count, id, count > 1 ? " ..." : "");
    s->device = (int)index;
  }
  return s->backend_ops->describe(s->backend, s->device, &s->device_info);
}

/* Where results should not depend on the micro-batch by default: on hosts in single precision. Double precision is for
 * judging, without it. */
static int64_t choose_grain(const brim_session *s)
{
  if (s->settings->training.grain >= 0) return s->settings->training.grain;
  if (!s->device_info.on_host || s->backend_ops->real != BRIM_DTYPE_F32) return 0;
  return s->data.train.sample.rank >= 2 ? 16 : 1;
}

static int64_t eval_batch_of(const brim_session *s, int64_t batch)
{
  const int64_t set = s->settings->training.eval_batch_size;
  return set ? set : batch;
}

static brim_status open_session(brim_session *s, bool read_data)
{
  const brim_config *c = s->config;
  const brim_training_settings *t = &s->settings->training;
  const brim_config_choice *dataset = brim_config_choice_of(c, "dataset");
  s->backend_ops = brim_config_choice_of(c, "backend")->plugin->ops;
  s->optimizer_ops = brim_config_choice_of(c, "optimizer")->plugin->ops;
  s->optimizer_params = brim_config_choice_of(c, "optimizer")->params;
  s->schedule_ops = brim_config_choice_of(c, "schedule")->plugin->ops;
  s->schedule_params = brim_config_choice_of(c, "schedule")->params;
  BRIM_TRY(make_instance(brim_config_choice_of(c, "backend"), &s->backend));
  BRIM_TRY(find_device(s));
  BRIM_TRY(make_instance(dataset, &s->dataset));
  BRIM_TRY(make_instance(brim_config_choice_of(c, "model"), &s->model));
  brim_status (*const open_data)(brim_data *, const brim_plugin *, void *, const brim_settings *) =
      read_data ? brim_data_open_start : brim_data_describe;
  BRIM_TRY(open_data(&s->data, dataset->plugin, s->dataset, s->settings));
  s->opening = read_data;
  s->grain = choose_grain(s);
  s->eval_batch = eval_batch_of(s, t->batch_size);
  s->order = brim_order_make(s->data.count[BRIM_PART_TRAIN], t->batch_size, t->gradient_accumulation_steps, t->epochs,
                             t->steps);
  return BRIM_OK;
}

brim_status brim_session_open(const brim_config *config, bool read_data, brim_session **out)
{
  brim_session *s = brim_xcalloc(1, sizeof *s);
  s->config = config;
  s->settings = &config->settings;
  const brim_status status = open_session(s, read_data);
  if (status != BRIM_OK) {
    brim_session_close(s);
    return status;
  }
  *out = s;
  return BRIM_OK;
}

brim_status brim_session_finish_data(brim_session *s)
{
  if (!s->opening) return BRIM_OK;
  s->opening = false;
  return brim_data_open_finish(&s->data);
}

void brim_session_close(brim_session *s)
{
  if (!s) return;
  if (s->opening) (void)brim_data_open_finish(&s->data); /* the session failed for another reason */
  drop_instance(s->config, "model", s->model);
  drop_instance(s->config, "dataset", s->dataset);
  drop_instance(s->config, "backend", s->backend);
  free(s);
}

/* Adds the batch shapes in which `count` samples come, if they are not there yet. */
static void add_shapes(brim_plan_request *r, enum brim_program_kind kind, int64_t count, int64_t batch)
{
  const int64_t sizes[] = {count >= batch ? batch : 0, count % batch};
  for (int i = 0; i < 2; i++) {
    bool known = sizes[i] == 0;
    for (size_t k = 0; k < r->shape_count; k++)
      known = known || (r->shape[k].kind == kind && r->shape[k].batch == sizes[i]);
    if (!known) r->shape[r->shape_count++] = (brim_batch_shape){kind, sizes[i]};
  }
}

brim_status brim_session_plan(const brim_session *s, int64_t batch, brim_plan **out)
{
  const int64_t eval_batch = eval_batch_of(s, batch);
  const brim_loss_ops *loss = brim_config_choice_of(s->config, "loss")->plugin->ops;
  brim_plan_request r = {.graph = {.model = brim_config_choice_of(s->config, "model")->plugin->ops,
                                   .model_self = s->model,
                                   .loss_op = loss->op,
                                   .sample = s->data.train.sample,
                                   .classes = s->data.train.classes,
                                   .real = s->backend_ops->real},
                         .backend = s->backend_ops,
                         .backend_self = s->backend,
                         .grain = s->grain,
                         .optimizer_op = s->optimizer_ops->op,
                         .optimizer_states = s->optimizer_ops->state_count};
  add_shapes(&r, BRIM_PROGRAM_TRAIN, s->data.count[BRIM_PART_TRAIN], batch);
  add_shapes(&r, BRIM_PROGRAM_EVALUATE, s->data.count[BRIM_PART_VALIDATION], eval_batch);
  add_shapes(&r, BRIM_PROGRAM_EVALUATE, s->data.count[BRIM_PART_TEST], eval_batch);
  return brim_plan_create(&r, out);
}

/* The largest micro-batch below the chosen one that fits and keeps the effective batch: it divides that. Multiples of
 * the grain come first, since they keep the bits too. 0: none. */
static int64_t find_fitting(const brim_session *s, uint64_t room, uint64_t *peak_bytes)
{
  const brim_training_settings *t = &s->settings->training;
  const int64_t effective = t->batch_size * t->gradient_accumulation_steps, grain = s->grain > 0 ? s->grain : 1;
  for (int pass = 0; pass < 2; pass++)
    for (int64_t batch = t->batch_size - 1; batch >= 1; batch--) {
      if (effective % batch != 0 || (batch % grain == 0) != (pass == 0)) continue;
      brim_plan *plan = NULL;
      if (brim_session_plan(s, batch, &plan) != BRIM_OK) return 0;
      *peak_bytes = plan->peak_bytes;
      brim_plan_free(plan);
      if (*peak_bytes <= room) return batch;
    }
  return 0;
}

brim_status brim_session_check_budget(const brim_session *s, const brim_plan *plan)
{
  const brim_training_settings *t = &s->settings->training;
  const uint64_t limit = s->settings->memory.limit_mb << 20, free_bytes = s->device_info.free_bytes;
  const bool over_limit = limit && plan->peak_bytes > limit;
  if (!over_limit && plan->peak_bytes <= free_bytes) return BRIM_OK;
  char bytes[32];
  brim_text text = {0};
  brim_text_printf(&text, "the run needs %s", brim_format_bytes(bytes, sizeof bytes, plan->peak_bytes));
  brim_text_printf(&text,
                   ", but %s %s\nat its peak, in %s: ", over_limit ? "memory.limit_mb allows" : "the device has free",
                   brim_format_bytes(bytes, sizeof bytes, over_limit ? limit : free_bytes), plan->peak_op);
  for (uint32_t r = 0; r < BRIM_ROLE_COUNT; r++)
    brim_text_printf(&text, "%s%s %s", r ? ", " : "", brim_role_name(r),
                     brim_format_bytes(bytes, sizeof bytes, plan->class_bytes[r]));
  uint64_t peak = 0;
  const int64_t batch = find_fitting(s, over_limit && limit < free_bytes ? limit : free_bytes, &peak);
  if (batch > 0)
    brim_text_printf(&text, "\ntraining.batch_size=%lld training.gradient_accumulation_steps=%lld would fit, with %s",
                     (long long)batch, (long long)(t->batch_size * t->gradient_accumulation_steps / batch),
                     brim_format_bytes(bytes, sizeof bytes, peak));
  else
    brim_text_add(&text, "\nno smaller training.batch_size fits");
  const brim_status status = brim_fail(over_limit ? BRIM_EBUDGET : BRIM_ENOMEM_DEVICE, "%s", brim_text_str(&text));
  brim_text_release(&text);
  return status;
}
