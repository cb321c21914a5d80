/* Tests which plugins the loader accepts, its error for each kind of invalid one, and the registry's search. The
 * plugins are built next to this test; files that no compiler makes are cut or patched from the valid one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <elf.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/install.h"
#include "base/text.h"
#include "builtin/builtin.h"
#include "param/value.h"
#include "plugin/loader.h"
#include "plugin/registry.h"

#define FILE_BYTES_MAX (8u << 20) /* the largest plugin, with the code that a sanitizer adds */

static char folder[256]; /* this test's folder, removed at its end */

static const char *in_folder(const char *name)
{
  static char path[4][512];
  static unsigned next;
  char *out = path[next++ % 4];
  snprintf(out, sizeof path[0], "%s/%s", folder, name);
  return out;
}

/* Writes `bytes` to a file in the test's folder, and creates missing folders. */
static const char *write_file(const char *name, const void *data, size_t bytes)
{
  const char *path = in_folder(name);
  char part[512];
  for (const char *slash = strchr(path + strlen(folder) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
    assert_true(mkdir(part, 0700) == 0 || errno == EEXIST);
  }
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(data, 1, bytes, file), bytes);
  assert_int_equal(fclose(file), 0);
  return path;
}

static unsigned char *read_plugin(const char *name, size_t *bytes)
{
  char path[512];
  snprintf(path, sizeof path, ABI_PLUGINS "/%s.so", name);
  FILE *file = fopen(path, "rb");
  assert_non_null(file);
  unsigned char *data = malloc(FILE_BYTES_MAX);
  assert_non_null(data);
  *bytes = fread(data, 1, FILE_BYTES_MAX, file);
  assert_true(*bytes > sizeof(Elf64_Ehdr) && *bytes < FILE_BYTES_MAX);
  fclose(file);
  return data;
}

static const char *copy_plugin(const char *name, const char *to)
{
  size_t bytes;
  unsigned char *data = read_plugin(name, &bytes);
  const char *path = write_file(to, data, bytes);
  free(data);
  return path;
}

/* Captures standard error until captured(). */
static FILE *capture;
static int stderr_before;
static void capture_start(void)
{
  fflush(stderr);
  capture = tmpfile();
  assert_non_null(capture);
  stderr_before = dup(STDERR_FILENO);
  dup2(fileno(capture), STDERR_FILENO);
}
static const char *captured(void)
{
  static char text[4096];
  dup2(stderr_before, STDERR_FILENO);
  close(stderr_before);
  rewind(capture);
  text[fread(text, 1, sizeof text - 1, capture)] = '\0';
  fclose(capture);
  return text;
}

static void refused(const char *path, const char *reason)
{
  const brim_module *module = NULL;
  assert_int_equal(brim_loader_load(path, &module), BRIM_ELOAD);
  assert_null(module);
  assert_string_equal(brim_error_text(), reason);
}

static void a_good_plugin_is_loaded_with_all_it_declares(void **state)
{
  const brim_module *module = NULL;
  assert_int_equal(brim_loader_load(ABI_PLUGINS "/good.so", &module), BRIM_OK);
  assert_string_equal(module->name, "abi-test");
  assert_string_equal(module->plugins[0]->id, "good");
  assert_int_equal(module->plugins[1]->kind, BRIM_DATASET);
  const brim_module *again = NULL;
  assert_int_equal(brim_loader_load(ABI_PLUGINS "/../plugins/good.so", &again), BRIM_OK);
  assert_ptr_equal(module, again);
}

static void a_backend_is_loaded(void **state)
{
  const brim_module *module = NULL;
  assert_int_equal(brim_loader_load(ABI_PLUGINS "/backend.so", &module), BRIM_OK);
  assert_int_equal(module->plugins[0]->kind, BRIM_BACKEND);
  /* accepts the table of ABI 1.3 */
  assert_int_equal(brim_loader_load(ABI_PLUGINS "/backend_older.so", &module), BRIM_OK);
  assert_int_equal(module->plugins[0]->kind, BRIM_BACKEND);
}

