/* brim ops: lists every operation with its tensors, whether gradients flow through it, and the backends that have
 * it. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/table.h"
#include "brim/backend.h"
#include "cli/cli.h"
#include "graph/op.h"

#define BACKENDS_MAX 16

typedef struct listing {
  const brim_plugin *backend[BACKENDS_MAX];
  size_t backend_count;
  const brim_op **op; /* sorted by name */
  size_t op_count;
} listing;

static bool has(const brim_plugin *backend, const char *op)
{
  const brim_backend_ops *ops = backend->ops;
  for (const brim_kernel *const *k = ops->kernels; k < ops->kernels_end; k++)
    if (strcmp((*k)->op, op) == 0) return true;
  return false;
}

static int by_name(const void *a, const void *b)
{
  const brim_op *const *x = a, *const *y = b;
  return strcmp((*x)->name, (*y)->name);
}

static void print_table(const listing *l, const char *only, brim_arena *arena)
{
  brim_table table = {.arena = arena, .columns = 3 + l->backend_count};
  brim_text out = {0};
  brim_table_add(&table, "operation");
  brim_table_add(&table, "gradient");
  for (size_t b = 0; b < l->backend_count; b++) brim_table_add(&table, l->backend[b]->id);
  brim_table_add(&table, "tensors");
  for (size_t i = 0; i < l->op_count; i++) {
    if (only && strcmp(l->op[i]->name, only) != 0) continue;
    brim_table_add(&table, l->op[i]->name);
    brim_table_add(&table, l->op[i]->gradient ? "yes" : "-");
    for (size_t b = 0; b < l->backend_count; b++)
      brim_table_add(&table, has(l->backend[b], l->op[i]->name) ? "yes" : "-");
    brim_table_add(&table, l->op[i]->signature);
  }
  brim_table_print(&table, &out);
  fputs(brim_text_str(&out), stdout);
  brim_text_release(&out);
}

static json_t *json_of(const listing *l, const brim_op *op)
{
  json_t *backends = json_array();
  for (size_t b = 0; b < l->backend_count; b++)
    if (has(l->backend[b], op->name)) json_array_append_new(backends, json_string(l->backend[b]->id));
  return json_pack("{s:s, s:s, s:b, s:o}", "name", op->name, "tensors", op->signature, "gradient", op->gradient != NULL,
                   "backends", backends);
}

/* Functions that models call, but that are not operations themselves. */
static const struct {
  const char *name, *made_of;
} composed[] = {{"conv1d", "conv2d"},
                {"conv_transpose1d", "conv_transpose2d"},
                {"max_pool1d", "max_pool2d"},
                {"upsample1d", "upsample2d"},
                {"global_avg_pool", "adaptive_avg_pool2d"},
                {"flatten", "reshape"},
                {"transpose", "permute"},
                {"split", "slice"},
                {"linear_no_bias", "linear"}};

static brim_status unknown_operation(const char *name)
{
  const char *best = NULL;
  int distance = INT_MAX;
  brim_fail(BRIM_ECONFIG, "no operation '%s'", name);
  for (size_t i = 0; i < sizeof composed / sizeof composed[0]; i++)
    if (strcmp(name, composed[i].name) == 0)
      return brim_fail_add(BRIM_ECONFIG, "brim_%s of brim/model.h is made of '%s'", name, composed[i].made_of);
  for (size_t i = 0; i < brim_op_count(); i++) brim_suggest(name, brim_op_at(i)->name, &distance, &best);
  if (best) brim_fail_add(BRIM_ECONFIG, "did you mean '%s'?", best);
  return brim_fail_add(BRIM_ECONFIG, "brim ops lists them all");
}

static brim_status run(const brim_registry *registry, const char *only, bool json, brim_arena *arena)
{
  listing l = {0};
  if (only && !brim_op_find(only)) return unknown_operation(only);
  for (size_t i = 0; i < brim_registry_count(registry) && l.backend_count < BACKENDS_MAX; i++)
    if (brim_registry_at(registry, i)->plugin->kind == BRIM_BACKEND)
      l.backend[l.backend_count++] = brim_registry_at(registry, i)->plugin;
  l.op_count = brim_op_count();
  l.op = BRIM_ARENA_NEW(arena, const brim_op *, l.op_count);
  for (size_t i = 0; i < l.op_count; i++) l.op[i] = brim_op_at(i);
  qsort(l.op, l.op_count, sizeof(brim_op *), by_name);
  if (json) {
    json_t *ops = json_array();
    for (size_t i = 0; i < l.op_count; i++)
      if (!only || strcmp(l.op[i]->name, only) == 0) json_array_append_new(ops, json_of(&l, l.op[i]));
    return brim_cli_print_json(json_pack("{s:o}", "operations", ops));
  }
  print_table(&l, only, arena);
  return BRIM_OK;
}

static int run_command(brim_cli *cli, int argc, char **argv)
{
  bool json = false;
  brim_operands operands;
  brim_status status = brim_cli_parse(argc, argv, brim_cli_only_json, &json, &operands);
  if (status == BRIM_OK) status = brim_cli_at_most(&operands, 1, "brim ops takes one operation");
  if (status == BRIM_OK) status = run(cli->registry, operands.count ? operands.word[0] : NULL, json, &operands.arena);
  return brim_cli_end(status, &operands);
}

const brim_command brim_command_ops = {
    "ops", "list operations, and the backends that support them", run_command,
    "usage: brim ops [OPERATION] [--json]\n"
    "\n"
    "  brim ops           all: inputs, outputs, whether there is a gradient, and backends\n"
    "  brim ops conv2d    one\n"
    "\n"
    "brim/ops.h defines the operations; brim/model.h has the functions that models call.\n",
    brim_cli_only_json};
