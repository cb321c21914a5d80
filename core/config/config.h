/* Loads files and overrides into a filled and checked configuration.
 *
 * Precedence, lowest first: defaults of the tables; the defaults list, depth first, with `_self_` last unless placed;
 * overrides, left to right. The result is checked once against the schema (the core's sections and the tables of the
 * chosen plugins), and all errors are reported, not only the first.
 *
 * A group's node is a map with the key `id`, which names the plugin, and the plugin's parameters. A dataset's node also
 * has the key `option` if it was chosen under another name, as fashion_mnist of the plugin idx. */
#ifndef BRIM_CONFIG_CONFIG_H
#define BRIM_CONFIG_CONFIG_H
#include "config/settings.h"
#include "param/yaml.h"
#include "plugin/registry.h"

typedef struct brim_config_request {
  const char *const *search; /* folders; the first match is used; "configs" of the installation comes last */
  size_t search_count;
  const char *name;             /* name of the root file, without .yaml; NULL: "config" */
  const char *file;             /* a resolved configuration (of a run), used instead of search and name; or NULL */
  const char *const *overrides; /* "key=value", as typed */
  size_t override_count;
  bool allow_missing;  /* mandatory values that are missing become "???" in the tree and cause no error */
  int first_argument;  /* the number of overrides[0] on the command line, for messages; the word after the command is
                          number 1 */
  const int *argument; /* or the number of each override; NULL: they are consecutive */
  /* Finds the file of a plugin at the time when the run of `file` was made, for the message if the plugin is missing;
   * NULL: unknown. For a group that is a list, `group` is the list's name. */
  const char *(*plugin_file)(brim_arena *arena, const char *file, const char *group, const char *id);
} brim_config_request;

#define BRIM_CHOICES_MAX 32

typedef struct brim_config_choice {
  const char *group; /* "model"; for a list "policy.robust" */
  const char *name;  /* the name to display: the option of a dataset, else the plugin's id */
  const brim_plugin *plugin;
  const char *file, *version; /* the plugin's file; "": the core's own */
  void *params;               /* filled; params_size bytes */
} brim_config_choice;

typedef struct brim_config {
  brim_arena arena;
  brim_yaml *root; /* the resolved configuration: every key of the schema with its value and origin */
  brim_settings settings;
  /* One per group, in the order of brim_config_groups, without an unused `backbone`; then those of lists, the policies
   * last. */
  brim_config_choice choice[BRIM_CHOICES_MAX];
  size_t choice_count;
  const char *auto_reason; /* why backend=auto did not choose cuda although brim was built with it; NULL: it did, or the
                              user chose a backend */
  const char *const *overrides; /* copied */
  size_t override_count;
  brim_config_request request; /* a copy; its overrides are the ones above */
  const brim_registry *registry;
} brim_config;

/* ECONFIG, with all errors in the error text, each with its position and the allowed or probably intended value. */
brim_status brim_config_load(const brim_config_request *request, const brim_registry *registry, brim_config **out);
/* Loads the same configuration with other choices: each `word`, such as "backend=cpu", replaces the words of the
 * command line for its key or group. For a configuration that is not read from a run. */
brim_status brim_config_load_again(const brim_config *config, const char *const *word, size_t count, brim_config **out);
/* Makes the relative paths of the tree (not of the parameters) absolute, for the copy in a run's folder, which later
 * commands read from any working directory. Leaves run.dir alone, because runs that are made from this one do not
 * inherit it. */
brim_status brim_config_anchor_paths(brim_config *config);
/* Compares the configuration in the run folder `run`, which users may have edited, with its state at the start of the
 * run. ECONFIG, naming every edited key that affects training. Other keys (dataset.path, threads, the checkpoint
 * interval, ...) may be edited, and so may the division of a step into micro-batches. */
brim_status brim_config_check_edits(const brim_config *was, const brim_config *now, const char *run);
void brim_config_free(brim_config *config);
/* The group whose options are plugins of this kind, such as "method" for selectors; for models "model", not
 * "backbone". */
const char *brim_config_group_of(uint32_t kind);
/* The choice for a group; NULL: none. */
const brim_config_choice *brim_config_find_choice(const brim_config *config, const char *group);
/* The same for a group that has one; asserts that. */
const brim_config_choice *brim_config_choice_of(const brim_config *config, const char *group);
/* The model that the chosen one wraps (brim_model_ops.wraps); NULL: none. */
const brim_config_choice *brim_config_backbone(const brim_config *config);
/* The optimizer that a federation's server uses on the global model; NULL: there is none. */
const brim_config_choice *brim_config_server_optimizer(const brim_config *config);
/* How a federation's server combines updates; NULL: with the default aggregator, fedavg. */
const brim_config_choice *brim_config_aggregator(const brim_config *config);
/* The selector of a federation's clients (method); NULL: not a federation. */
const brim_config_choice *brim_config_method(const brim_config *config);
/* Prints the resolved configuration as YAML, which is itself a valid configuration for `file`. */
void brim_config_print(const brim_config *config, brim_text *out, bool origins);
/* Prints groups and their options: files on the search path and plugins of the kind. */
brim_status brim_config_print_groups(const brim_config_request *request, const brim_registry *registry, brim_text *out);
/* Prints every key with type, default, range and help. With `config` NULL, prints the keys of the core and of every
 * plugin. */
void brim_config_print_schema(const brim_config *config, const brim_registry *registry, brim_text *out);
#endif