static void a_policy_is_loaded(void **state)
{
  const brim_module *module = NULL;
  assert_int_equal(brim_loader_load(ABI_PLUGINS "/policy.so", &module), BRIM_OK);
  assert_int_equal(module->plugins[0]->kind, BRIM_POLICY);
  /* accepts the table of ABI 1.2 */
  assert_int_equal(brim_loader_load(ABI_PLUGINS "/policy_older.so", &module), BRIM_OK);
  assert_int_equal(module->plugins[0]->kind, BRIM_POLICY);
}

static void a_plugin_in_cpp_is_loaded(void **state)
{
  const brim_module *module = NULL;
  assert_int_equal(brim_loader_load(ABI_PLUGINS "/good_cpp.so", &module), BRIM_OK);
  const brim_plugin *plugin = module->plugins[0];
  assert_string_equal(plugin->id, "in_cpp");
  const struct {
    int64_t depth;
    const char *prefix;
  } params = {3, "layer"};
  void *self = NULL;
  assert_int_equal(plugin->create(&params, &self), BRIM_OK);
  assert_non_null(self);
  plugin->destroy(self);
}

#define SDK "is built for another version of the SDK\n"
#define TABLE "model/good: the table of parameters is wrong: "
#define REBUILD "\nrebuild it with this brim's headers"
static const struct {
  const char *file, *reason;
} wrong[] = {
    {"magic", "is not a brim plugin: magic is 0x12345678, expected 0x4D495242"},
    {"module_size", SDK "size of brim_module: plugin 40, this brim 48 bytes" REBUILD},
    {"abi_newer", SDK "abi: plugin 1.14, this brim 1.13 (a plugin may be older than brim, but not newer)" REBUILD},
    {"abi_before", SDK "abi: plugin 0.1, this brim 1.13 (the major versions must be equal)" REBUILD},
    {"abi_other", SDK "abi: plugin 7.13, this brim 1.13 (the major versions must be equal)\n"
                      "abi tag: plugin 'lp64 dims8', this brim 'lp64 dims6'\n"
                      "size of brim_module: plugin 64, this brim 48 bytes" REBUILD},
    {"tag_null", SDK "abi tag: plugin none, this brim 'lp64 dims6'" REBUILD},
    {"name_null", "the module's name is missing"},
    {"version_empty", "the module's version is missing"},
    {"plugins_null", "the module's list of plugins is NULL"},
    {"plugins_none", "the module's list of plugins is empty"},
    {"entry_none", "is not a brim plugin: it has no function brim_module_entry\n"
                   "end the plugin with BRIM_MODULE(name, version, plugins)"},
    {"entry_null", "is not a brim plugin: brim_module_entry returned NULL"},
    {"plugin_size", "plugin 1: size is 56, must be 64: sizeof(brim_plugin)"},
    {"kind_unknown", "plugin 1 good: kind 42 is unknown to this version of brim"},
    {"id_null", "plugin 1: id is NULL"},
    {"id_bad", "model/ResNet-18: id must be 1 to 64 characters from a-z, 0-9 and _"},
    {"help_null", "model/good: help is missing: describe the plugin in one line"},
    {"help_lines", "model/good: help must be one line"},
    {"ops_null", "model/good: ops is NULL"},
    {"ops_size", "model/good: ops.size is 4, must be 32: sizeof(brim_model_ops)\n"
                 "rebuild a plugin that was built for an older version of brim"},
    {"ops_build_null", "model/good: ops.build is NULL, but a model needs it"},
    {"ops_read_null", "dataset/good: ops.read is NULL, but a dataset needs it"},
    {"table_default", TABLE "parameter 'width': its default must be in [1,64], got 65"},
    {"table_width", TABLE "parameter 'width': a field of type boolean is 1 bytes wide, not 8"},
    {"table_outside", TABLE "parameter 'rate': its field at offset 8 lies outside the struct of 8 bytes"},
    {"twice", "model/good: is listed twice"},
    {"backend_real", "backend/idle: ops.real is 3, must be BRIM_DTYPE_F32 or BRIM_DTYPE_F64"},
    {"backend_alignment", "backend/idle: ops.alignment is 48, must be a power of two of at most 2097152"},
    {"backend_run", "backend/idle: the kernel 'relu' has no run function"},
    {"backend_empty", "backend/idle: ops.kernels is empty"},
    {"policy_empty", "policy/mine: ops is empty: a policy needs at least one function"},
    {"policy_size", "policy/mine: ops.size is 24, must be 56: sizeof(brim_policy_ops)\n"
                    "rebuild a plugin that was built for an older version of brim"},
    {"symbol", "needs the symbol 'brim_of_next_year', which neither brim nor a library of the plugin defines\n"
               "link the plugin with the library that defines it; a plugin can call only those functions of brim that "
               "brim/*.h declares"},
    {"library", "needs the library libbrim_abi_gone.so, which is not installed"},
};

