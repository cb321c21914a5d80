/* The plugin interface: a plugin module is a shared object with one entry function that returns a static description.
 *
 *     static const brim_plugin *const plugins[] = {&my_policy, NULL};
 *     BRIM_MODULE("my-plugins", "1.0", plugins);
 *
 * The description must stay valid until the process exits. brim never calls dlclose.
 *
 * Comments in the headers mark functions: [plan] is called before device memory is allocated, [init] may allocate,
 * [step] must not allocate, [any thread] may be called from any thread. Names such as ELOAD are the statuses that a
 * function returns on failure (brim/status.h). A table or struct that begins with `size` may grow in later versions:
 * its creator sets `size` to its sizeof, and fields beyond `size` do not exist (see BRIM_HAS). */
#ifndef BRIM_PLUGIN_H
#define BRIM_PLUGIN_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"
#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_MAGIC 0x4D495242u    /* "BRIM", little-endian */
#define BRIM_ABI_MAJOR 1          /* host and plugin must have the same */
#define BRIM_ABI_MINOR 13         /* the plugin's may be lower than the host's, not higher */
#define BRIM_ABI_TAG "lp64 dims6" /* must be equal too; printed on a mismatch */

/* Types of parameters. Each comment names the C type of the field that the core fills. */
enum brim_type {
  BRIM_BOOL = 1, /* bool */
  BRIM_I64,      /* int64_t */
  BRIM_F64,      /* double */
  BRIM_BYTES,    /* uint64_t; `4GB` and `512MiB` are accepted. If the key ends in _mb, a bare number means MiB, and the
                    field holds MiB */
  BRIM_SECONDS,  /* double; `30s` and `5min` are accepted. If the key ends in _minutes, the unit is minutes */
  BRIM_STR,      /* const char *, owned by the core, valid until the plugin's destroy; never NULL */
  BRIM_PATH,     /* const char *, owned as for BRIM_STR; not resolved: relative to the working directory */
  BRIM_ENUM,     /* int32_t, index into the names in `range` */
  BRIM_LIST,     /* brim_list of numbers */
  BRIM_SET, /* uint64_t: bit i is set if the i-th name in `range` is chosen; written as all, none, a name or a list of
               names */
  BRIM_SHARES, /* brim_shares; written as {cuda:0: {alice: 0.5, bob: 8000MB}} */
  BRIM_NAMES   /* brim_names; written as a string or a list of strings. Since ABI 1.5 */
};
typedef struct brim_list {
  const double *item; /* owned by the core, as for BRIM_STR */
  size_t count;
} brim_list;
typedef struct brim_names {
  const char *const *item; /* owned by the core, as for BRIM_STR */
  size_t count;
} brim_names;
/* A user's share of a resource. */
typedef struct brim_share {
  const char *of, *who; /* the resource, "cuda:0", and the user, "alice" */
  double fraction;      /* part of the total, in (0,1]; 0: `bytes` applies */
  uint64_t bytes;
} brim_share;
typedef struct brim_shares {
  const brim_share *item; /* in the order of the configuration; owned by the core, as for BRIM_STR */
  size_t count;
} brim_shares;

/* One row per parameter. The core parses and checks the values and fills the plugin's struct; a plugin never parses
 * text. brim checks the table when it loads the plugin. */
typedef struct brim_param {
  const char *key;      /* ends with the unit: bucket_bytes, check_interval_seconds */
  uint32_t type, width; /* enum brim_type; width = sizeof the field */
  size_t offset;        /* offset of the field in the parameter struct */
  /* the default: a YAML scalar or list, checked against type and range; NULL: the parameter is required */
  const char *def;
  /* "[1,4096]" "(0,1]" "[0,inf)" for numbers, "ring|tree" for enums and sets; NULL: any. An I64 or BYTES range may
   * begin with a name, as in "auto|[1,64]". If the user writes that name, the field is -1 (I64; the range must not
   * contain -1) or UINT64_MAX (BYTES; since ABI 1.8) */
  const char *range;
  const char *help; /* one line, never NULL */
} brim_param;
#define BRIM_PARAM(T, S, field, def, range, help)                                                                      \
  {                                                                                                                    \
#field, BRIM_##T, (uint32_t)sizeof(((S *)0)->field), offsetof(S, field), def, range, help                          \
  }
#define BRIM_PARAMS_END                                                                                                \
  {                                                                                                                    \
    NULL, 0, 0, 0, NULL, NULL, NULL                                                                                    \
  }

/* Kinds of plugins. Optimizers, schedules, losses and augmentations are plugins since ABI 1.10, aggregators since
 * ABI 1.11. */
#define BRIM_KIND_MAP(X)                                                                                               \
  X(MODEL, 1, "model")                                                                                                 \
  X(DATASET, 2, "dataset")                                                                                             \
  X(BACKEND, 3, "backend")                                                                                             \
  X(POLICY, 4, "policy")                                                                                               \
  X(COMM, 5, "comm")                                                                                                   \
  X(SELECTOR, 6, "selector")                                                                                           \
  X(AGGREGATOR, 7, "aggregator")                                                                                       \
  X(OPTIMIZER, 64, "optimizer")                                                                                        \
  X(SCHEDULE, 65, "schedule")                                                                                          \
  X(LOSS, 66, "loss")                                                                                                  \
  X(AUGMENT, 67, "augment")
enum brim_kind {
#define X(name, value, text) BRIM_##name = value,
  BRIM_KIND_MAP(X)
#undef X
};

typedef struct brim_plugin {
  uint32_t size, kind;      /* sizeof(brim_plugin); enum brim_kind */
  const char *id, *help;    /* id: [a-z0-9_]+; help: one line */
  size_t params_size;       /* sizeof the parameter struct; 0: no parameters */
  const brim_param *params; /* ends with BRIM_PARAMS_END; NULL: no parameters */
  /* [init] Creates an instance from the filled parameters, which stay valid until destroy. NULL: the parameter struct
   * itself is the instance. */
  brim_status (*create)(const void *params, void **self);
  void (*destroy)(void *self); /* [init] may be NULL; must accept NULL */
  const void *ops;             /* brim_<kind>_ops */
} brim_plugin;

typedef struct brim_module { /* the layout up to and including abi_tag never changes */
  uint32_t magic, size;      /* BRIM_MAGIC, sizeof(brim_module) */
  uint16_t abi_major, abi_minor;
  const char *abi_tag, *name, *version;
  const brim_plugin *const *plugins; /* NULL-terminated */
} brim_module;

typedef const brim_module *(*brim_module_entry_fn)(void);
BRIM_EXPORT const brim_module *brim_module_entry(void);

#define BRIM_MODULE(module_name, module_version, plugin_list)                                                          \
  const brim_module *brim_module_entry(void)                                                                           \
  {                                                                                                                    \
    static const brim_module module = {BRIM_MAGIC,     (uint32_t)sizeof(brim_module),                                  \
                                       BRIM_ABI_MAJOR, BRIM_ABI_MINOR,                                                 \
                                       BRIM_ABI_TAG,   module_name,                                                    \
                                       module_version, plugin_list};                                                   \
    return &module;                                                                                                    \
  }

/* True if `field` lies within the size of `table`, a pointer to an ops table of type T, and is not NULL. New fields are
 * added only at the end. */
#define BRIM_HAS(T, table, field)                                                                                      \
  ((table)->size >= offsetof(T, field) + sizeof((table)->field) && (table)->field != NULL)

#ifdef __cplusplus
}
#endif
#endif
