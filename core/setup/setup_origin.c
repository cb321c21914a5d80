/* Finds where values of a setup come from: errors name the origin, and the data may request other values than defaults.
 * See setup_parts.h. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/install.h"
#include "base/text.h"
#include "setup/setup_parts.h"

brim_status brim_setup_add_origin(const brim_setup *s, brim_status status)
{
  brim_text text = {0}, origin = {0};
  brim_text_add(&text, brim_error_text());
  const char *error = brim_text_str(&text);
  const size_t line = strcspn(error, "\n"), name = error[0] == '\'' ? strcspn(error + 1, "='") : 0;
  char key[BRIM_YAML_KEY_BYTES_MAX];
  const int length = snprintf(key, sizeof key, "%.*s", (int)name, error + (name > 0));
  const brim_yaml *value = name > 0 && (size_t)length < sizeof key ? brim_yaml_get_path(s->config->root, key) : NULL;
  if (status == BRIM_ECONFIG && value && strcmp(value->origin.file, "default") != 0) {
    brim_yaml_print_origin(&value->origin, &origin);
    brim_fail(status, "%.*s\n%s%s", (int)line, error, brim_text_str(&origin), error + line);
  }
  brim_text_release(&text);
  brim_text_release(&origin);
  return status;
}

bool brim_setup_is_untouched(const brim_yaml *value)
{
  char own[BRIM_PATH_MAX];
  const char *file = value->origin.file;
  if (strcmp(file, "default") == 0) return true;
  return brim_install_dir(own, sizeof own, BRIM_INSTALL_CONFIGS) && brim_starts_with(file, own) &&
         file[strlen(own)] == '/';
}

brim_status brim_setup_ask_for(brim_setup *s, enum brim_level level, const char *word, const char *because,
                               brim_status status)
{
  brim_log(level, "using %s, as samples of dataset '%s' %s", word, s->data.plugin->id, because);
  s->again.word[s->again.count++] = word;
  s->again.by_data = true;
  return status;
}