static void each_wrong_plugin_is_refused_with_its_own_message(void **state)
{
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    char path[512];
    snprintf(path, sizeof path, ABI_PLUGINS "/%s.so", wrong[i].file);
    refused(path, wrong[i].reason);
  }
}

static void files_that_are_not_shared_objects_are_refused_with_a_reason(void **state)
{
  refused(in_folder("none.so"), "cannot be opened: No such file or directory");
  refused(write_file("empty.so", "", 0), "is empty");
  refused(write_file("text.so", "#!/bin/sh\n", 10), "is not a shared object: it does not start with an ELF header");
  refused(write_file("tiny.so", "\177E", 2), "is truncated: it has 2 bytes, its ELF header alone takes 64");
  refused(write_file("two.so", "MZ", 2), "is not a shared object: it does not start with an ELF header");
  refused(folder, "is not a regular file");
}

static void a_truncated_plugin_is_refused_wherever_it_is_cut(void **state)
{
  size_t bytes;
  unsigned char *data = read_plugin("good", &bytes);
  char reason[128];
  snprintf(reason, sizeof reason, "is truncated: it has 100 bytes, which do not hold its list of segments");
  refused(write_file("cut.so", data, 100), reason);
  const size_t cut[] = {bytes / 4, bytes / 2, bytes - 1};
  for (size_t i = 0; i < 3; i++) {
    snprintf(reason, sizeof reason, "is truncated: it has %zu of %zu bytes", cut[i], bytes);
    refused(write_file("cut.so", data, cut[i]), reason);
  }
  free(data);
}

static void a_plugin_for_another_machine_is_refused(void **state)
{
  size_t bytes;
  unsigned char *data = read_plugin("good", &bytes);
  Elf64_Ehdr header;
  const brim_module *module = NULL;

  memcpy(&header, data, sizeof header);
  header.e_machine = EM_S390;
  memcpy(data, &header, sizeof header);
  assert_int_equal(brim_loader_load(write_file("other.so", data, bytes), &module), BRIM_ELOAD);
  assert_true(
      brim_starts_with(brim_error_text(), "is built for another machine (IBM Z, ELF machine 22); this brim is for "));

  header.e_ident[EI_CLASS] = ELFCLASS32;
  memcpy(data, &header, sizeof header);
  assert_int_equal(brim_loader_load(write_file("other.so", data, bytes), &module), BRIM_ELOAD);
  assert_true(brim_starts_with(brim_error_text(), "is built for another machine (32-bit, "));
  free(data);
}

static void an_object_file_is_refused_with_how_to_link_it(void **state)
{
  size_t bytes;
  unsigned char *data = read_plugin("good", &bytes);
  Elf64_Ehdr header;
  memcpy(&header, data, sizeof header);
  header.e_type = ET_REL;
  memcpy(data, &header, sizeof header);
  refused(write_file("object.so", data, bytes), "is an object file, not a shared object: link it with -shared");
  free(data);
}

/* The registry. */

static brim_registry *registry_of(const char *first, const char *second)
{
  brim_registry *registry = brim_registry_create(brim_core_plugins);
  assert_int_equal(brim_registry_scan(registry, in_folder(first)), BRIM_OK);
  if (second) assert_int_equal(brim_registry_scan(registry, in_folder(second)), BRIM_OK);
  return registry;
}

