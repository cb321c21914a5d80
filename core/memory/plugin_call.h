/* Calls a function of a policy or a selector on a guarded thread (base/guard.h), within time limits that are the same
 * for all plugins, and checks the status it returns. */
#ifndef BRIM_MEMORY_PLUGIN_CALL_H
#define BRIM_MEMORY_PLUGIN_CALL_H
#include "base/guard.h"
#include "config/config.h"

/* Limits for the plugin itself: processor time, and waiting time, for example for a file or for a busy machine. */
#define BRIM_DECISION_SECONDS 1.0
#define BRIM_DECISION_WAITING_SECONDS 10.0
#define BRIM_CREATE_SECONDS 10.0 /* for creating and destroying an instance, which may read files */
#define BRIM_CREATE_WAITING_SECONDS 60.0

/* The call. */
typedef struct brim_plugin_call {
  const brim_config_choice *choice;
  const char *function; /* "choose_plan" */
  bool decides;         /* true: a decision; false: creates or destroys an instance */
} brim_plugin_call;

/* [init] Runs `work`, which calls the function. OK, ENOTSUP, or the function's error, always with a text. EPLUGIN: it
 * crashed, did not return in time, or returned a status that does not exist or that plugins must not return. */
brim_status brim_plugin_run(brim_guard *guard, const brim_plugin_call *call, brim_guard_work work, void *context);
#endif
