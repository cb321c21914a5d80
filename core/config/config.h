/* From files and overrides to a filled, checked configuration.
 *
 * Precedence, lowest first: defaults of the tables; the defaults list, depth first, with `_self_` last
 * unless placed; overrides, left to right. The result is checked once against the schema (the core's
 * sections and the tables of the chosen plugins), and every error is reported, not the first.
 *
 * A group's node is a map with the key `id` naming the plugin and that plugin's parameters beside it. A dataset's has
 * the key `option` too, where it was chosen by another name, as fashion_mnist of the plugin idx. */
#ifndef BRIM_CONFIG_CONFIG_H
#define BRIM_CONFIG_CONFIG_H
#include "config/settings.h"
#include "param/yaml.h"
#include "plugin/registry.h"

typedef struct brim_config_request {
  const char *const *search; /* folders, first wins; "configs" of the installation last */
  size_t search_count;
  const char *name;             /* of the root file without .yaml; NULL: "config" */
  const char *file;             /* a resolved configuration (of a run) in place of search and name; or NULL */
  const char *const *overrides; /* "key=value", as typed */
  size_t override_count;
  bool allow_missing;  /* mandatory values without one are "???" in the tree, and no error */
  int first_argument;  /* argument number of overrides[0], for messages; numbers the words after
                          the command, from 1 */
  const int *argument; /* or the number of each; NULL: consecutive */
  /* Where a plugin of `file`'s run was, for the message if it is not found; NULL: not known. Of a group that is a list,
   * `group` is its name. */
  const char *(*plugin_file)(brim_arena *arena, const char *file, const char *group, const char *id);
} brim_config_request;

#define BRIM_CHOICES_MAX 28

typedef struct brim_config_choice {
  const char *group; /* "model"; of a list "policy.robust" */
  const char *name;  /* what people call it: the option of a dataset, else the plugin's id */
  const brim_plugin *plugin;
  const char *file, *version; /* where the plugin comes from; file "": the core's own */
  void *params;               /* filled; params_size bytes */
} brim_config_choice;

typedef struct brim_config {
  brim_arena arena;
  brim_yaml *root; /* resolved: every key of the schema with its value and origin */
  brim_settings settings;
  /* One per group, in the order of brim_config_groups, without a `backbone` that is not chosen; then those of lists,
   * the policies last. */
  brim_config_choice choice[BRIM_CHOICES_MAX];
  size_t choice_count;
  const char *auto_reason; /* backend=auto did not take cuda, which is there, because; NULL: it did, or nobody asked */
  const char *const *overrides; /* copied */
  size_t override_count;
  brim_config_request request; /* copied; its overrides are those above */
  const brim_registry *registry;
} brim_config;

/* ECONFIG with every error found in the text, one after another, each in CONFIG.md's form. */
brim_status brim_config_load(const brim_config_request *request, const brim_registry *registry, brim_config **out);
/* The same configuration with other choices: `word`, as "backend=cpu", take the place of what the command line says of
 * these keys and groups. For a configuration that is not a run's own. */
brim_status brim_config_load_again(const brim_config *config, const char *const *word, size_t count, brim_config **out);
/* For the copy that a run's folder keeps and that is read from any working directory: makes the relative paths of the
 * tree (not of the parameters) absolute, but for run.dir, which a run that is made from this one does not take over. */
brim_status brim_config_anchor_paths(brim_config *config);
/* Compares the configuration that run folder `run` keeps, a text file that anyone can edit, with what it was when the
 * run began. ECONFIG naming every key whose value was changed and changes what is trained. Others (dataset.path,
 * threads, how often a checkpoint is written, ...) may be, and so may the cut of a step into micro-batches. */
brim_status brim_config_check_edits(const brim_config *was, const brim_config *now, const char *run);
void brim_config_free(brim_config *config);
/* The group that plugins of a kind are options of, as "method" of selectors; that of the model, not the backbone. */
const char *brim_config_group_of(uint32_t kind);
/* The choice made for a group; asserts that the group exists. */
const brim_config_choice *brim_config_choice_of(const brim_config *config, const char *group);
/* The model that the chosen one is around (brim_model_ops.wraps); NULL: it is around none. */
const brim_config_choice *brim_config_backbone(const brim_config *config);
/* The optimizer by which the server of a federation moves the global model; NULL: there is none. */
const brim_config_choice *brim_config_server_optimizer(const brim_config *config);
/* The selector of a federation's clients (method); NULL: there are no clients. */
const brim_config_choice *brim_config_method(const brim_config *config);
/* The resolved configuration as YAML, itself a valid configuration for `file`. */
void brim_config_print(const brim_config *config, brim_text *out, bool origins);
/* Groups and their options: files on the search path and plugins of the kind. */
brim_status brim_config_print_groups(const brim_config_request *request, const brim_registry *registry, brim_text *out);
/* Every key with type, default, range and help; `config` NULL: the core's keys and every plugin's. */
void brim_config_print_schema(const brim_config *config, const brim_registry *registry, brim_text *out);
#endif