static void a_plugin_is_loaded_only_when_it_is_asked_for(void **state)
{
  copy_plugin("good", "lazy/model/good.so");
  copy_plugin("marked", "lazy/model/marked.so");
  brim_registry *registry = registry_of("lazy", NULL);
  const brim_registry_entry *entry = brim_registry_find(registry, BRIM_MODEL, "good");
  assert_non_null(entry);
  assert_string_equal(entry->file, in_folder("lazy/model/good.so"));
  assert_null(getenv("BRIM_TEST_MARKED_LOADED"));
  assert_non_null(brim_registry_find(registry, BRIM_MODEL, "marked"));
  assert_non_null(getenv("BRIM_TEST_MARKED_LOADED"));
  brim_registry_free(registry);
}

static void a_plugin_is_found_in_a_file_of_another_name(void **state)
{
  copy_plugin("other", "bundle/anything.so");
  brim_registry *registry = registry_of("bundle", NULL);
  assert_non_null(brim_registry_find(registry, BRIM_DATASET, "other"));
  assert_null(brim_registry_find(registry, BRIM_DATASET, "nowhere"));
  assert_null(brim_registry_failure_of(registry, BRIM_DATASET, "nowhere"));
  brim_registry_free(registry);
}

static void the_first_folder_wins_with_one_warning(void **state)
{
  copy_plugin("good", "first/bundle.so");
  copy_plugin("good", "second/model/good.so");
  brim_registry *registry = registry_of("first", "second");
  capture_start();
  const brim_registry_entry *entry = brim_registry_find(registry, BRIM_MODEL, "good");
  const size_t count = brim_registry_count(registry); /* loads the other file, which also contains dataset/good */
  const char *said = captured();
  assert_string_equal(entry->file, in_folder("first/bundle.so"));
  assert_ptr_equal(entry, brim_registry_find(registry, BRIM_MODEL, "good"));
  char expected[2048];
  int length = 0;
  for (int i = 0; i < 2; i++)
    length += snprintf(expected + length, sizeof expected - (size_t)length,
                       "warning: %s/good is taken from %s; the one in %s is hidden\n", i ? "dataset" : "model",
                       in_folder("first/bundle.so"), in_folder("second/model/good.so"));
  assert_string_equal(said, expected);
  size_t good = 0;
  for (size_t i = 0; i < count; i++) good += strcmp(brim_registry_at(registry, i)->plugin->id, "good") == 0;
  assert_int_equal(good, 2); /* model and dataset, once each */
  assert_null(brim_registry_at(registry, count));
  brim_registry_free(registry);
}

static void within_a_folder_the_file_of_the_name_wins_in_any_order(void **state)
{
  copy_plugin("good", "within/a_bundle.so");
  copy_plugin("good", "within/model/good.so");
  for (int all_first = 0; all_first < 2; all_first++) {
    brim_registry *registry = registry_of("within", NULL);
    capture_start();
    if (all_first) brim_registry_count(registry);
    const brim_registry_entry *entry = brim_registry_find(registry, BRIM_MODEL, "good");
    captured();
    assert_string_equal(entry->file, in_folder("within/model/good.so"));
    brim_registry_free(registry);
  }
}

static void a_broken_plugin_is_remembered_and_never_replaced_by_another(void **state)
{
  write_file("broken/model/good.so", "", 0);
  copy_plugin("good", "intact/model/good.so");
  brim_registry *registry = registry_of("broken", "intact");
  assert_null(brim_registry_find(registry, BRIM_MODEL, "good"));
  const brim_registry_failure *failure = brim_registry_failure_of(registry, BRIM_MODEL, "good");
  assert_non_null(failure);
  assert_string_equal(failure->file, in_folder("broken/model/good.so"));
  assert_string_equal(failure->reason, "is empty");
  assert_int_equal(brim_registry_failure_count(registry), 1);
  assert_ptr_equal(brim_registry_failure_at(registry, 0), failure);
  assert_non_null(brim_registry_find(registry, BRIM_DATASET, "good")); /* found in the intact file */
  brim_registry_free(registry);
}

