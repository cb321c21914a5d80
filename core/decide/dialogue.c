#include "decide/dialogue.h"

#include <stdio.h>

#include "memory/choose.h"

brim_status brim_dialogue_open(brim_dialogue *d, brim_planner *planner, const brim_env *env, brim_decisions before)
{
  *d = (brim_dialogue){.planner = planner, .env = env};
  return brim_policies_open(planner->setup->config, before, &d->policies);
}

void brim_dialogue_close(brim_dialogue *d)
{
  brim_policies_close(d->policies);
  brim_arena_release(&d->arena);
}

brim_device_wish brim_dialogue_wish(const brim_dialogue *d)
{
  return (brim_device_wish){d->wanted, d->planner->setup->settings->auto_device, d->demands.min_device_bytes};
}

void brim_dialogue_forget_failures(brim_dialogue *d)
{
  d->retries = d->asked = 0;
  d->tried = 0;
}

void brim_dialogue_view(const brim_dialogue *d, int device, const brim_device_info *info, brim_device_view *out)
{
  *out = (brim_device_view){.total_bytes = info->total_bytes,
                            .free_bytes = info->free_bytes,
                            .is_shared = brim_device_is_shared(info),
                            .on_host = info->on_host,
                            .tried = device < BRIM_CLAIM_DEVICES_MAX ? (int32_t)(d->tried >> device & 1) : 0};
  snprintf(out->name, sizeof out->name, "%s:%d", brim_setup_backend_id(d->planner->setup), device);
}

/* ---- information shown to policies ---- */

void brim_dialogue_show_device(const brim_dialogue *d, const char *question, const brim_device_view *device,
                               uint64_t own_bytes, uint64_t waiting_bytes)
{
  const brim_sight sight = {.kind = BRIM_SIGHT_DEVICE,
                            .at = brim_policy_clock(),
                            .question = question,
                            .device = device->name,
                            .is_shared = device->is_shared,
                            .on_host = device->on_host,
                            .waiting = device->waiting,
                            .waiting_bytes = waiting_bytes,
                            .total_bytes = device->total_bytes,
                            .free_bytes = device->free_bytes,
                            .own_bytes = own_bytes};
  brim_policies_show(d->policies, &sight);
}

void brim_dialogue_show_host(const brim_dialogue *d, const char *question, const brim_memory_view *memory)
{
  const brim_sight sight = {.kind = BRIM_SIGHT_HOST,
                            .at = brim_policy_clock(),
                            .question = question,
                            .device = "",
                            .total_bytes = memory->host_total_bytes,
                            .free_bytes = memory->host_available_bytes,
                            .own_bytes = memory->process_bytes};
  brim_policies_show(d->policies, &sight);
}

void brim_dialogue_show_plan(const brim_dialogue *d, const char *question, int64_t micro_batch, uint64_t peak_bytes)
{
  const brim_plan_figures figures = {.size = sizeof figures, .peak_bytes = peak_bytes};
  brim_dialogue_show_figures(d, question, micro_batch, &figures);
}

void brim_dialogue_show_figures(const brim_dialogue *d, const char *question, int64_t micro_batch,
                                const brim_plan_figures *figures)
{
  const brim_sight sight = {.kind = BRIM_SIGHT_PLAN,
                            .at = brim_policy_clock(),
                            .question = question,
                            .device = "",
                            .micro_batch = micro_batch,
                            .peak_bytes = figures->peak_bytes,
                            .step_seconds = figures->step_seconds,
                            .basis = figures->basis};
  brim_policies_show(d->policies, &sight);
}

void brim_dialogue_show_run(const brim_dialogue *d)
{
  const brim_setup *setup = d->planner->setup;
  const brim_sight sight = {.kind = BRIM_SIGHT_RUN,
                            .at = brim_policy_clock(),
                            .question = "plan",
                            .device = "",
                            .grain = setup->grain,
                            .norm_group = setup->norm_group,
                            .samples = setup->data.count[BRIM_PART_TRAIN],
                            .steps = d->demands.steps};
  brim_policies_show(d->policies, &sight);
}

void brim_dialogue_show_wait(const brim_dialogue *d, const char *device, uint64_t need_bytes, const char *detail,
                             double seconds)
{
  const brim_sight sight = {.kind = BRIM_SIGHT_WAIT,
                            .at = brim_policy_clock(),
                            .device = device,
                            .peak_bytes = need_bytes,
                            .detail = detail,
                            .queue_seconds = seconds};
  brim_policies_show(d->policies, &sight);
}
