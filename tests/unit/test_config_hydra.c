/* Compares composition and interpolation with the output of Hydra and OmegaConf (tests/config_hydra). They agree where
 * they should, and differ exactly as differs.txt says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/log.h"
#include "builtin/builtin.h"
#include "config/interpolate.h"
#include "scratch.h"

#define FOLDER BRIM_TESTS_DIR "/config_hydra/"
enum { WORDS_MAX = 8 };

static brim_registry *registry;
static const char *const search[] = {FOLDER "tree"};

static int setup(void **state)
{
  setenv("BRIM_HYDRA_SET", "from the environment", 1);
  unsetenv("BRIM_HYDRA_UNSET");
  brim_log_set_level(BRIM_LOG_WARN);
  registry = brim_registry_create(brim_core_plugins);
  assert_int_equal(brim_registry_load(registry, BRIM_BUILD_DIR "/tests/config_plugins/config_plugins.so"), BRIM_OK);
  return 0;
}

static int teardown(void **state)
{
  brim_registry_free(registry);
  return 0;
}

/* Reads the lines of a file, without comments. */
static char **read_lines(brim_arena *arena, const char *path, size_t *count)
{
  enum { LINES_MAX = 8192 };
  FILE *f = fopen(path, "r");
  if (!f) fail_msg("cannot open %s", path);
  char line[4096], **out = BRIM_ARENA_NEW(arena, char *, LINES_MAX);
  for (*count = 0; fgets(line, sizeof line, f);) {
    line[strcspn(line, "\n")] = '\0';
    if (!line[0] || line[0] == '#') continue;
    assert_true(*count < LINES_MAX);
    out[(*count)++] = brim_arena_string(arena, line);
  }
  fclose(f);
  return out;
}

/* Returns the node at a path. Sets *added if the user added one of the keys. */
static const brim_yaml *find(brim_arena *arena, const brim_yaml *node, const char *path, bool *added)
{
  while (node && *path) {
    const size_t length = strcspn(path, ".");
    const char *name = brim_arena_string_n(arena, path, length);
    const brim_yaml *child = brim_yaml_get_path(node, name);
    if (!child) {
      child = brim_yaml_get(node, brim_arena_printf(arena, "+%s", name));
      *added = *added || child;
    }
    node = child;
    path += length + (path[length] == '.');
  }
  return node;
}

static bool is_number(const char *s, double *out)
{
  char *end = NULL;
  *out = strtod(s, &end);
  return end != s && *end == '\0' && !strpbrk(s, "nNxX");
}

/* True if the node has the type and value of text such as "int 3". `is_free`: it has no declared type, so its text must
 * look like that type. */
static bool is_value(const brim_yaml *node, const char *type, const char *text, bool is_free)
{
  double a, b;
  if (strcmp(type, "map") == 0) return node->kind == BRIM_YAML_MAP && node->count == 0;
  if (strcmp(type, "list") == 0) return node->kind == BRIM_YAML_LIST && node->count == 0;
  if (node->kind != BRIM_YAML_SCALAR) return false;
  if (strcmp(type, "null") == 0) return brim_yaml_is_null(node);
  if (strcmp(type, "str") == 0) {
    const bool other = is_number(node->scalar, &a) || strcmp(node->scalar, "true") == 0 ||
                       strcmp(node->scalar, "false") == 0 || brim_yaml_is_null(node);
    return strcmp(node->scalar, text) == 0 && (!is_free || node->quoted || !other);
  }
  if (is_free && node->quoted) return false;
  if (strcmp(type, "bool") == 0) return strcmp(node->scalar, text) == 0;
  return is_number(node->scalar, &a) && is_number(text, &b) && a == b;
}

