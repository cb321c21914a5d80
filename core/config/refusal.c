#include "config/refusal.h"

const brim_yaml_origin *brim_origin_of(const brim_config *config, const char *path)
{
  const brim_yaml *node = brim_yaml_get_path(config->root, path);
  return node ? &node->origin : NULL;
}

void brim_refuse(brim_composition *c, const brim_config *config, const brim_refusal *row, size_t count,
                 const char *with)
{
  for (size_t i = 0; i < count; i++) {
    if (!row[i].is_refused) continue;
    brim_problem_at(&c->problems, brim_origin_of(config, row[i].path), "'%s' cannot be combined with %s: %s",
                    row[i].path, with, row[i].why);
    brim_problem_hint(&c->problems, "%s", row[i].instead);
  }
}
