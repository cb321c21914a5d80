/* Tests composition, overrides, the schema's check and its messages: one test for each case of config_cases.h, and
 * tables that do not fit. The test runs in its own folder, so that paths in messages are short. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/text.h"
#include "builtin/builtin.h"
#include "config/alias.h"
#include "config/schema.h"
#include "param/value.h"
#include "scratch.h"
#include "unit/config_cases.h"

#define CASE_COUNT (sizeof config_cases / sizeof config_cases[0])

static brim_registry *registry;
static const char *const search[] = {"configs"};

static void write_text(const char *path, const char *text)
{
  scratch_write(path, text, strlen(text));
}

static int setup(void **state)
{
  static const char *const folders[] = {"configs",          "configs/model",      "configs/dataset",
                                        "configs/training", "configs/experiment", "configs/policy",
                                        "plugins",          "plugins/model",      "other"};
  scratch_setup(state);
  assert_int_equal(chdir(scratch_root), 0);
  for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) assert_int_equal(mkdir(folders[i], 0777), 0);
  for (size_t i = 0; i < sizeof config_files / sizeof config_files[0]; i++)
    write_text(config_files[i].path, config_files[i].text);
  setenv("BRIM_TEST_SET", "a b", 1);
  setenv("BRIM_TEST_NUMBER", "42", 1);
  setenv("BRIM_TEST_MODEL", "vit", 1);
  unsetenv("BRIM_TEST_DATA");
  unsetenv("BRIM_TEST_POLICY");
  brim_log_set_level(BRIM_LOG_WARN);
  registry = brim_registry_create(brim_core_plugins);
  assert_int_equal(brim_registry_load(registry, BRIM_BUILD_DIR "/tests/config_plugins/config_plugins.so"), BRIM_OK);
  return 0;
}

static int teardown(void **state)
{
  brim_registry_free(registry);
  assert_int_equal(chdir("/"), 0);
  return scratch_teardown(state);
}

static brim_status load(const char *root, const char *file, const char *const *override, brim_config **out)
{
  size_t count = 0;
  while (override && override[count]) count++;
  const brim_config_request request = {.search = search,
                                       .search_count = 1,
                                       .name = root,
                                       .file = file,
                                       .overrides = override,
                                       .override_count = count,
                                       .first_argument = 1};
  return brim_config_load(&request, registry, out);
}

/* Prints the value at a path; returns NULL if there is none. The caller releases the text. */
static bool value_at(const brim_config *config, const char *path, brim_text *out)
{
  const brim_yaml *node = brim_yaml_get_path(config->root, path);
  brim_text_clear(out);
  if (!node) return false;
  brim_yaml_print(node, out, false);
  out->s[--out->length] = '\0'; /* removes the newline */
  return true;
}

static void check_values(const brim_config *config, const char *want)
{
  brim_text got = {0}, key = {0};
  for (const char *line = want; *line;) {
    const size_t length = strcspn(line, "\n"), key_length = strcspn(line, "=\n");
    brim_text_clear(&key);
    brim_text_add_n(&key, line, key_length);
    const bool there = value_at(config, key.s, &got);
    if (key_length == length && there) fail_msg("'%s' should not be there, is %s", key.s, got.s);
    if (key_length < length && !there) fail_msg("'%s' is not there", key.s);
    if (there && (got.length != length - key_length - 1 || memcmp(got.s, line + key_length + 1, got.length) != 0))
      fail_msg("'%s' is %s, should be %.*s", key.s, got.s, (int)(length - key_length - 1), line + key_length + 1);
    line += length + 1;
  }
  brim_text_release(&got);
  brim_text_release(&key);
}

static void check_case(void **state)
{
  const config_case *c = *state;
  brim_config *config = NULL;
  const brim_status status = load(c->root, NULL, c->override, &config);
  if (brim_starts_with(c->want, "error: ")) {
    assert_null(config);
    assert_int_equal(status, BRIM_ECONFIG);
    assert_string_equal(brim_error_text(), c->want + strlen("error: "));
    return;
  }
  if (status != BRIM_OK) fail_msg("%s", brim_error_text());
  check_values(config, c->want);
  brim_config_free(config);
}

