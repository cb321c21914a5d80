/* What a plugin is: one shared object with one entry function that returns a static description.
 *
 *     static const brim_plugin *const plugins[] = {&my_policy, NULL};
 *     BRIM_MODULE("my-plugins", "1.0", plugins);
 *
 * Everything described here is static and valid until the process exits: brim never calls dlclose. */
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
#define BRIM_ABI_MAJOR 1          /* must be equal */
#define BRIM_ABI_MINOR 10         /* a plugin may be older than the host, not newer */
#define BRIM_ABI_TAG "lp64 dims6" /* what else both sides must agree on; printed on a mismatch */

/* Types of parameters, and the type of the field that the core fills. */
enum brim_type {
  BRIM_BOOL = 1, /* bool */
  BRIM_I64,      /* int64_t */
  BRIM_F64,      /* double */
  BRIM_BYTES,    /* uint64_t; `4GB`, `512MiB` accepted. A key ending in _mb counts in MiB: the field
                    then holds MiB, and a bare number is MiB */
  BRIM_SECONDS,  /* double; `30s`, `5min` accepted. A key ending in _minutes counts in minutes */
  BRIM_STR,      /* const char *, owned by the core, valid until the plugin's destroy; never NULL */
  BRIM_PATH,     /* const char *, likewise; as written, relative to the working directory */
  BRIM_ENUM,     /* int32_t, index into the names in `range` */
  BRIM_LIST,     /* brim_list of numbers */
  BRIM_SET,      /* uint64_t: bit i for the i-th name in `range`; written all, none, a name or a list of names */
  BRIM_SHARES,   /* brim_shares; written {cuda:0: {alice: 0.5, bob: 8000MB}} */
  BRIM_NAMES     /* brim_names; a list of strings, or one. Since ABI 1.5 */
};
typedef struct brim_list {
  const double *item; /* owned by the core, as for BRIM_STR */
  size_t count;
} brim_list;
typedef struct brim_names {
  const char *const *item; /* owned by the core, as for BRIM_STR */
  size_t count;
} brim_names;
/* Who may have how much of what. */
typedef struct brim_share {
  const char *of, *who; /* "cuda:0", "alice" */
  double fraction;      /* in (0,1] of all there is; 0: see bytes */
  uint64_t bytes;
} brim_share;
typedef struct brim_shares {
  const brim_share *item; /* in the order in which they were written; owned by the core, as for BRIM_STR */
  size_t count;
} brim_shares;

/* One row per parameter. The core parses, checks and fills the plugin's struct; a plugin never
 * parses text. Tables are checked when the plugin is loaded. */
typedef struct brim_param {
  const char *key;      /* unit last: bucket_bytes, check_interval_seconds */
  uint32_t type, width; /* enum brim_type; width = sizeof the field */
  size_t offset;        /* of the field in the parameter struct */
  const char *def;      /* a YAML scalar or list, checked against type and range; NULL = required */
  /* "[1,4096]" "(0,1]" "[0,inf)" for numbers, "ring|tree" for enums and sets; NULL = any. A name in front of the range
   * of an I64, "auto|[1,64]", may be written too: the field is -1 then, which the range must not have. The same of
   * BYTES, whose field is UINT64_MAX then, since ABI 1.8 */
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

/* Kinds of plugins. Before ABI 1.10 optimizers, schedules, losses and augmentations were the core's own. */
#define BRIM_KIND_MAP(X)                                                                                               \
  X(MODEL, 1, "model")                                                                                                 \
  X(DATASET, 2, "dataset")                                                                                             \
  X(BACKEND, 3, "backend")                                                                                             \
  X(POLICY, 4, "policy")                                                                                               \
  X(COMM, 5, "comm")                                                                                                   \
  X(SELECTOR, 6, "selector")                                                                                           \
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
  size_t params_size;       /* sizeof the parameter struct; 0 = none */
  const brim_param *params; /* ends with BRIM_PARAMS_END; NULL = none */
  /* [init] Makes an instance from its filled parameters, which stay valid until destroy. NULL: the
   * instance is the parameter struct itself. */
  brim_status (*create)(const void *params, void **self);
  void (*destroy)(void *self); /* [init] NULL: nothing to do; called with NULL: a no-op */
  const void *ops;             /* brim_<kind>_ops */
} brim_plugin;

typedef struct brim_module { /* the layout up to abi_tag never changes */
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

/* True if an ops table of type T, given by pointer, is long enough to hold `field` and offers it.
 * Tables start with their size and only grow at the end. */
#define BRIM_HAS(T, table, field)                                                                                      \
  ((table)->size >= offsetof(T, field) + sizeof((table)->field) && (table)->field != NULL)

#ifdef __cplusplus
}
#endif
#endif
