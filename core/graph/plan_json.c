/* Plans in JSON. */
#include "graph/plan_json.h"

#include <string.h>

static json_t *integer(uint64_t value)
{
  return json_integer((json_int_t)value);
}

static json_t *describe_program(const brim_program *p)
{
  static const char *const kinds[] = {[BRIM_PROGRAM_TRAIN] = "train",
                                      [BRIM_PROGRAM_EVALUATE] = "evaluate",
                                      [BRIM_PROGRAM_GENERATE] = "generate",
                                      [BRIM_PROGRAM_CHECK] = "check",
                                      [BRIM_PROGRAM_UPDATE] = "update",
                                      [BRIM_PROGRAM_ADOPT] = "adopt",
                                      [BRIM_PROGRAM_DISTANCE] = "distance",
                                      [BRIM_PROGRAM_FOLD] = "fold",
                                      [BRIM_PROGRAM_FOLD_CONTROL] = "fold_control"};
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

/* Describes the recompute of `train`, the program that runs in most of a run's steps; NULL in plans without
 * training. */
static json_t *describe_recompute(enum brim_recompute_kind kind, const brim_program *train)
{
  json_t *o = json_object();
  json_object_set_new(o, "kind", json_string(brim_recompute_name(kind)));
  json_object_set_new(o, "operations", integer(train ? train->graph->recomputed_count : 0));
  json_object_set_new(o, "flops", integer(train ? train->graph->recomputed_flops : 0));
  json_object_set_new(o, "share", json_real(train ? brim_recompute_share(train) : 0));
  return o;
}

static void count(json_t *counts, const char *key)
{
  json_object_set_new(counts, key, json_integer(json_integer_value(json_object_get(counts, key)) + 1));
}

/* Returns the row of a node's operation and reason; makes it if it is missing. */
static json_t *row_of(json_t *rows, const brim_node *node, const brim_kernel_need *need)
{
  const char *reason = need->refused;
  size_t i;
  json_t *row;
  json_array_foreach(rows, i, row)
  {
    const bool is_op = strcmp(json_string_value(json_object_get(row, "operation")), node->op) == 0;
    if (is_op && strcmp(json_string_value(json_object_get(row, "reason")), reason) == 0) return row;
  }
  row = json_pack("{s:s,s:s}", "operation", node->op, "reason", reason);
  if (need->slower > 0) json_object_set_new(row, "slower", json_real(need->slower));
  json_array_append_new(rows, row);
  return row;
}

static void add_kernels(const brim_plan *plan, json_t *counts, json_t *rows)
{
  for (size_t i = 0; i < plan->program_count; i++) {
    const brim_program *p = &plan->program[i];
    for (size_t k = 0; k < p->graph->node_count; k++) {
      count(counts, p->need[k].library ? p->need[k].library : "own");
      if (p->need[k].refused) count(row_of(rows, p->graph->node[k], &p->need[k]), "operations");
    }
  }
}

json_t *brim_plan_kernels_json(const brim_plan *plan)
{
  json_t *o = json_object(), *rows = json_array();
  add_kernels(plan, o, rows);
  if (plan->lane_count > 0) add_kernels(plan->lane[0], o, rows); /* all lanes are alike */
  json_object_set_new(o, "refused", rows);
  return o;
}

/* Adds "24 x 'attention' with the backend's own, slower kernel (about 12 times the time): cuDNN does not offer it". */
static void print_refused(const json_t *row, brim_text *out)
{
  const double slower = json_number_value(json_object_get(row, "slower"));
  brim_text_printf(out, "%s%lld x '%s' with the backend's own, slower kernel", out->length ? "\n" : "",
                   (long long)json_integer_value(json_object_get(row, "operations")),
                   json_string_value(json_object_get(row, "operation")));
  if (slower > 0) brim_text_printf(out, " (about %.3g times the time)", slower);
  brim_text_printf(out, ": %s", json_string_value(json_object_get(row, "reason")));
}

void brim_plan_print_refused(const brim_plan *plan, brim_text *out)
{
  size_t i;
  json_t *kernels = brim_plan_kernels_json(plan), *row;
  json_array_foreach(json_object_get(kernels, "refused"), i, row) print_refused(row, out);
  json_decref(kernels);
}

json_t *brim_plan_json(const brim_plan *plan, int64_t batch_size)
{
  json_t *o = json_object(), *classes = json_object(), *programs = json_array();
  for (uint32_t r = 0; r < BRIM_ROLE_COUNT; r++)
    if (brim_plan_has_role(plan, r)) json_object_set_new(classes, brim_role_name(r), integer(plan->class_bytes[r]));
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
  json_object_set_new(o, "kernels", brim_plan_kernels_json(plan));
  return o;
}