/* Asserts that the printed configuration, loaded as a file, prints the same bytes. */
static void check_feeding_back(const char *root, const char *const *override)
{
  brim_config *config = NULL, *again = NULL;
  brim_text first = {0}, second = {0};
  if (load(root, NULL, override, &config) != BRIM_OK) return; /* the case expects an error */
  brim_config_print(config, &first, false);
  write_text("resolved.yaml", first.s);
  if (load(NULL, "resolved.yaml", NULL, &again) != BRIM_OK) fail_msg("%s\n%s", brim_error_text(), first.s);
  brim_config_print(again, &second, false);
  assert_string_equal(first.s, second.s);
  brim_config_free(again);
  brim_text_clear(&first); /* printed with origins, the configuration reads back as the same one */
  brim_config_print(config, &first, true);
  write_text("resolved.yaml", first.s);
  assert_int_equal(load(NULL, "resolved.yaml", NULL, &again), BRIM_OK);
  brim_text_clear(&first);
  brim_config_print(again, &first, false);
  assert_string_equal(first.s, second.s);
  brim_config_free(again);
  brim_config_free(config);
  brim_text_release(&first);
  brim_text_release(&second);
}

static void the_resolved_configuration_is_itself_one(void **state)
{
  for (size_t i = 0; i < CASE_COUNT; i++) check_feeding_back(config_cases[i].root, config_cases[i].override);
  const char *const odd[] = {"run.name='a\"b\\\nc'", "run.dir=\xc3\xbc \xe2\x80\xa8 x", "model.tag='null'",
                             "+list=[{a: 1, b: []}, [x, [y]], {}]", NULL};
  check_feeding_back(NULL, odd);
}

static void overrides_apply_on_a_resolved_configuration(void **state)
{
  brim_config *config = NULL;
  brim_text text = {0};
  assert_int_equal(load(NULL, NULL, NULL, &config), BRIM_OK);
  brim_config_print(config, &text, false);
  write_text("resolved.yaml", text.s);
  brim_config_free(config);
  const char *const override[] = {"model=mlp", "training.epochs=2", "dataset=made", "optimizer=sgd", NULL};
  if (load("nowhere", "resolved.yaml", override, &config) != BRIM_OK) fail_msg("%s", brim_error_text());
  check_values(config, "model.id=mlp\nmodel.width\nmodel.dropout=0\ntraining.epochs=2\ndataset.id=made\n"
                       "dataset.path\ndataset.validation_fraction=0.1\noptimizer.id=sgd\noptimizer.momentum=0.9\n");
  brim_config_free(config);
  brim_text_release(&text);
}

static void settings_and_parameters_are_filled(void **state)
{
  const char *const override[] = {
      "backend.memory_mb=4GB",   "backend.cache_bytes=2MiB", "backend.wait_minutes=90s", "backend.poll_seconds=1500ms",
      "dataset.mean=[0.1, 0.2]", "model.norm=layer",         "run.name=trial",           NULL};
  typedef struct cnn_params {
    int64_t width;
    double dropout;
    const char *tag;
    int32_t norm;
  } cnn_params;
  typedef struct cpu_params {
    int64_t threads;
    uint64_t memory_mb, cache_bytes;
    double wait_minutes, poll_seconds;
  } cpu_params;
  brim_config *config = NULL;
  if (load(NULL, NULL, override, &config) != BRIM_OK) fail_msg("%s", brim_error_text());
  assert_int_equal(config->settings.training.epochs, 7);
  assert_string_equal(config->settings.run.name, "trial");
  assert_true(config->settings.dataset.validation_fraction == 0.1);
  assert_int_equal(config->settings.dataset.mean.count, 2);
  assert_true(config->settings.dataset.mean.item[1] == 0.2);
  const cnn_params *cnn = brim_config_choice_of(config, "model")->params;
  assert_int_equal(cnn->width, 48);
  assert_true(cnn->dropout == 0.5);
  assert_string_equal(cnn->tag, "");
  assert_int_equal(cnn->norm, 2);
  const cpu_params *cpu = brim_config_choice_of(config, "backend")->params;
  assert_int_equal(cpu->memory_mb, 3814);
  assert_int_equal(cpu->cache_bytes, 2 << 20);
  assert_true(cpu->wait_minutes == 1.5);
  assert_true(cpu->poll_seconds == 1.5);
  assert_string_equal(brim_config_choice_of(config, "dataset")->plugin->id, "files");
  assert_int_equal(config->override_count, 7);
  assert_string_equal(config->overrides[6], "run.name=trial");
  brim_config_free(config);
}

