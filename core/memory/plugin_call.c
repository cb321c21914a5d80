#include "memory/plugin_call.h"

#include <stdio.h>
#include <string.h>

#include "plugin/instance.h"

#define WHO_BYTES 128

/* If the guard returned EPLUGIN, it has set the text. */
brim_status brim_plugin_run(brim_guard *guard, const brim_plugin_call *call, brim_guard_work work, void *context)
{
  char name[WHO_BYTES];
  const brim_plugin *plugin = call->choice->plugin;
  const char *kind = brim_kind_name(plugin->kind);
  snprintf(name, sizeof name, "%s '%s'", kind, plugin->id);
  const brim_guard_call about = {.name = name,
                                 .file = call->choice->file,
                                 .function = call->function,
                                 .seconds = call->decides ? BRIM_DECISION_SECONDS : BRIM_CREATE_SECONDS,
                                 .waiting_seconds =
                                     call->decides ? BRIM_DECISION_WAITING_SECONDS : BRIM_CREATE_WAITING_SECONDS};
  const brim_status status = brim_guard_run(guard, &about, work, context);
  if (status == BRIM_OK || status == BRIM_ENOTSUP || brim_guard_is_lost(guard)) return status;
  /* A plugin must not return statuses that are reserved for the core, nor unknown ones. */
  if (strcmp(brim_status_name(status), "EUNKNOWN") == 0)
    return brim_fail(BRIM_EPLUGIN, "%s returned %d from %s, which is not a status\n%s", name, status, call->function,
                     plugin->kind == BRIM_POLICY ? "return BRIM_OK if it decided, BRIM_ENOTSUP to leave the decision "
                                                   "to the next policy, else brim_fail(status, ...)"
                                                 : "return BRIM_OK, or brim_fail(status, ...) to name the failure");
  if (status == BRIM_EINTERRUPTED || status == BRIM_EPEER || status == BRIM_ECOMM || status == BRIM_EPLUGIN)
    return brim_fail(BRIM_EPLUGIN, "%s returned %s from %s, which a %s must not return%s%s", name,
                     brim_status_name(status), call->function, kind, brim_error_text()[0] ? ": " : "",
                     brim_error_text());
  return brim_plugin_answer(plugin, call->function, status);
}
