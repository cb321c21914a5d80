/* A configuration made again with other choices than the command line's. See brim_config_load_again. */
#include <string.h>

#include "config/config.h"

/* Is another option of a group asked for than there is? */
static bool changes_option(const brim_config *config, const char *other)
{
  const size_t length = strcspn(other, "=");
  for (size_t i = 0; i < config->choice_count; i++) {
    const brim_config_choice *c = &config->choice[i];
    if (strlen(c->group) == length && strncmp(c->group, other, length) == 0)
      return strcmp(c->plugin->id, other + length + 1) != 0;
  }
  return false;
}

/* Does a word of the command line speak of the same key as `other`, or of a key of an option that goes with it? */
static bool is_about(const brim_config *config, const char *word, const char *other)
{
  const char *key = word + strspn(word, "+~");
  const size_t length = strcspn(other, "=");
  if (strncmp(key, other, length) != 0) return false;
  return key[length] == '=' || key[length] == '\0' || (key[length] == '.' && changes_option(config, other));
}

brim_status brim_config_load_again(const brim_config *config, const char *const *word, size_t count, brim_config **out)
{
  brim_arena arena = {0};
  brim_config_request request = config->request;
  const char **words = BRIM_ARENA_NEW(&arena, const char *, request.override_count + count);
  int *argument = BRIM_ARENA_NEW(&arena, int, request.override_count + count);
  size_t kept = 0;
  for (size_t i = 0; i < request.override_count; i++) {
    bool replaced = false;
    for (size_t k = 0; k < count; k++) replaced = replaced || is_about(config, request.overrides[i], word[k]);
    if (replaced) continue;
    words[kept] = request.overrides[i];
    argument[kept++] = request.argument[i];
  }
  for (size_t k = 0; k < count; k++) words[kept++] = word[k];
  request.overrides = words;
  request.override_count = kept;
  request.argument = argument;
  const brim_status status = brim_config_load(&request, config->registry, out);
  brim_arena_release(&arena);
  return status;
}