static void origins_name_file_line_and_argument(void **state)
{
  const char *const override[] = {"seed=3", NULL};
  brim_config *config = NULL;
  brim_text text = {0};
  assert_int_equal(load(NULL, NULL, override, &config), BRIM_OK);
  brim_config_print(config, &text, true);
  static const char *const want[] = {
      "seed: 3  # command line, argument 1: seed=3\n",     "  width: 48  # configs/config.yaml:12:10\n",
      "  id: cnn  # configs/config.yaml:2:12\n",           "  id: files  # configs/dataset/small.yaml:1:5\n",
      "  mean: [0.5]  # configs/dataset/small.yaml:4:7\n", "  dropout: 0.5  # default\n"};
  for (size_t i = 0; i < sizeof want / sizeof want[0]; i++)
    if (!strstr(text.s, want[i])) fail_msg("no line %s in\n%s", want[i], text.s);
  brim_config_free(config);
  brim_text_release(&text);
}

static void an_origin_names_the_interpolation(void **state)
{
  brim_config *config = NULL;
  brim_text text = {0};
  assert_int_equal(load("refers", NULL, NULL, &config), BRIM_OK);
  brim_config_print(config, &text, true);
  static const char want[] = "  dir: out/cnn  # configs/refers.yaml:7:8, from out/${..model.id}\n";
  if (!strstr(text.s, want)) fail_msg("no line %s in\n%s", want, text.s);
  brim_config_free(config);
  brim_text_release(&text);
}

static void missing_values_can_be_shown(void **state)
{
  const char *const override[] = {"dataset=open", "+note=???", "run.name=${note}", "+list=[a,b]", "list.1=???"};
  const brim_config_request request = {.search = search,
                                       .search_count = 1,
                                       .overrides = override,
                                       .override_count = 5,
                                       .first_argument = 1,
                                       .allow_missing = true};
  brim_config *config = NULL;
  brim_text text = {0};
  if (brim_config_load(&request, registry, &config) != BRIM_OK) fail_msg("%s", brim_error_text());
  brim_config_print(config, &text, false);
  static const char *const want[] = {"  path: ???  # mandatory: it has no value yet\n", "  name: ???  # mandatory",
                                     "+note: ???  # mandatory", "+list:\n  - a\n  - ???  # mandatory"};
  for (size_t i = 0; i < sizeof want / sizeof want[0]; i++)
    if (!strstr(text.s, want[i])) fail_msg("no line %s in\n%s", want[i], text.s);
  brim_config_free(config);
  write_text("resolved.yaml", text.s); /* a configuration printed with unset values cannot be run */
  assert_int_equal(load(NULL, "resolved.yaml", NULL, &config), BRIM_ECONFIG);
  if (!strstr(brim_error_text(), "'dataset.path' is mandatory and has no value: write dataset.path=VALUE\n  resolved"))
    fail_msg("%s", brim_error_text());
  brim_text_release(&text);
}

/* Each value contains the previous one twice, so a page of text would become 2^60 characters. */
static void interpolation_cannot_grow_without_bound(void **state)
{
  brim_text text = {0};
  brim_text_add(&text, "defaults: [config]\n+a0: xxxxxxxxxxxxxxxx\n");
  for (int i = 1; i < 60; i++) brim_text_printf(&text, "+a%d: ${a%d}${a%d}\n", i, i - 1, i - 1);
  write_text("other/bomb.yaml", text.s);
  const char *const two[] = {"other", "configs"};
  const brim_config_request request = {.search = two, .search_count = 2, .name = "bomb"};
  brim_config *config = NULL;
  assert_int_equal(brim_config_load(&request, registry, &config), BRIM_ECONFIG);
  if (!strstr(brim_error_text(), "makes the configuration larger than 10000 values or 1 MiB\n  other/bomb.yaml:"))
    fail_msg("%s", brim_error_text());
  brim_text_clear(&text);
  brim_text_add(&text, "defaults: [config]\n");
  for (int i = 0; i < 80; i++) brim_text_printf(&text, "+a%d: ${a%d}\n", i, i + 1);
  brim_text_add(&text, "+a80: 1\n");
  write_text("other/bomb.yaml", text.s);
  assert_int_equal(brim_config_load(&request, registry, &config), BRIM_ECONFIG);
  if (!strstr(brim_error_text(), "is in a chain of more than 64 interpolations")) fail_msg("%s", brim_error_text());
  brim_text_release(&text);
}