static void entries_are_sorted_by_kind_and_id_with_the_core_s_own(void **state)
{
  copy_plugin("other", "sorted/1.so");
  copy_plugin("good", "sorted/2.so");
  brim_registry *registry = registry_of("sorted", NULL);
  const size_t count = brim_registry_count(registry);
  size_t core = 0;
  for (size_t i = 0; i < count; i++) {
    const brim_registry_entry *entry = brim_registry_at(registry, i);
    core += entry->module == NULL;
    if (i == 0) continue;
    const brim_plugin *before = brim_registry_at(registry, i - 1)->plugin;
    assert_true(before->kind < entry->plugin->kind ||
                (before->kind == entry->plugin->kind && strcmp(before->id, entry->plugin->id) < 0));
  }
  size_t expected = 0;
  while (brim_core_plugins[expected]) expected++;
  assert_int_equal(core, expected);
  brim_registry_free(registry);
}

static void a_missing_folder_or_file_is_an_error_if_named_and_a_warning_if_in_the_environment(void **state)
{
  brim_registry *registry = (brim_registry *)state;
  const char *path = in_folder("missing");
  assert_int_equal(brim_registry_open(brim_core_plugins, &path, 1, &registry), BRIM_ELOAD);
  assert_null(registry);
  char expected[1024];
  snprintf(expected, sizeof expected, "the plugin folder '%s' cannot be read: No such file or directory", path);
  assert_string_equal(brim_error_text(), expected);

  setenv("BRIM_PLUGIN_PATH", in_folder("missing"), 1);
  capture_start();
  const brim_status status = brim_registry_open(brim_core_plugins, NULL, 0, &registry);
  const char *said = captured();
  unsetenv("BRIM_PLUGIN_PATH");
  assert_int_equal(status, BRIM_OK);
  snprintf(expected, sizeof expected,
           "warning: BRIM_PLUGIN_PATH: the plugin folder '%s' cannot be read: No such file or directory\n", path);
  assert_string_equal(said, expected);
  brim_registry_free(registry);
}

static void a_file_named_by_path_must_load(void **state)
{
  brim_registry *registry = NULL;
  const char *path = write_file("named.so", "", 0);
  assert_int_equal(brim_registry_open(brim_core_plugins, &path, 1, &registry), BRIM_ELOAD);
  char expected[1024];
  snprintf(expected, sizeof expected, "the plugin '%s' is empty", path);
  assert_string_equal(brim_error_text(), expected);

  path = copy_plugin("other", "named.so");
  assert_int_equal(brim_registry_open(brim_core_plugins, &path, 1, &registry), BRIM_OK);
  assert_string_equal(brim_registry_find(registry, BRIM_MODEL, "other")->file, path);
  brim_registry_free(registry);
}

static void paths_come_before_the_environment_and_that_before_the_installation(void **state)
{
  copy_plugin("other", "order/path/model/other.so");
  copy_plugin("other", "order/environment/model/other.so");
  copy_plugin("good", "order/environment/model/good.so");
  copy_plugin("good", "order/later/model/good.so");
  char list[1024];
  snprintf(list, sizeof list, ":%s::%s:", in_folder("order/environment"), in_folder("order/later"));
  setenv("BRIM_PLUGIN_PATH", list, 1);
  const char *path = in_folder("order/path");
  brim_registry *registry = NULL;
  capture_start();
  const brim_status status = brim_registry_open(brim_core_plugins, &path, 1, &registry);
  const brim_registry_entry *other = status == BRIM_OK ? brim_registry_find(registry, BRIM_MODEL, "other") : NULL;
  const brim_registry_entry *good = status == BRIM_OK ? brim_registry_find(registry, BRIM_MODEL, "good") : NULL;
  captured();
  unsetenv("BRIM_PLUGIN_PATH");
  assert_int_equal(status, BRIM_OK);
  assert_string_equal(other->file, in_folder("order/path/model/other.so"));
  assert_string_equal(good->file, in_folder("order/environment/model/good.so"));
  brim_registry_free(registry);
}

static void a_file_listed_twice_is_one_file(void **state)
{
  copy_plugin("good", "same/model/good.so");
  assert_int_equal(symlink("same", in_folder("same_again")), 0);
  brim_registry *registry = registry_of("same", "same_again");
  capture_start();
  brim_registry_count(registry);
  assert_string_equal(captured(), "");
  brim_registry_free(registry);
}

