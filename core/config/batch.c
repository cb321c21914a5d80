#include "config/batch.h"

#include "config/value.h"

static const char batch_path[] = "training.batch_size";

/* The number that a node of training.batch_size is; 0: it is none. */
static int64_t number_of(const brim_schema_row *row, const brim_yaml *node, brim_arena *arena)
{
  brim_training_settings t = {0};
  brim_text problem = {0};
  const brim_status status = brim_value_parse(row->row, node, &t, arena, &problem);
  brim_text_release(&problem);
  return status == BRIM_OK && t.batch_size > 0 ? t.batch_size : 0;
}

/* What it was before it became auto: the last number that anybody wrote, or else the default. */
static int64_t number_below_auto(const brim_composition *c, const brim_schema_row *row)
{
  for (const brim_yaml *node = brim_yaml_get_path(c->root, row->path); node; node = node->replaced) {
    const int64_t number = number_of(row, node, c->arena);
    if (number > 0) return number;
  }
  return number_of(row, brim_value_default(row->row, c->arena), c->arena);
}

static void keep(const brim_config *config, brim_arena *arena, const char *path, int64_t value)
{
  brim_yaml *node = brim_yaml_get_path(config->root, path);
  node->scalar = brim_arena_printf(arena, "%lld", (long long)value);
}

/* Did the command line itself give a key its value? */
static bool is_typed(const brim_config *config, const char *path)
{
  return brim_yaml_get_path(config->root, path)->origin.text != NULL;
}

void brim_batch_resolve(brim_composition *c, const brim_schema *schema, brim_config *config)
{
  static const char effective_path[] = "training.effective_batch_size";
  brim_training_settings *t = &config->settings.training;
  if (t->batch_size == 0 || t->gradient_accumulation_steps == 0) return; /* missing, in what is only shown */
  /* What a run has kept gives way to what is typed now. */
  if (is_typed(config, "training.gradient_accumulation_steps") && !is_typed(config, effective_path)) {
    t->effective_batch_size = 0;
    keep(config, c->arena, effective_path, 0);
  }
  if (t->batch_size < 0 && t->effective_batch_size == 0) {
    t->effective_batch_size =
        number_below_auto(c, brim_schema_find(schema, batch_path)) * t->gradient_accumulation_steps;
    keep(config, c->arena, effective_path, t->effective_batch_size);
  } else if (t->batch_size < 0) {
    return;
  } else if (t->effective_batch_size == 0) {
    t->effective_batch_size = t->batch_size * t->gradient_accumulation_steps;
  } else if (t->effective_batch_size % t->batch_size != 0) {
    const brim_yaml *node = brim_yaml_get_path(config->root, batch_path);
    brim_problem_at(&c->problems, &node->origin,
                    "training.effective_batch_size %lld is not a multiple of training.batch_size %lld",
                    (long long)t->effective_batch_size, (long long)t->batch_size);
    brim_problem_hint(&c->problems, "choose a batch_size that divides it, or auto");
  } else {
    t->gradient_accumulation_steps = t->effective_batch_size / t->batch_size;
    keep(config, c->arena, "training.gradient_accumulation_steps", t->gradient_accumulation_steps);
  }
}