static void the_first_folder_of_the_search_path_wins(void **state)
{
  write_text("other/robust.yaml", "defaults: [config]\nseed: 77\n");
  const char *const two[] = {"other", "configs"};
  const brim_config_request request = {.search = two, .search_count = 2, .name = "robust"};
  brim_config *config = NULL;
  if (brim_config_load(&request, registry, &config) != BRIM_OK) fail_msg("%s", brim_error_text());
  check_values(config, "seed=77\ntraining.epochs=7\n");
  brim_config_free(config);
}

static void words_have_the_numbers_given(void **state)
{
  const char *const override[] = {"seed=1", "sed=1"};
  const int number[] = {2, 5};
  const brim_config_request request = {
      .search = search, .search_count = 1, .overrides = override, .override_count = 2, .argument = number};
  brim_config *config = NULL;
  assert_int_equal(brim_config_load(&request, registry, &config), BRIM_ECONFIG);
  assert_non_null(strstr(brim_error_text(), "command line, argument 5: sed=1"));
}

static void a_plugin_that_cannot_be_loaded_says_why(void **state)
{
  write_text("plugins/model/resnet.so", "not a shared object");
  brim_registry *with_broken = brim_registry_create(brim_core_plugins);
  assert_int_equal(brim_registry_load(with_broken, BRIM_BUILD_DIR "/tests/config_plugins/config_plugins.so"), BRIM_OK);
  assert_int_equal(brim_registry_scan(with_broken, "plugins"), BRIM_OK);
  const char *const override[] = {"model=resnet", "seed=x"};
  const brim_config_request request = {
      .search = search, .search_count = 1, .overrides = override, .override_count = 2, .first_argument = 1};
  brim_config *config = NULL;
  assert_int_equal(brim_config_load(&request, with_broken, &config), BRIM_ELOAD);
  const brim_registry_failure *failure = brim_registry_failure_of(with_broken, BRIM_MODEL, "resnet");
  assert_non_null(failure);
  if (!strstr(brim_error_text(), "model 'resnet' could not be loaded\n  ") ||
      !strstr(brim_error_text(), failure->reason) || !strstr(brim_error_text(), "\nerror: 'seed' must be an integer"))
    fail_msg("%s", brim_error_text());
  brim_registry_free(with_broken);
}

static void auto_is_reference_without_the_cpu_backend(void **state)
{
  brim_registry *core_only = brim_registry_create(brim_core_plugins);
  const brim_config_request request = {.search = search, .search_count = 1};
  brim_config *config = NULL;
  assert_int_equal(brim_config_load(&request, core_only, &config), BRIM_ECONFIG);
  if (!strstr(brim_error_text(), "no option 'reference' in group 'backend'")) fail_msg("%s", brim_error_text());
  brim_registry_free(core_only);
}

static void a_missing_file_cannot_be_loaded(void **state)
{
  brim_config *config = NULL;
  assert_int_equal(load(NULL, "gone.yaml", NULL, &config), BRIM_ELOAD);
  assert_string_equal(brim_error_text(), "cannot open gone.yaml: No such file or directory");
}

/* With more errors than the error text can hold, it has the first ones and the number of the others. */
static void very_many_errors_are_counted(void **state)
{
  char word[200][32];
  const char *override[201] = {0};
  for (size_t i = 0; i < 200; i++) {
    snprintf(word[i], sizeof word[i], "unheard_of_%zu=1", i);
    override[i] = word[i];
  }
  brim_config *config = NULL;
  assert_int_equal(load(NULL, NULL, override, &config), BRIM_ECONFIG);
  assert_true(brim_starts_with(brim_error_text(), "unknown key 'unheard_of_0'\n"));
  const char *last = strstr(brim_error_text(), "\nerror: and ");
  assert_non_null(last);
  assert_true(brim_ends_with(last, " more"));
}

