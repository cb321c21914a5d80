#include "plugin/instance.h"

#include <string.h>

#include "param/value.h"
#include "plugin/kind.h"

/* Returns the last value given for this key; NULL: none. */
static const char *value_given(const char *key, const char *const *word, size_t count)
{
  const size_t length = strlen(key);
  while (count-- > 0)
    if (strncmp(word[count], key, length) == 0 && word[count][length] == '=') return word[count] + length + 1;
  return NULL;
}

static brim_status check_words(const brim_plugin *plugin, const char *const *word, size_t count)
{
  for (size_t i = 0; i < count; i++) {
    const brim_param *row = plugin->params;
    const size_t length = strcspn(word[i], "=");
    if (!word[i][length]) return brim_fail(BRIM_ECONFIG, "'%s' is not a parameter: write key=value", word[i]);
    while (row && row->key && (strlen(row->key) != length || strncmp(row->key, word[i], length) != 0)) row++;
    if (!row || !row->key) return brim_fail(BRIM_ECONFIG, "'%s': no such parameter", word[i]);
  }
  return BRIM_OK;
}

/* Fills a parameter with its given value or its default. */
static brim_status fill(brim_param row, const char *given, brim_arena *arena, void *params)
{
  if (given) row.def = given;
  const brim_yaml *value = brim_value_default(&row, arena);
  if (!row.def) return brim_fail(BRIM_ECONFIG, "its parameter '%s' is required", row.key);
  if (!value) return brim_fail(BRIM_ECONFIG, "parameter '%s' cannot be '%s'", row.key, row.def);
  brim_text problem = {0};
  const brim_status status = brim_value_parse(&row, value, params, arena, &problem);
  if (status != BRIM_OK) brim_fail(status, "'%s' %s", row.key, brim_text_str(&problem));
  brim_text_release(&problem);
  return status;
}

brim_status brim_instance_with(const brim_plugin *plugin, const char *const *word, size_t count, brim_arena *arena,
                               void **out)
{
  void *params = brim_arena_alloc(arena, plugin->params_size);
  *out = NULL;
  BRIM_TRY(check_words(plugin, word, count));
  for (const brim_param *row = plugin->params; row && row->key; row++)
    BRIM_TRY(fill(*row, value_given(row->key, word, count), arena, params));
  if (plugin->create) return plugin->create(params, out);
  *out = params;
  return BRIM_OK;
}

brim_status brim_instance_default(const brim_plugin *plugin, brim_arena *arena, void **out)
{
  return brim_instance_with(plugin, NULL, 0, arena, out);
}

brim_status brim_plugin_answer(const brim_plugin *plugin, const char *function, brim_status status)
{
  if (status == BRIM_OK || status == BRIM_ENOTSUP || brim_error_text()[0]) return status;
  return brim_fail(status, "%s '%s' failed in %s without an error text: %s\nuse brim_fail(status, ...) to say why",
                   brim_kind_name(plugin->kind), plugin->id, function, brim_status_text(status));
}
