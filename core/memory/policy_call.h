/* One function of one policy, called on the policies' thread (base/guard.h): what it asks the core is answered on the
 * caller's, and what it answers is taken over there, as far as it can be read at all.
 *
 * Queries and answers lie in memory that stays when a policy does not come back. */
#ifndef BRIM_MEMORY_POLICY_CALL_H
#define BRIM_MEMORY_POLICY_CALL_H
#include "brim/policy.h"
#include "memory/plugin_call.h"

#define BRIM_OPTION_BYTES 128 /* of the name of another model, with its NUL */

enum brim_hook { BRIM_HOOK_DEVICE, BRIM_HOOK_PLAN, BRIM_HOOK_OOM, BRIM_HOOK_BOUNDARY, BRIM_HOOK_STEP };

typedef struct brim_policy_caller brim_policy_caller;

/* [init] ENOMEM_HOST. */
brim_status brim_policy_caller_open(brim_policy_caller **out);
/* [init] NULL: nothing to do. */
void brim_policy_caller_close(brim_policy_caller *caller);
/* [init] What policies ask is answered on their thread, not on the caller's, and counts as their own time. */
void brim_policy_caller_answer_there(brim_policy_caller *caller);

/* [init] An instance of the policy; and its end, whose failure is told. EPLUGIN naming policy, function and file. */
brim_status brim_policy_create(brim_policy_caller *caller, const brim_config_choice *policy, void **self);
void brim_policy_destroy(brim_policy_caller *caller, const brim_config_choice *policy, void *self);

/* [init] Asks. `query` and `out` are of the hook's types; `out` is zeroed first, its `model` is good until the next
 * call. ENOTSUP: it leaves it to the next, or does not have the hook. EPLUGIN as above; or it returned what no status
 * is, or none that policies return, or its reason has no end. */
brim_status brim_policy_ask(brim_policy_caller *caller, const brim_config_choice *policy, void *self,
                            enum brim_hook hook, const void *query, void *out);
/* Does it have the hook? And its name, "choose_plan". */
bool brim_policy_has(const brim_plugin *policy, enum brim_hook hook);
const char *brim_hook_name(enum brim_hook hook);
#endif
