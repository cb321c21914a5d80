#include "session/sights.h"

void brim_session_show_device(const brim_session *s, const char *question, const brim_device_view *d,
                              uint64_t own_bytes, uint64_t waiting_bytes)
{
  const brim_sight sight = {.kind = BRIM_SIGHT_DEVICE,
                            .at = brim_policy_clock(),
                            .question = question,
                            .device = d->name,
                            .is_shared = d->is_shared,
                            .on_host = d->on_host,
                            .waiting = d->waiting,
                            .waiting_bytes = waiting_bytes,
                            .total_bytes = d->total_bytes,
                            .free_bytes = d->free_bytes,
                            .own_bytes = own_bytes};
  brim_policies_show(s->policies, &sight);
}

void brim_session_show_host(const brim_session *s, const char *question, const brim_memory_view *m)
{
  const brim_sight sight = {.kind = BRIM_SIGHT_HOST,
                            .at = brim_policy_clock(),
                            .question = question,
                            .device = "",
                            .total_bytes = m->host_total_bytes,
                            .free_bytes = m->host_available_bytes,
                            .own_bytes = m->process_bytes};
  brim_policies_show(s->policies, &sight);
}

void brim_session_show_plan(const brim_session *s, const char *question, int64_t micro_batch, uint64_t peak_bytes)
{
  const brim_plan_figures figures = {.size = sizeof figures, .peak_bytes = peak_bytes};
  brim_session_show_figures(s, question, micro_batch, &figures);
}

void brim_session_show_figures(const brim_session *s, const char *question, int64_t micro_batch,
                               const brim_plan_figures *f)
{
  const brim_sight sight = {.kind = BRIM_SIGHT_PLAN,
                            .at = brim_policy_clock(),
                            .question = question,
                            .device = "",
                            .micro_batch = micro_batch,
                            .peak_bytes = f->peak_bytes,
                            .step_seconds = f->step_seconds,
                            .basis = f->basis};
  brim_policies_show(s->policies, &sight);
}

void brim_session_show_run(const brim_session *s)
{
  const brim_sight sight = {.kind = BRIM_SIGHT_RUN,
                            .at = brim_policy_clock(),
                            .question = "plan",
                            .device = "",
                            .grain = s->setup->grain,
                            .norm_group = s->setup->norm_group,
                            .samples = s->setup->data.count[BRIM_PART_TRAIN],
                            .steps = s->order.steps};
  brim_policies_show(s->policies, &sight);
}

void brim_session_show_wait(const brim_session *s, const char *device, uint64_t need_bytes, const char *detail,
                            double seconds)
{
  const brim_sight sight = {.kind = BRIM_SIGHT_WAIT,
                            .at = brim_policy_clock(),
                            .device = device,
                            .peak_bytes = need_bytes,
                            .detail = detail,
                            .queue_seconds = seconds};
  brim_policies_show(s->policies, &sight);
}