/* Compares a tree with lines "PATH TYPE VALUE"; returns the first line that differs, or NULL. */
static const char *disagreement(brim_arena *arena, const brim_yaml *root, char *const *line, size_t count, bool is_free)
{
  for (size_t i = 0; i < count; i++) {
    const size_t path = strcspn(line[i], " "), type = strcspn(line[i] + path + 1, " ");
    const char *value = line[i] + path + 1 + type;
    bool added = is_free;
    const brim_yaml *node = find(arena, root, brim_arena_string_n(arena, line[i], path), &added);
    if (!node || !is_value(node, brim_arena_string_n(arena, line[i] + path + 1, type), value + (*value == ' '), added))
      return line[i];
  }
  return NULL;
}

/* Composes a case such as "config | seed=1" and compares it with the lines; returns the first difference, or NULL. */
static const char *compose(brim_arena *arena, const char *text, char *const *line, size_t count)
{
  const char *word[WORDS_MAX] = {0};
  size_t words = 0;
  for (const char *s = text; s && words < WORDS_MAX; words++) {
    const char *end = strstr(s, " | ");
    word[words] = end ? brim_arena_string_n(arena, s, (size_t)(end - s)) : s;
    s = end ? end + 3 : NULL;
  }
  const brim_config_request request = {.search = search,
                                       .search_count = 1,
                                       .name = word[0],
                                       .overrides = word + 1,
                                       .override_count = words - 1,
                                       .first_argument = 1};
  brim_config *config = NULL;
  const bool error = count == 1 && strcmp(line[0], "!! error") == 0;
  if (brim_config_load(&request, registry, &config) != BRIM_OK)
    return error ? NULL : brim_arena_string(arena, brim_error_text());
  const char *about = error ? "brim accepts it" : disagreement(arena, config->root, line, count, false);
  brim_config_free(config);
  return about;
}

/* Does the same for a map of interpolations. */
static const char *interpolate(brim_arena *arena, const char *text, char *const *line, size_t count)
{
  brim_composition c = {.arena = arena, .problems = {.arena = arena}};
  if (brim_yaml_parse(arena, text, strlen(text), "case", &c.root) != BRIM_OK) return brim_error_text();
  brim_interpolate(&c, &(brim_schema){0});
  const bool error = strcmp(line[0], "!! error") == 0;
  if (c.problems.count > 0) return error ? NULL : c.problems.text[0];
  return error ? "brim accepts it" : disagreement(arena, c.root, line, count, true);
}

static bool is_listed(char *const *line, size_t count, const char *text)
{
  for (size_t i = 0; i < count; i++)
    if (strcmp(line[i], text) == 0) return true;
  return false;
}

static void check_file(const char *path, size_t least,
                       const char *(*answer)(brim_arena *, const char *, char *const *, size_t))
{
  brim_arena arena = {0};
  size_t count = 0, differ_count = 0, cases = 0, wrong = 0;
  char **line = read_lines(&arena, path, &count), **differ = read_lines(&arena, FOLDER "differs.txt", &differ_count);
  for (size_t i = 0, next; i < count; i = next) {
    assert_true(brim_starts_with(line[i], "== "));
    for (next = i + 1; next < count && !brim_starts_with(line[next], "== ");) next++;
    const char *about = answer(&arena, line[i] + 3, line + i + 1, next - i - 1);
    const bool meant = is_listed(differ, differ_count, line[i] + 3);
    if (about && !meant) print_error("%s\n  differs: %s\n", line[i], about);
    if (!about && meant) print_error("%s\n  is in differs.txt, and agrees\n", line[i]);
    wrong += (about != NULL) != meant;
    cases++;
  }
  brim_arena_release(&arena);
  assert_true(cases >= least);
  assert_int_equal(wrong, 0);
}

static void composition_is_as_hydra_does_it(void **state)
{
  check_file(FOLDER "golden.txt", 90, compose);
}

static void interpolation_is_as_omegaconf_does_it(void **state)
{
  check_file(FOLDER "interpolation_golden.txt", 60, interpolate);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(composition_is_as_hydra_does_it),
                                     cmocka_unit_test(interpolation_is_as_omegaconf_does_it)};
  return cmocka_run_group_tests_name("config_hydra", tests, setup, teardown);
}