static void the_installation_is_found_from_the_build_tree(void **state)
{
  char path[512], small[8];
  assert_true(brim_install_dir(path, sizeof path, BRIM_INSTALL_PLUGINS));
  char *expected = realpath(BRIM_BUILD_DIR "/" BRIM_INSTALL_PLUGINS, NULL);
  assert_string_equal(path, expected);
  free(expected);
  assert_false(brim_install_dir(path, sizeof path, "lib/brim/nothing"));
  assert_string_equal(path, "");
  assert_false(brim_install_dir(small, sizeof small, BRIM_INSTALL_PLUGINS));
}

static void the_core_s_own_tables_pass_the_check_for_plugins(void **state)
{
  for (size_t i = 0; brim_core_plugins[i]; i++) {
    const brim_plugin *plugin = brim_core_plugins[i];
    assert_non_null(brim_kind_name(plugin->kind));
    assert_int_equal(plugin->size, sizeof(brim_plugin));
    if (brim_value_check_table(plugin->params, plugin->params_size) != BRIM_OK)
      fail_msg("%s: %s", plugin->id, brim_error_text());
  }
}

static void kinds_and_their_names_agree(void **state)
{
  assert_string_equal(brim_kind_name(BRIM_BACKEND), "backend");
  assert_int_equal(brim_kind_by_name("backend"), BRIM_BACKEND);
  assert_int_equal(brim_kind_by_name("weather"), 0);
  assert_null(brim_kind_name(42));
}

static int make_folder(void **state)
{
  const char *parent = getenv("TMPDIR");
  char made[128];
  snprintf(made, sizeof made, "%s/brim-abi-XXXXXX", parent && parent[0] ? parent : "/tmp");
  if (!mkdtemp(made)) return -1;
  snprintf(folder, sizeof folder, "%s", made);
  unsetenv("BRIM_PLUGIN_PATH");
  unsetenv("BRIM_TEST_MARKED_LOADED");
  return 0;
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *where)
{
  (void)info;
  (void)type;
  (void)where;
  return remove(path);
}

static int remove_folder(void **state)
{
  return nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_good_plugin_is_loaded_with_all_it_declares),
      cmocka_unit_test(a_backend_is_loaded),
      cmocka_unit_test(a_policy_is_loaded),
      cmocka_unit_test(a_plugin_in_cpp_is_loaded),
      cmocka_unit_test(each_wrong_plugin_is_refused_with_its_own_message),
      cmocka_unit_test(files_that_are_not_shared_objects_are_refused_with_a_reason),
      cmocka_unit_test(a_truncated_plugin_is_refused_wherever_it_is_cut),
      cmocka_unit_test(a_plugin_for_another_machine_is_refused),
      cmocka_unit_test(an_object_file_is_refused_with_how_to_link_it),
      cmocka_unit_test(a_plugin_is_loaded_only_when_it_is_asked_for),
      cmocka_unit_test(a_plugin_is_found_in_a_file_of_another_name),
      cmocka_unit_test(the_first_folder_wins_with_one_warning),
      cmocka_unit_test(within_a_folder_the_file_of_the_name_wins_in_any_order),
      cmocka_unit_test(a_broken_plugin_is_remembered_and_never_replaced_by_another),
      cmocka_unit_test(entries_are_sorted_by_kind_and_id_with_the_core_s_own),
      cmocka_unit_test(a_missing_folder_or_file_is_an_error_if_named_and_a_warning_if_in_the_environment),
      cmocka_unit_test(a_file_named_by_path_must_load),
      cmocka_unit_test(paths_come_before_the_environment_and_that_before_the_installation),
      cmocka_unit_test(a_file_listed_twice_is_one_file),
      cmocka_unit_test(the_installation_is_found_from_the_build_tree),
      cmocka_unit_test(the_core_s_own_tables_pass_the_check_for_plugins),
      cmocka_unit_test(kinds_and_their_names_agree),
  };
  return cmocka_run_group_tests_name("abi", tests, make_folder, remove_folder);
}
