/* Composition: merges the root file, its defaults list and the options chosen for groups into one tree.
 *
 * Defaults lists are walked depth first; a file's own keys are merged at the position of `_self_`, by default last. An
 * entry is `_self_`, `group: option`, or the name of another file. An option is the file GROUP/OPTION.yaml on the
 * search path, or else the id of a plugin of the group's kind. As in Hydra, a choice for a group by the command line or
 * a later defaults list takes the place of the first one in the order; a choice for a group that no list names comes
 * last.
 *
 * Unlike in Hydra, the values that a file sets for a group belong to the option that the defaults lists have named last
 * up to that point. If another option is chosen in the end, keys of the plugin are left out (an lr written for adamw is
 * not meant for lion), and so are other keys that the chosen option sets too. Choosing the option that a defaults list
 * already names changes nothing.
 *
 * The group policy is a list: several options are chosen, separated by commas. Its node has the plugins' ids in `id`,
 * and the parameters of each below its id. */
#ifndef BRIM_CONFIG_COMPOSE_H
#define BRIM_CONFIG_COMPOSE_H
#include "config/config.h"
#include "config/override.h"
#include "config/schema.h"

/* A configuration file, read once. */
typedef struct brim_source {
  const char *path;
  brim_yaml *node;     /* NULL: the file could not be read */
  const char *problem; /* the reason, in that case */
  brim_status status;
} brim_source;

/* The choice for a group, and its origin. */
typedef struct brim_chosen {
  const char *group, *option; /* option NULL: none; for a list: names separated by ',' */
  brim_yaml_origin origin;
  const brim_override *forced; /* the command line's choice; NULL: the defaults lists' */
  const char *appended;        /* names that the command line appends to a list; NULL: none */
  brim_yaml_origin appended_origin;
  const char *met; /* the option that this walk has found last in the defaults lists; "": none */
  brim_yaml_origin met_origin;
  bool placed;                              /* the group is in the tree of this walk */
  const brim_yaml *content;                 /* the values of the option; NULL: not placed yet */
  const char *resolved, *appended_resolved; /* the names with interpolations replaced; NULL: not yet */
  bool broken; /* its option was not found or not read, so the group cannot be checked further */
} brim_chosen;

/* A value of a file that was left out, because it belongs to an option that another one replaced. */
typedef struct brim_left_out {
  const char *path, *note; /* "optimizer.lr"; logged if nothing else sets it */
} brim_left_out;

typedef struct brim_composition {
  brim_arena *arena;
  const brim_config_request *request;
  const brim_registry *registry;
  brim_problems problems;
  const brim_override *override; /* overrides of the command line, in their order */
  size_t override_count;
  brim_problems notes;        /* logged when the configuration is complete, one line each */
  brim_yaml *root, *previous; /* previous: the tree of the walk before; NULL: this is the first walk */
  bool broken;                /* the root file could not be read */
  bool unsettled;             /* in this walk, an interpolated option gave another result than in the walk before */
  bool group_broken[BRIM_GROUPS_MAX]; /* for each of brim_config_groups: its plugin is not known */
  brim_chosen **chosen;
  size_t chosen_count, chosen_room;
  brim_source **source;
  size_t source_count, source_room;
  brim_left_out *left_out; /* in this walk */
  size_t left_out_count, left_out_room;
  const char *open[32]; /* files that are being merged, to find cycles */
  size_t open_count;
  const char *auto_backend; /* the backend that `auto` means; NULL: not determined yet */
  const char *auto_reason;  /* why `auto` is not cuda, although brim was built with it; NULL: it is cuda, or not
                               determined yet */
} brim_composition;

/* Whether `key` is a group: one of the core's, or a folder on the search path (unless a top-level key has that
 * name). */
bool brim_compose_is_group(const brim_composition *c, const char *key);
/* Whether several options of the group can be chosen. */
bool brim_compose_is_list(const char *group);
/* The kind of plugin of a group; 0 if it has only files. */
uint32_t brim_compose_group_kind(const char *group);
/* Returns the choice in a scalar, or, for a group that is a list, in a list of scalars; NULL for any other node. */
const char *brim_compose_option_text(const brim_composition *c, const char *group, const brim_yaml *value);
/* Records a choice of the command line, or options that it appends; the override must outlive the composition. */
void brim_compose_choose(brim_composition *c, const brim_override *override);
/* Builds c->root. Adds errors to c->problems. */
void brim_compose(brim_composition *c);
/* Called after brim_compose() and the overrides: notes values of a file that were left out because they belong to an
 * option that was not chosen, unless another file or an override sets the value. */
void brim_compose_note_left_out(brim_composition *c);
/* Returns NULL if nothing is chosen. */
brim_chosen *brim_compose_chosen(const brim_composition *c, const char *group);
/* Whether the path is below a group whose option was not found, so that it cannot be checked. */
bool brim_compose_is_broken(const brim_composition *c, const char *path);
/* The default of a group that is a list; NULL: none. */
const char *brim_compose_fallback(const brim_composition *c, const char *group);

/* Whether the plugin is a model that wraps another. */
bool brim_is_wrapper(const brim_plugin *plugin);
/* The options of a group, sorted: files on the search path and plugins. Loads every plugin. */
size_t brim_compose_options(const brim_composition *c, const char *group, const char ***out);
/* The path of an option's file; NULL if there is none. */
const char *brim_compose_option_file(const brim_composition *c, const char *group, const char *option);
/* Whether the option exists; for a group that is a list, whether all of them do. NULL: false. */
bool brim_compose_has_options(const brim_composition *c, const char *group, const char *names);
/* Returns a file of the search path, which is read only once; NULL, with a problem added, if it is not a readable
 * map. */
brim_yaml *brim_compose_source(brim_composition *c, const char *path);
/* Adds "no option ..." with the available ones, or the reason why the plugin of that name could not be loaded. Mentions
 * `origin` if it is not the command line. */
void brim_compose_no_option(brim_composition *c, const char *group, const char *option, const brim_yaml_origin *origin);
/* The same for a plugin that an option names. */
void brim_compose_no_plugin(brim_composition *c, const char *group, const char *id, const brim_yaml_origin *origin);
/* Adds the line "available: ... searched: ..." to the last problem, and before it a suggestion for `written`, unless
 * NULL. */
void brim_compose_hint_available(brim_composition *c, const char *group, const char *written);
/* The backend that `backend=auto` means on this machine: the backend of the requested device, else cuda if it has a
 * device, else cpu, else reference. */
const char *brim_compose_auto_backend(brim_composition *c);
#endif