static void groups_list_files_and_plugins(void **state)
{
  const brim_config_request request = {.search = search, .search_count = 1};
  brim_text text = {0};
  assert_int_equal(brim_config_print_groups(&request, registry, &text), BRIM_OK);
  static const char *const want[] = {
      "model\n  cnn         a plugin called cnn\n  deep        configs/model/deep.yaml\n", "dataset\n",
      "experiment\n  fast  configs/experiment/fast.yaml\n",
      "training\n  cnn   configs/training/cnn.yaml\n  long  configs/training/long.yaml\n"};
  for (size_t i = 0; i < sizeof want / sizeof want[0]; i++)
    if (!strstr(text.s, want[i])) fail_msg("no %s in\n%s", want[i], text.s);
  brim_text_release(&text);
}

static void the_schema_lists_every_key(void **state)
{
  brim_text text = {0};
  brim_config_print_schema(NULL, registry, &text);
  static const char *const want[] = {"training.batch_size ", "auto|[1,1048576]",
                                     "samples in a micro-batch; auto: a policy chooses\n",
                                     ("\nmodel=vit: a plugin called vit\n"
                                      "model.depth   integer  12     [1,512]  number of blocks\n"
                                      "model.causal  boolean  false           look back only\n"),
                                     "dataset.path     path     required"};
  for (size_t i = 0; i < sizeof want / sizeof want[0]; i++)
    if (!strstr(text.s, want[i])) fail_msg("no %s in\n%s", want[i], text.s);
  brim_text_clear(&text);
  brim_config *config = NULL;
  assert_int_equal(load(NULL, NULL, NULL, &config), BRIM_OK);
  brim_config_print_schema(config, registry, &text);
  assert_non_null(strstr(text.s, "model.width "));
  assert_null(strstr(text.s, "model.depth "));
  brim_config_free(config);
  brim_text_release(&text);
}

static void old_names_lead_to_keys(void **state)
{
  brim_schema now = {0};
  brim_arena arena = {0};
  const brim_schema_plugins none = {0};
  brim_schema_build(&now, &arena, &none);
  for (const brim_alias *a = brim_aliases; a->old; a++) {
    if (brim_schema_find(&now, a->old)) fail_msg("'%s' is an old name, and a key", a->old);
    if (!brim_schema_find(&now, a->now)) fail_msg("'%s' is the name now of '%s', and no key", a->now, a->old);
  }
  brim_arena_release(&arena);
}

int main(void)
{
  static const struct CMUnitTest others[] = {
      cmocka_unit_test(the_resolved_configuration_is_itself_one),
      cmocka_unit_test(overrides_apply_on_a_resolved_configuration),
      cmocka_unit_test(settings_and_parameters_are_filled),
      cmocka_unit_test(origins_name_file_line_and_argument),
      cmocka_unit_test(an_origin_names_the_interpolation),
      cmocka_unit_test(missing_values_can_be_shown),
      cmocka_unit_test(interpolation_cannot_grow_without_bound),
      cmocka_unit_test(the_first_folder_of_the_search_path_wins),
      cmocka_unit_test(words_have_the_numbers_given),
      cmocka_unit_test(a_plugin_that_cannot_be_loaded_says_why),
      cmocka_unit_test(auto_is_reference_without_the_cpu_backend),
      cmocka_unit_test(a_missing_file_cannot_be_loaded),
      cmocka_unit_test(very_many_errors_are_counted),
      cmocka_unit_test(groups_list_files_and_plugins),
      cmocka_unit_test(the_schema_lists_every_key),
      cmocka_unit_test(old_names_lead_to_keys),
  };
  enum { OTHERS = sizeof others / sizeof others[0] };
  struct CMUnitTest tests[CASE_COUNT + OTHERS];
  for (size_t i = 0; i < CASE_COUNT; i++)
    tests[i] = (struct CMUnitTest){config_cases[i].name, check_case, NULL, NULL, (void *)&config_cases[i]};
  memcpy(tests + CASE_COUNT, others, sizeof others);
  return cmocka_run_group_tests_name("config", tests, setup, teardown);
}
