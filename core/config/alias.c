/* The tables of old names, and their replacement. */
#include "config/alias.h"

#include <string.h>

#include "config/settings.h"

const brim_alias brim_aliases[] = {
    {"fp16", "precision", "true=fp16|false=fp32"},
    {"training.fp16", "precision", "true=fp16|false=fp32"},
    {"training.gradient_checkpointing", "memory.recompute", "true=blocks|false=none"},
    {"training.auto_batch_size", "training.batch_size", "true=auto|false"},
    {"policy.periodic.warn_percent", "memory.warn_percent", NULL},
    {"policy.periodic.critical_percent", "memory.critical_percent", NULL},
    {"dirichlet_alpha", "partition.alpha", NULL},
    {"shards_per_client", "partition.shards", NULL},
    {"size_distribution", "partition.sizes", NULL},
    {"local_epochs", "federate.local_epochs", NULL},
    {"eval_every", "federate.eval_every_rounds", NULL},
    {"time_budget", "federate.deadline_seconds", NULL},
    {"dp_clip_norm", "privacy.clip_norm", NULL},
    {NULL, NULL, NULL},
};

const brim_alias *brim_alias_find(const char *path)
{
  for (const brim_alias *a = brim_aliases; a->old; a++)
    if (strcmp(a->old, path) == 0) return a;
  return NULL;
}

/* Prints "true or false" for "true=fp16|false=fp32". */
static void print_names(const char *values, brim_text *out)
{
  for (const char *s = values; *s;) {
    const size_t name = strcspn(s, "=|"), all = strcspn(s, "|");
    brim_text_printf(out, "%s%.*s", s == values ? "" : " or ", (int)name, s);
    s += all + (s[all] == '|');
  }
}

bool brim_alias_value(const brim_alias *alias, const brim_yaml *value, brim_problems *problems, brim_yaml **out)
{
  const bool plain = value->kind == BRIM_YAML_SCALAR && !value->quoted;
  *out = brim_yaml_clone(problems->arena, value);
  if (!alias->values || (plain && strcmp(value->scalar, "???") == 0)) return true;
  for (const char *s = alias->values; plain && *s;) {
    const size_t name = strcspn(s, "=|"), all = strcspn(s, "|");
    if (strlen(value->scalar) == name && strncmp(value->scalar, s, name) == 0) {
      if (name < all)
        (*out)->scalar = brim_arena_string_n(problems->arena, s + name + 1, all - name - 1);
      else
        *out = NULL;
      return true;
    }
    s += all + (s[all] == '|');
  }
  brim_text names = {0};
  print_names(alias->values, &names);
  const char *got = value->kind == BRIM_YAML_SCALAR ? value->scalar : value->kind == BRIM_YAML_MAP ? "a map" : "a list";
  brim_problem_at(problems, &value->origin, "'%s' must be %s, got %.100s", alias->old, brim_text_str(&names), got);
  brim_problem_hint(problems, "it is the old name of '%s'", alias->now);
  brim_text_release(&names);
  return false;
}

void brim_alias_note(const brim_alias *alias, const brim_yaml *value, const brim_yaml *now, brim_problems *notes)
{
  if (!now)
    brim_problem(notes, BRIM_OK, "'%s' is an old name: %s=%s has no effect now", alias->old, alias->old, value->scalar);
  else if (now->kind != BRIM_YAML_SCALAR)
    brim_problem(notes, BRIM_OK, "'%s' is taken as '%s', its new name", alias->old, alias->now);
  else
    brim_problem(notes, BRIM_OK, "%s=%s is taken as %s=%s, its new name", alias->old, value->scalar, alias->now,
                 now->scalar);
}

static void rewrite(brim_arena *arena, brim_yaml *root, const brim_alias *a, brim_problems *problems,
                    brim_problems *notes)
{
  const brim_yaml *value = brim_yaml_get_path(root, a->old);
  if (!value || brim_yaml_is_null(value)) return;
  const brim_yaml_origin at = brim_yaml_key_origin(value);
  brim_yaml_remove(brim_yaml_make_parent(arena, root, a->old, at), brim_yaml_leaf(a->old));
  brim_yaml *now = NULL;
  if (!brim_alias_value(a, value, problems, &now)) return;
  const brim_yaml *other = brim_yaml_get_path(root, a->now);
  if (now && other) {
    brim_problem_at(problems, &at, "'%s' is the old name of '%s', and both are given: leave out '%s'", a->old, a->now,
                    a->old);
    return;
  }
  brim_alias_note(a, value, now, notes);
  brim_yaml *into = now ? brim_yaml_make_parent(arena, root, a->now, value->origin) : NULL;
  if (into) brim_yaml_set(arena, into, brim_yaml_leaf(a->now), now);
}

void brim_alias_rewrite(brim_arena *arena, brim_yaml *root, brim_problems *problems, brim_problems *notes)
{
  for (const brim_alias *a = brim_aliases; a->old; a++) rewrite(arena, root, a, problems, notes);
}

/* ---- values ---- */

const brim_old_value brim_old_values[] = {
    {"partition", "label-shard", "shards"},
    {"partition", "label_shard", "shards"},
    {"method", "proportional_data", "proportional"},
    {"method", "fedavg", "random"},
    {"method", "poc", "power_of_choice"},
    {NULL, NULL, NULL},
};

/* The families that the client-selection simulator writes before the names of methods. */
static const char *const families[] = {"heuristic.", "system_aware.", "ml.bandit.", "ml.", "baseline."};

static const char *without_family(const char *key, const char *value)
{
  for (size_t i = 0; strcmp(key, "method") == 0 && i < sizeof families / sizeof families[0]; i++)
    if (brim_starts_with(value, families[i])) return value + strlen(families[i]);
  return value;
}

void brim_old_value_replace(const char *key, brim_yaml *value, brim_problems *notes)
{
  if (value->kind != BRIM_YAML_SCALAR) return;
  const char *now = without_family(key, value->scalar);
  for (const brim_old_value *v = brim_old_values; v->key; v++)
    if (strcmp(v->key, key) == 0 && strcmp(v->old, now) == 0) now = v->now;
  if (strcmp(now, value->scalar) == 0) return;
  brim_problem(notes, BRIM_OK, "%s=%s is taken as %s=%s, its new name", key, value->scalar, key, now);
  value->scalar = brim_arena_string(notes->arena, now);
}
