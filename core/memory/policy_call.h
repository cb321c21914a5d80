/* Calls one function of one policy on the policies' thread (base/guard.h). The caller's thread answers the policy's
 * questions; the policies' thread copies the policy's answer, where an invalid pointer can do no harm.
 *
 * A call has copies of its query, of all that the query points to, and of its answer. Their memory stays allocated if
 * the policy does not return. */
#ifndef BRIM_MEMORY_POLICY_CALL_H
#define BRIM_MEMORY_POLICY_CALL_H
#include "brim/policy.h"
#include "memory/plugin_call.h"

#define BRIM_OPTION_BYTES 128 /* bytes of another model's name, including its NUL */

enum brim_hook { BRIM_HOOK_DEVICE, BRIM_HOOK_PLAN, BRIM_HOOK_OOM, BRIM_HOOK_BOUNDARY, BRIM_HOOK_STEP };

typedef struct brim_policy_caller brim_policy_caller;

/* [init] ENOMEM_HOST. */
brim_status brim_policy_caller_open(brim_policy_caller **out);
/* [init] NULL: does nothing. */
void brim_policy_caller_close(brim_policy_caller *caller);
/* [init] Answers questions of policies on the policies' thread instead of the caller's, and counts the time as the
 * policy's. */
void brim_policy_caller_answer_there(brim_policy_caller *caller);

/* [init] Create and destroy an instance of the policy; a failure to destroy is only reported. EPLUGIN naming policy,
 * function and file. */
brim_status brim_policy_create(brim_policy_caller *caller, const brim_config_choice *policy, void **self);
void brim_policy_destroy(brim_policy_caller *caller, const brim_config_choice *policy, void *self);

/* [init] Calls a hook of the policy. `query` and `out` have the hook's types; `out` is zeroed first, and its `model` is
 * valid until the next call. ENOTSUP: the policy leaves the decision to the next one, or lacks the hook. EPLUGIN as
 * above; also if the policy returns a status that does not exist or that policies must not return, or an unterminated
 * reason. */
brim_status brim_policy_ask(brim_policy_caller *caller, const brim_config_choice *policy, void *self,
                            enum brim_hook hook, const void *query, void *out);
/* Whether the policy has the hook; and the hook's name: "choose_plan". */
bool brim_policy_has(const brim_plugin *policy, enum brim_hook hook);
const char *brim_hook_name(enum brim_hook hook);
#endif
