/* Plans in JSON. */
#include "graph/plan_json.h"

static json_t *integer(uint64_t value)
{
  return json_integer((json_int_t)value);
}

static json_t *describe_program(const brim_program *p)
{
  static const char *const kinds[] = {"train", "evaluate", "check", "update"};
  json_t *o = json_object();
  json_object_set_new(o, "kind", json_string(kinds[p->kind]));
  json_object_set_new(o, "batch_size", json_integer(p->info.batch));
  json_object_set_new(o, "operations", integer(p->graph->node_count));
  json_object_set_new(o, "transient_bytes", integer(p->transient_bytes));
  json_object_set_new(o, "live_bytes", integer(p->live_bytes));
  json_object_set_new(o, "flops", integer(p->cost.flops));
  json_object_set_new(o, "moved_bytes", integer(p->cost.bytes));
  return o;
}

/* Of the program that most of a run's steps are made of; `train`: NULL in plans without training. */
static json_t *describe_recompute(enum brim_recompute_kind kind, const brim_program *train)
{
  json_t *o = json_object();
  json_object_set_new(o, "kind", json_string(brim_recompute_name(kind)));
  json_object_set_new(o, "operations", integer(train ? train->graph->recomputed_count : 0));
  json_object_set_new(o, "flops", integer(train ? train->graph->recomputed_flops : 0));
  json_object_set_new(o, "share", json_real(train ? brim_recompute_share(train) : 0));
  return o;
}

json_t *brim_plan_json(const brim_plan *plan, int64_t batch_size)
{
  json_t *o = json_object(), *classes = json_object(), *programs = json_array();
  for (uint32_t r = 0; r < BRIM_ROLE_COUNT; r++)
    json_object_set_new(classes, brim_role_name(r), integer(plan->class_bytes[r]));
  for (size_t i = 0; i < plan->program_count; i++) json_array_append_new(programs, describe_program(&plan->program[i]));
  json_object_set_new(o, "batch_size", json_integer(batch_size));
  json_object_set_new(o, "parameters", integer(brim_plan_parameters(plan)));
  json_object_set_new(o, "trained_parameters", integer(brim_plan_trained(plan)));
  json_object_set_new(o, "frozen_bytes", integer(plan->parameter_offset - plan->frozen_offset));
  json_object_set_new(o, "peak_bytes", integer(plan->peak_bytes));
  json_object_set_new(o, "lower_bound_bytes", integer(plan->lower_bound_bytes));
  json_object_set_new(o, "persistent_bytes", integer(plan->persistent_bytes));
  json_object_set_new(o, "host_state_bytes", integer(plan->host_bytes));
  json_object_set_new(o, "classes", classes);
  json_object_set_new(o, "peak_operation", json_string(plan->peak_op ? plan->peak_op : ""));
  json_object_set_new(
      o, "recompute",
      describe_recompute(plan->request.recompute, brim_plan_program(plan, BRIM_PROGRAM_TRAIN, batch_size)));
  json_object_set_new(o, "updates_in_backward", json_boolean(plan->request.update.in_backward));
  json_object_set_new(o, "programs", programs);
  return o;
}
