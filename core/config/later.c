/* The table of what is declared and not available, and how a value is judged: parsed by its type, so that `0x0` and
 * `0` are the same, and compared as a parsed value. */
#include "config/later.h"

#include <string.h>

#include "config/same.h"
#include "config/value.h"

/* A key without a field. */
#define LATER(section, T, key, def, range, neutral, help)                                                              \
  {                                                                                                                    \
    section, {key, BRIM_##T, 0, 0, def, range, help}, neutral, false                                                   \
  }
#define LATER_NAMES(section, key, help)                                                                                \
  {                                                                                                                    \
    section, {key, BRIM_LIST, 0, 0, "[]", NULL, help}, NULL, true                                                      \
  }

/* Every value of the first two means the same here: this build never shrinks or repeats a step, because a plan that
 * does not fit is refused before anything is placed. brim_later_unused() names those that were written.
 *
 * The defaults of the keys of federated training say that there is none; its configuration will set others. */
const brim_later_key brim_later_keys[] = {
    LATER("", I64, "min_batch_size", "1", "[1,1048576]", "*", "micro-batches are not made smaller than this"),
    LATER("", I64, "max_retries", "3", "[0,1000]", "*", "times that a step is tried again after it ran out of memory"),
    LATER("memory", ENUM, "recompute", "none", "none|blocks|full|auto", NULL,
          "what the backward pass computes again rather than keeps"),
    LATER("memory", BYTES, "headroom_mb", "0", NULL, NULL, "memory of the device that plans leave to others"),
    LATER("memory", F64, "warn_percent", "0", "[0,100]", NULL, "use of memory at which to warn; 0: never"),
    LATER("memory", F64, "critical_percent", "0", "[0,100]", NULL, "use of memory at which to clean up; 0: never"),
    LATER("training", I64, "effective_batch_size", "0", "[0,1099511627776]", NULL,
          "samples in a step; 0: batch_size times gradient_accumulation_steps"),
    LATER("training", I64, "clear_cache_every_n_rounds", "0", "[0,inf)", NULL,
          "rounds (evaluation intervals) between cleanings of caches; 0: never"),
    LATER("dist", I64, "ranks", "1", "[1,65536]", NULL, "processes that share the training"),
    LATER_NAMES("", "policy", "what decides about device, plan and out-of-memory, each before the next"),
    LATER("", STR, "comm", "", NULL, NULL, "how ranks talk: mpi or nccl"),
    LATER("", I64, "total_clients", "0", "[0,1000000000]", NULL, "clients of federated training"),
    LATER("", I64, "clients_per_round", "0", "[0,1000000000]", NULL, "clients that a federated round trains on"),
    LATER("", I64, "rounds", "0", "[0,1000000000]", NULL, "federated rounds"),
    LATER("", I64, "parallel_clients", "-1", "[-1,65536]", NULL,
          "clients that train at a time; -1: the largest safe number"),
    LATER("", STR, "method", "", NULL, NULL, "how the clients of a round are selected"),
    LATER("", I64, "repeats", "1", "[1,1000000]", NULL, "times that the whole experiment is run"),
    LATER("", STR, "protocol", "", NULL, NULL, "a label: messaging is modelled as a network scenario"),
    {NULL, {0}, NULL, false},
};

const brim_later_value brim_later_values[] = {
    {"training.batch_size", "auto"},
    {"precision", "fp16"},
    {NULL, NULL},
};

/* Is the value the same as `text` would be? */
static bool is_neutral(const brim_later_key *key, const brim_yaml *node, const char *text, brim_arena *arena)
{
  brim_param row = key->param;
  row.def = text;
  const brim_yaml *neutral = brim_value_default(&row, arena);
  return neutral && brim_value_same(&row, node, neutral, arena);
}

/* Only the empty list is neutral, or one name that is empty. */
static brim_status check_names(const brim_yaml *node, brim_text *problem)
{
  const bool list = node->kind == BRIM_YAML_LIST;
  const size_t count = list ? node->count : 1;
  bool neutral = true;
  for (size_t i = 0; i < count; i++) {
    const brim_yaml *name = list ? node->item[i] : node;
    const bool null = brim_yaml_is_null(name);
    if (name->kind != BRIM_YAML_SCALAR || null) {
      const char *got = name->kind == BRIM_YAML_MAP ? "a map" : name->kind == BRIM_YAML_LIST ? "a list" : "null";
      if (list)
        brim_text_printf(problem, "must be a list of names, but item %zu is %s", i, got);
      else
        brim_text_printf(problem, "must be a name or a list of names, got %s", got);
      return BRIM_ECONFIG;
    }
    neutral = neutral && !list && name->scalar[0] == '\0';
  }
  return neutral ? BRIM_OK : BRIM_ENOTSUP;
}

brim_status brim_later_check(const brim_later_key *key, const brim_yaml *node, brim_arena *arena, brim_text *problem)
{
  brim_any_value value;
  if (key->names) return check_names(node, problem);
  memset(&value, 0, sizeof value);
  BRIM_TRY(brim_value_parse(&key->param, node, &value, arena, problem));
  const char *text = key->neutral ? key->neutral : key->param.def;
  if (key->neutral && strcmp(text, "*") == 0) return BRIM_OK;
  for (;;) {
    const size_t length = key->neutral ? strcspn(text, "|") : strlen(text);
    if (is_neutral(key, node, brim_arena_string_n(arena, text, length), arena)) return BRIM_OK;
    if (text[length] == '\0') return BRIM_ENOTSUP;
    text += length + 1;
  }
}

const char *brim_later_type_name(const brim_later_key *key)
{
  return key->names ? "list of names" : brim_value_type_name(key->param.type);
}

bool brim_later_is_value(const char *path, const brim_yaml *node)
{
  for (const brim_later_value *v = brim_later_values; v->path; v++)
    if (strcmp(v->path, path) == 0 && node->kind == BRIM_YAML_SCALAR && !node->quoted &&
        strcmp(v->value, node->scalar) == 0)
      return true;
  return false;
}

size_t brim_later_unused(const brim_yaml *root, brim_text *names)
{
  size_t count = 0;
  for (const brim_later_key *k = brim_later_keys; k->section; k++) {
    const brim_yaml *section = k->section[0] ? brim_yaml_get(root, k->section) : root;
    if (!k->neutral || strcmp(k->neutral, "*") != 0 || !section || !brim_yaml_get(section, k->param.key)) continue;
    brim_text_printf(names, "%s%s%s%s", count++ ? ", " : "", k->section, k->section[0] ? "." : "", k->param.key);
  }
  return count;
}
