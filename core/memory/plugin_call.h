/* A function of a policy or a selector, called on a thread that guards against it (base/guard.h), within limits of
 * time that are the same for all, and what it may return. */
#ifndef BRIM_MEMORY_PLUGIN_CALL_H
#define BRIM_MEMORY_PLUGIN_CALL_H
#include "base/guard.h"
#include "config/config.h"

/* Of a plugin's own: processor time, and waiting without it, for a file or while its machine is busy otherwise. */
#define BRIM_DECISION_SECONDS 1.0
#define BRIM_DECISION_WAITING_SECONDS 10.0
#define BRIM_CREATE_SECONDS 10.0 /* for making an instance, and for destroying it: they may read files */
#define BRIM_CREATE_WAITING_SECONDS 60.0

/* What is called. */
typedef struct brim_plugin_call {
  const brim_config_choice *choice;
  const char *function; /* "choose_plan" */
  bool decides;         /* else it makes or destroys an instance */
} brim_plugin_call;

/* [init] Runs `work`, which calls the function. OK, ENOTSUP, or what it failed with, always with a text; EPLUGIN: it
 * has crashed or did not come back, or returned what no status is, or none that plugins return. */
brim_status brim_plugin_run(brim_guard *guard, const brim_plugin_call *call, brim_guard_work work, void *context);
#endif
