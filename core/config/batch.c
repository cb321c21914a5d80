#include "config/batch.h"

#include "param/value.h"

static const char batch_path[] = "training.batch_size", effective_path[] = "training.effective_batch_size",
                  accumulation_path[] = "training.gradient_accumulation_steps";

/* Returns the number in a node of training.batch_size; 0 if it is not a number. */
static int64_t number_of(const brim_schema_row *row, const brim_yaml *node, brim_arena *arena)
{
  brim_training_settings t = {0};
  brim_text problem = {0};
  const brim_status status = brim_value_parse(row->row, node, &t, arena, &problem);
  brim_text_release(&problem);
  return status == BRIM_OK && t.batch_size > 0 ? t.batch_size : 0;
}

/* Returns the value from before it was set to auto: the last number that was set, or else the default. */
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

/* Whether the command line sets the key. */
static bool is_typed(const brim_config *config, const char *path)
{
  return brim_yaml_get_path(config->root, path)->origin.text != NULL;
}

/* Returns the accumulation from before the command line changed it; 1 if it was not set. */
static int64_t accumulation_before(const brim_composition *c, const brim_schema *schema)
{
  const brim_schema_row *row = brim_schema_find(schema, accumulation_path);
  const brim_yaml *node = brim_yaml_get_path(c->root, accumulation_path);
  brim_training_settings t = {.gradient_accumulation_steps = 1};
  brim_text problem = {0};
  if (node && node->replaced) (void)brim_value_parse(row->row, node->replaced, &t, c->arena, &problem);
  brim_text_release(&problem);
  return t.gradient_accumulation_steps;
}

/* An accumulation on the command line overrides an effective batch from a file or a resumed run. */
static void prefer_accumulation(brim_composition *c, const brim_schema *schema, brim_config *config)
{
  brim_training_settings *t = &config->settings.training;
  const int64_t kept = t->effective_batch_size;
  if (kept == 0 || !is_typed(config, accumulation_path) || is_typed(config, effective_path)) return;
  t->effective_batch_size =
      t->batch_size < 0 ? kept / accumulation_before(c, schema) * t->gradient_accumulation_steps : 0;
  keep(config, c->arena, effective_path, t->effective_batch_size);
}

static void no_multiple(brim_composition *c, const brim_config *config)
{
  const brim_training_settings *t = &config->settings.training;
  brim_problem_at(&c->problems, &brim_yaml_get_path(config->root, batch_path)->origin,
                  "training.effective_batch_size %lld is not a multiple of training.batch_size %lld",
                  (long long)t->effective_batch_size, (long long)t->batch_size);
  brim_problem_hint(&c->problems, "choose a batch_size that divides it, or auto");
}

static void another_product(brim_composition *c, const brim_config *config)
{
  const brim_training_settings *t = &config->settings.training;
  brim_problem_at(&c->problems, &brim_yaml_get_path(config->root, accumulation_path)->origin,
                  "training.batch_size %lld times training.gradient_accumulation_steps %lld is not "
                  "training.effective_batch_size %lld",
                  (long long)t->batch_size, (long long)t->gradient_accumulation_steps,
                  (long long)t->effective_batch_size);
  brim_problem_hint(&c->problems, "leave one of them out: it follows from the other two");
}

void brim_batch_resolve(brim_composition *c, const brim_schema *schema, brim_config *config)
{
  brim_training_settings *t = &config->settings.training;
  if (t->batch_size == 0 || t->gradient_accumulation_steps == 0)
    return; /* values are missing, in a configuration that is only shown */
  prefer_accumulation(c, schema, config);
  if (t->batch_size < 0 && t->effective_batch_size == 0) {
    t->effective_batch_size =
        number_below_auto(c, brim_schema_find(schema, batch_path)) * t->gradient_accumulation_steps;
    keep(config, c->arena, effective_path, t->effective_batch_size);
  } else if (t->batch_size < 0) {
    return;
  } else if (t->effective_batch_size == 0) {
    t->effective_batch_size = t->batch_size * t->gradient_accumulation_steps;
  } else if (t->effective_batch_size % t->batch_size != 0) {
    no_multiple(c, config);
  } else if (is_typed(config, accumulation_path) &&
             t->effective_batch_size / t->batch_size != t->gradient_accumulation_steps) {
    another_product(c, config);
  } else {
    t->gradient_accumulation_steps = t->effective_batch_size / t->batch_size;
    keep(config, c->arena, accumulation_path, t->gradient_accumulation_steps);
  }
}
