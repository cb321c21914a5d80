/* Composition: the root file, its defaults list, and the options chosen for groups become one tree.
 *
 * A defaults list is walked depth first; a file's own keys are merged where `_self_` stands, last unless placed. An
 * entry is `_self_`, `group: option`, or the name of another file. An option is the file GROUP/OPTION.yaml on the
 * search path, or else the id of a plugin of the group's kind. As in Hydra, a choice for a group made by the command
 * line or by a later defaults list takes the place of the first one in the order; a choice for a group that no list
 * names comes last.
 *
 * Unlike in Hydra, the values that a file sets for a group belong to the option that the defaults lists have named last
 * up to there. If another option is chosen in the end, keys of the plugin are left out (an lr that was written for
 * adamw is not meant for lion), and so are other keys that the chosen option sets too. Choosing the option that a
 * defaults list names anyway changes nothing.
 *
 * Of a group that is a list, policy, several options are chosen, and stand in a choice joined by commas. Its node has
 * the plugins' ids in `id`, and the parameters of each below its id. */
#ifndef BRIM_CONFIG_COMPOSE_H
#define BRIM_CONFIG_COMPOSE_H
#include "config/config.h"
#include "config/override.h"
#include "config/schema.h"

/* A file of configuration, read once. */
typedef struct brim_source {
  const char *path;
  brim_yaml *node;     /* NULL: could not be read */
  const char *problem; /* then why */
  brim_status status;
} brim_source;

/* What is chosen for a group, and by whom. */
typedef struct brim_chosen {
  const char *group, *option; /* option NULL: none; of a list: names joined by ',' */
  brim_yaml_origin origin;
  const brim_override *forced; /* the command line's choice; NULL: the defaults lists' */
  const char *appended;        /* names that the command line adds to a list; NULL: none */
  brim_yaml_origin appended_origin;
  const char *met; /* the option that the defaults lists named last in this walk; "": none */
  brim_yaml_origin met_origin;
  bool placed;                              /* in the tree of this walk */
  const brim_yaml *content;                 /* what the option says, once it is placed; NULL: not yet */
  const char *resolved, *appended_resolved; /* the names with interpolations replaced; NULL: not yet */
  bool broken; /* its option was not found or not read: nothing more can be said about the group */
} brim_chosen;

/* A value of a file that belongs to an option in whose place another was chosen. */
typedef struct brim_left_out {
  const char *path, *note; /* "optimizer.lr"; logged if nothing else sets it */
} brim_left_out;

typedef struct brim_composition {
  brim_arena *arena;
  const brim_config_request *request;
  const brim_registry *registry;
  brim_problems problems;
  brim_problems notes; /* told when the configuration is made, one line each */
  brim_yaml *root;
  bool broken;                        /* the root file could not be read */
  bool unsettled;                     /* in this walk, an interpolated option came out other than before */
  bool group_broken[BRIM_GROUPS_MAX]; /* for each of brim_config_groups: its plugin is not known */
  brim_chosen **chosen;
  size_t chosen_count, chosen_room;
  brim_source **source;
  size_t source_count, source_room;
  brim_left_out *left_out; /* in this walk */
  size_t left_out_count, left_out_room;
  const char *open[32]; /* files that are being merged, for cycles */
  size_t open_count;
  const char *auto_backend; /* what `auto` means; NULL: not asked yet */
  const char *auto_reason;  /* why that is not cuda, which brim was built with; NULL: it is, or nobody asked */
} brim_composition;

/* Is `key` a group: one of the core's, or a folder on the search path (unless a top-level key has that name)? */
bool brim_compose_is_group(const brim_composition *c, const char *key);
/* Is it a group of which several options are chosen? */
bool brim_compose_is_list(const char *group);
/* The kind of plugin of a group; 0 if it has only files. */
uint32_t brim_compose_group_kind(const char *group);
/* What is chosen by a scalar, or for a group that is a list also by a list of them; NULL if it is neither. */
const char *brim_compose_option_text(const brim_composition *c, const char *group, const brim_yaml *value);
/* Records the command line's choice, or what it appends to one; the override must live as long as the composition. */
void brim_compose_choose(brim_composition *c, const brim_override *override);
/* Builds c->root. What goes wrong is added to c->problems. */
void brim_compose(brim_composition *c);
/* After brim_compose() and the overrides: notes which values of a file were left out, as they belong to an option that
 * was not chosen. What another file or an override says in such a value's place needs no word. */
void brim_compose_tell_left_out(brim_composition *c);
/* NULL if nothing is chosen. */
brim_chosen *brim_compose_chosen(const brim_composition *c, const char *group);
/* Is the path below a group of which nothing is known, since its option was not found? */
bool brim_compose_is_broken(const brim_composition *c, const char *path);
/* What a group that is a list holds where nobody says anything; NULL: nothing. */
const char *brim_compose_fallback(const brim_composition *c, const char *group);

/* Is it a model around another? */
bool brim_is_wrapper(const brim_plugin *plugin);
/* The options of a group, sorted: files on the search path and plugins. Loads every plugin. */
size_t brim_compose_options(const brim_composition *c, const char *group, const char ***out);
/* The path of an option's file; NULL if there is none. */
const char *brim_compose_option_file(const brim_composition *c, const char *group, const char *option);
/* Is there such an option? Of a group that is a list: are there all of them? NULL: there is not. */
bool brim_compose_has_options(const brim_composition *c, const char *group, const char *names);
/* A file of the search path, read once; NULL if it is not a readable map (then a problem was added). */
brim_yaml *brim_compose_source(brim_composition *c, const char *path);
/* Adds "no option ..." with what there is, or why the plugin of that name could not be loaded. `origin` is told if
 * it is not the command line. */
void brim_compose_no_option(brim_composition *c, const char *group, const char *option, const brim_yaml_origin *origin);
/* The same of a plugin that an option is for. */
void brim_compose_no_plugin(brim_composition *c, const char *group, const char *id, const brim_yaml_origin *origin);
/* The line "available: ...   searched: ..." to the last problem, behind which of them may have been meant by what was
 * `written`; NULL: nothing was. */
void brim_compose_hint_available(brim_composition *c, const char *group, const char *written);
/* What `backend=auto` means on this machine: the backend of the device that is asked for, else cuda if it has one, else
 * cpu, else reference. */
const char *brim_compose_auto_backend(brim_composition *c);
#endif
