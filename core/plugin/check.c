/* Checks a module before brim uses anything of it.
 *
 * Compares the ABI field by field and reports every difference, because an author who rebuilds needs to know whether
 * headers, compiler or both are wrong. After that, reports only the first error, because later ones often follow from
 * it. */
#include <stdio.h>
#include <string.h>

#include "base/formula.h"
#include "base/text.h"
#include "brim/aggregator.h"
#include "brim/augment.h"
#include "brim/backend.h"
#include "brim/comm.h"
#include "brim/dataset.h"
#include "brim/loss.h"
#include "brim/model.h"
#include "brim/policy.h"
#include "brim/schedule.h"
#include "brim/selector.h"
#include "param/value.h"
#include "plugin/kind.h"
#include "plugin/loader.h"

#define PLUGINS_MAX 256  /* in a module */
#define KERNELS_MAX 4096 /* in a backend */
#define PARAMS_BYTES_MAX (1u << 20)
#define ALIGNMENT_MAX (1 << 21) /* bytes; a huge page */

/* The functions that a kind requires. */
typedef struct required_op {
  const char *name;
  size_t offset;
} required_op;
#define REQUIRED(T, field)                                                                                             \
  {                                                                                                                    \
#field, offsetof(T, field)                                                                                         \
  }
static const required_op model_ops[] = {REQUIRED(brim_model_ops, build), {NULL, 0}};
static const required_op dataset_ops[] = {REQUIRED(brim_dataset_ops, open),
                                          REQUIRED(brim_dataset_ops, describe),
                                          REQUIRED(brim_dataset_ops, read),
                                          {NULL, 0}};
static const required_op backend_ops[] = {
    REQUIRED(brim_backend_ops, kernels),     REQUIRED(brim_backend_ops, device_count),
    REQUIRED(brim_backend_ops, describe),    REQUIRED(brim_backend_ops, place),
    REQUIRED(brim_backend_ops, unplace),     REQUIRED(brim_backend_ops, upload),
    REQUIRED(brim_backend_ops, download),    REQUIRED(brim_backend_ops, zero),
    REQUIRED(brim_backend_ops, synchronize), {NULL, 0}};
static const required_op policy_ops[] = {{NULL, 0}};
static const required_op comm_ops[] = {{NULL, 0}};
static const required_op optimizer_ops[] = {{NULL, 0}};
static const required_op loss_ops[] = {REQUIRED(brim_loss_ops, build), {NULL, 0}};
static const required_op schedule_ops[] = {REQUIRED(brim_schedule_ops, factor), {NULL, 0}};
static const required_op augment_ops[] = {REQUIRED(brim_augment_ops, apply), {NULL, 0}};
static const required_op aggregator_ops[] = {{NULL, 0}};
static const required_op selector_ops[] = {REQUIRED(brim_selector_ops, select), {NULL, 0}};

/* The kinds of plugins, and the sizes of their tables. The smallest size is that of the oldest ABI whose plugins brim
 * accepts: 1.0 for models and datasets, 1.3 for policies and backends (tests/abi/kept). */
static brim_status check_backend(const void *table);
static brim_status check_policy(const void *table);
static brim_status check_comm(const void *table);
static brim_status check_optimizer(const void *table);
static brim_status check_loss(const void *table);
static brim_status check_augment(const void *table);
static brim_status check_aggregator(const void *table);
static const struct {
  uint32_t kind;
  size_t bytes, least;
  const required_op *required;
  brim_status (*check)(const void *ops);
  bool is_params; /* has no create(): its functions get the parameters as self */
} kinds[] = {
    {BRIM_MODEL, sizeof(brim_model_ops), offsetof(brim_model_ops, wraps), model_ops, NULL},
    {BRIM_DATASET, sizeof(brim_dataset_ops), offsetof(brim_dataset_ops, host_bytes), dataset_ops, NULL},
    {BRIM_BACKEND, sizeof(brim_backend_ops), offsetof(brim_backend_ops, native_queue), backend_ops, check_backend},
    {BRIM_POLICY, sizeof(brim_policy_ops), offsetof(brim_policy_ops, on_step), policy_ops, check_policy},
    {BRIM_COMM, sizeof(brim_comm_ops), sizeof(brim_comm_ops), comm_ops, check_comm},
    {BRIM_SELECTOR, sizeof(brim_selector_ops), sizeof(brim_selector_ops), selector_ops, NULL},
    {BRIM_AGGREGATOR, sizeof(brim_aggregator_ops), sizeof(brim_aggregator_ops), aggregator_ops, check_aggregator, true},
    {BRIM_OPTIMIZER, sizeof(brim_optimizer_ops), sizeof(brim_optimizer_ops), optimizer_ops, check_optimizer, true},
    {BRIM_SCHEDULE, sizeof(brim_schedule_ops), sizeof(brim_schedule_ops), schedule_ops, NULL, true},
    {BRIM_LOSS, sizeof(brim_loss_ops), sizeof(brim_loss_ops), loss_ops, check_loss, true},
    {BRIM_AUGMENT, sizeof(brim_augment_ops), sizeof(brim_augment_ops), augment_ops, check_augment, true},
};

static brim_status check_abi(const brim_module *module)
{
  if (!module) return brim_fail(BRIM_ELOAD, "is not a brim plugin: brim_module_entry returned NULL");
  if (module->magic != BRIM_MAGIC)
    return brim_fail(BRIM_ELOAD, "is not a brim plugin: magic is 0x%08X, expected 0x%08X", module->magic, BRIM_MAGIC);
  brim_text wrong = {0};
  if (module->abi_major != BRIM_ABI_MAJOR || module->abi_minor > BRIM_ABI_MINOR)
    brim_text_printf(&wrong, "\nabi: plugin %d.%d, this brim %d.%d (%s)", module->abi_major, module->abi_minor,
                     BRIM_ABI_MAJOR, BRIM_ABI_MINOR,
                     module->abi_major != BRIM_ABI_MAJOR ? "the major versions must be equal"
                                                         : "a plugin may be older than brim, but not newer");
  if (!module->abi_tag || strcmp(module->abi_tag, BRIM_ABI_TAG) != 0)
    brim_text_printf(&wrong, "\nabi tag: plugin %s%s%s, this brim '%s'", module->abi_tag ? "'" : "",
                     module->abi_tag ? module->abi_tag : "none", module->abi_tag ? "'" : "", BRIM_ABI_TAG);
  if (module->size != sizeof(brim_module))
    brim_text_printf(&wrong, "\nsize of brim_module: plugin %u, this brim %zu bytes", module->size,
                     sizeof(brim_module));
  brim_status status = BRIM_OK;
  if (wrong.length > 0)
    status = brim_fail(BRIM_ELOAD, "is built for another version of the SDK%s\nrebuild it with this brim's headers",
                       wrong.s);
  brim_text_release(&wrong);
  return status;
}

static brim_status check_backend(const void *table)
{
  const brim_backend_ops *ops = table;
  if (ops->real != BRIM_DTYPE_F32 && ops->real != BRIM_DTYPE_F64)
    return brim_fail(BRIM_ELOAD, "ops.real is %u, must be BRIM_DTYPE_F32 or BRIM_DTYPE_F64", ops->real);
  if (ops->alignment == 0 || ops->alignment > ALIGNMENT_MAX || (ops->alignment & (ops->alignment - 1)) != 0)
    return brim_fail(BRIM_ELOAD, "ops.alignment is %llu, must be a power of two of at most %d",
                     (unsigned long long)ops->alignment, ALIGNMENT_MAX);
  if (!ops->kernels || ops->kernels_end <= ops->kernels) return brim_fail(BRIM_ELOAD, "ops.kernels is empty");
  if (ops->kernels_end - ops->kernels > KERNELS_MAX)
    return brim_fail(BRIM_ELOAD, "ops.kernels_end is more than %d kernels after ops.kernels", KERNELS_MAX);
  for (const brim_kernel *const *kernel = ops->kernels; kernel < ops->kernels_end; kernel++) {
    if (!*kernel || !(*kernel)->op) return brim_fail(BRIM_ELOAD, "kernel %d has no op", (int)(kernel - ops->kernels));
    if (!(*kernel)->run) return brim_fail(BRIM_ELOAD, "the kernel '%s' has no run function", (*kernel)->op);
  }
  return BRIM_OK;
}

static brim_status check_policy(const void *table)
{
  const brim_policy_ops *ops = table;
  if (ops->choose_device || ops->choose_plan || ops->on_oom || ops->on_boundary ||
      BRIM_HAS(brim_policy_ops, ops, on_step))
    return BRIM_OK;
  return brim_fail(BRIM_ELOAD, "ops is empty: a policy needs at least one function");
}

/* Checks a communicator: each half must be complete, and one must exist. */
static brim_status check_comm(const void *table)
{
  const brim_comm_ops *ops = table;
  const int host = (ops->join != NULL) + (ops->exchange != NULL) + (ops->leave != NULL) + (ops->end_all != NULL);
  const int collectives =
      (ops->connect != NULL) + (ops->start != NULL) + (ops->poll != NULL) + (ops->disconnect != NULL);
  if (host % 4 != 0)
    return brim_fail(BRIM_ELOAD, "ops must have all or none of join, exchange, leave and end_all: it has %d", host);
  if (collectives % 4 != 0)
    return brim_fail(BRIM_ELOAD, "ops must have all or none of connect, start, poll and disconnect: it has %d",
                     collectives);
  if (host + collectives > 0) return BRIM_OK;
  return brim_fail(BRIM_ELOAD, "ops is empty: a communicator must join ranks or have collectives");
}

static size_t count_names(const char *const *name)
{
  size_t count = 0;
  while (name && name[count]) count++;
  return count;
}

/* Checks an optimizer. If it has form(), its formulas are checked when a plan is made. */
static brim_status check_optimizer(const void *table)
{
  const brim_optimizer_ops *ops = table;
  const size_t states = count_names(ops->states), scalars = count_names(ops->scalars);
  const brim_shape one = {1, {1}};
  brim_formula formula;
  brim_update_form form = {.formula = ops->formula, .state_count = (uint32_t)states};
  if (ops->kernel) return brim_fail(BRIM_ELOAD, "ops.kernel is for brim's own optimizers: it must be NULL");
  if (states > BRIM_OPTIMIZER_STATES_MAX || scalars > BRIM_SCALARS_MAX)
    return brim_fail(BRIM_ELOAD, "ops has %zu states and %zu scalars: at most %d and %d are allowed", states, scalars,
                     BRIM_OPTIMIZER_STATES_MAX, BRIM_SCALARS_MAX);
  if (scalars > 0 && !ops->step) return brim_fail(BRIM_ELOAD, "ops.step is NULL, but the scalars need it");
  if (!ops->formula && !ops->form)
    return brim_fail(BRIM_ELOAD, "ops.formula is NULL, and so is ops.form: one of them must define the update");
  if (ops->form) return BRIM_OK;
  for (size_t k = 0; k < states; k++)
    form.state[k] = (brim_optimizer_state){.name = ops->states[k], .dtype = BRIM_DTYPE_F32, .shape = one};
  if (brim_formula_read_update(&form, ops->scalars, true, &formula) != BRIM_OK)
    return brim_fail(BRIM_ELOAD, "%s", brim_error_text());
  if (!BRIM_HAS(brim_optimizer_ops, ops, evaluated) || !ops->evaluated ||
      brim_formula_read_evaluated(ops->evaluated, &form, ops->scalars, &formula) == BRIM_OK)
    return BRIM_OK;
  return brim_fail(BRIM_ELOAD, "ops.evaluated: %s", brim_error_text());
}

static brim_status check_loss(const void *table)
{
  const brim_loss_ops *ops = table;
  const uint32_t all = BRIM_TAKES(BRIM_TASK_CLASS) | BRIM_TAKES(BRIM_TASK_TOKENS) | BRIM_TAKES(BRIM_TASK_VALUES);
  if (ops->kernel) return brim_fail(BRIM_ELOAD, "ops.kernel is for brim's own losses: it must be NULL");
  if (ops->takes == 0 || ops->takes & ~all)
    return brim_fail(BRIM_ELOAD,
                     "ops.takes is 0x%x, must be the tasks that the loss is for, such as BRIM_TAKES(BRIM_TASK_CLASS)",
                     ops->takes);
  return BRIM_OK;
}

static brim_status check_augment(const void *table)
{
  const brim_augment_ops *ops = table;
  if (ops->dtype != BRIM_DTYPE_U8 && ops->dtype != BRIM_DTYPE_F32)
    return brim_fail(BRIM_ELOAD, "ops.dtype is %u, must be BRIM_DTYPE_U8 or BRIM_DTYPE_F32", ops->dtype);
  if (ops->mixes && ops->dtype != BRIM_DTYPE_F32)
    return brim_fail(BRIM_ELOAD, "ops.mixes is set, so ops.dtype must be BRIM_DTYPE_F32: normalised values are mixed");
  return BRIM_OK;
}

static brim_status check_aggregator(const void *table)
{
  const brim_aggregator_ops *ops = table;
  if (!ops->weigh == !ops->merge)
    return brim_fail(BRIM_ELOAD, ops->weigh ? "has both ops.weigh and ops.merge" : "lacks ops.weigh or ops.merge");
  if (ops->merge && (ops->scale || ops->needs))
    return brim_fail(BRIM_ELOAD, "ops.scale and ops.needs have no effect with ops.merge");
  return BRIM_OK;
}

static brim_status check_ops(const brim_plugin *plugin)
{
  size_t k = 0;
  while (k < sizeof kinds / sizeof kinds[0] && kinds[k].kind != plugin->kind) k++;
  if (k == sizeof kinds / sizeof kinds[0])
    return brim_fail(BRIM_ELOAD, "kind %u is unknown to this version of brim", plugin->kind);
  if (!plugin->ops) return brim_fail(BRIM_ELOAD, "ops is NULL");
  if (kinds[k].is_params && plugin->create)
    return brim_fail(BRIM_ELOAD, "create must be NULL: a plugin of kind '%s' has only parameters and functions",
                     brim_kind_name(plugin->kind));
  uint32_t bytes;
  memcpy(&bytes, plugin->ops, sizeof bytes); /* every table starts with its size */
  if (bytes < kinds[k].least || bytes > kinds[k].bytes || bytes % sizeof(void *) != 0)
    return brim_fail(BRIM_ELOAD, "ops.size is %u, must be %zu: sizeof(brim_%s_ops)\n%s", bytes, kinds[k].bytes,
                     brim_kind_name(plugin->kind), "rebuild a plugin that was built for an older version of brim");
  for (const required_op *op = kinds[k].required; op->name; op++) {
    void *pointer;
    memcpy(&pointer, (const char *)plugin->ops + op->offset, sizeof pointer);
    if (!pointer)
      return brim_fail(BRIM_ELOAD, "ops.%s is NULL, but a %s needs it", op->name, brim_kind_name(plugin->kind));
  }
  return kinds[k].check ? kinds[k].check(plugin->ops) : BRIM_OK;
}

static brim_status check_id(const brim_plugin *plugin)
{
  if (!plugin->id) return brim_fail(BRIM_ELOAD, "id is NULL");
  if (!brim_is_plugin_id(plugin->id))
    return brim_fail(BRIM_ELOAD, "id must be 1 to %d characters from a-z, 0-9 and _", BRIM_PLUGIN_ID_MAX);
  return BRIM_OK;
}

static brim_status check_help(const brim_plugin *plugin)
{
  if (!plugin->help || !plugin->help[0])
    return brim_fail(BRIM_ELOAD, "help is missing: describe the plugin in one line");
  if (strchr(plugin->help, '\n')) return brim_fail(BRIM_ELOAD, "help must be one line");
  return BRIM_OK;
}

static brim_status check_params(const brim_plugin *plugin)
{
  if (plugin->params_size > PARAMS_BYTES_MAX)
    return brim_fail(BRIM_ELOAD, "params_size is %zu, at most %u bytes are allowed", plugin->params_size,
                     PARAMS_BYTES_MAX);
  if (brim_value_check_table(plugin->params, plugin->params_size) != BRIM_OK)
    return brim_fail(BRIM_ELOAD, "the table of parameters is wrong: %s", brim_error_text());
  return BRIM_OK;
}

/* Writes a plugin's name, "model/cnn", as far as the fields are valid. */
static void name_plugin(const brim_plugin *plugin, size_t index, char *out, size_t room)
{
  const char *kind = brim_kind_name(plugin->kind);
  if (plugin->id && kind)
    snprintf(out, room, "%s/%.*s", kind, BRIM_PLUGIN_ID_MAX, plugin->id);
  else
    snprintf(out, room, "plugin %zu%s%.*s", index + 1, plugin->id ? " " : "", BRIM_PLUGIN_ID_MAX,
             plugin->id ? plugin->id : "");
}

static brim_status check_size(const brim_module *module, size_t index)
{
  const uint32_t size = module->plugins[index]->size;
  if (size == sizeof(brim_plugin)) return BRIM_OK;
  return brim_fail(BRIM_ELOAD, "plugin %zu: size is %u, must be %zu: sizeof(brim_plugin)", index + 1, size,
                   sizeof(brim_plugin));
}

static brim_status check_twice(const brim_module *module, size_t index)
{
  const brim_plugin *plugin = module->plugins[index];
  for (size_t i = 0; i < index; i++) {
    const brim_plugin *other = module->plugins[i];
    if (other->size != sizeof(brim_plugin) || !other->id || !plugin->id) continue;
    if (other->kind == plugin->kind && strcmp(other->id, plugin->id) == 0)
      return brim_fail(BRIM_ELOAD, "is listed twice");
  }
  return BRIM_OK;
}

/* Decides where errors are reported: the first one as the status or, if there is a listener, all to the listener. */
typedef struct finding {
  brim_loader_report on_problem;
  void *context;
} finding;

/* Reports an error to the listener and returns OK to continue; without a listener returns the error. */
static brim_status report(const finding *f, brim_status status)
{
  if (status == BRIM_OK || !f->on_problem) return status;
  f->on_problem(f->context, brim_error_text());
  return BRIM_OK;
}

/* Checks the size first: without it the offsets of other fields cannot be trusted. */
static brim_status check_one(const brim_module *module, size_t index, const finding *f)
{
  static brim_status (*const checks[])(const brim_plugin *) = {check_id, check_help, check_ops, check_params};
  const brim_plugin *plugin = module->plugins[index];
  char name[BRIM_PLUGIN_ID_MAX + 32];
  if (check_size(module, index) != BRIM_OK) return report(f, BRIM_ELOAD);
  name_plugin(plugin, index, name, sizeof name);
  for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++)
    if (checks[i](plugin) != BRIM_OK) BRIM_TRY(report(f, brim_fail(BRIM_ELOAD, "%s: %s", name, brim_error_text())));
  if (check_twice(module, index) != BRIM_OK) return report(f, brim_fail(BRIM_ELOAD, "%s: %s", name, brim_error_text()));
  return BRIM_OK;
}

static brim_status check_module(const brim_module *module)
{
  BRIM_TRY(check_abi(module));
  if (!module->name || !module->name[0]) return brim_fail(BRIM_ELOAD, "the module's name is missing");
  if (!module->version || !module->version[0]) return brim_fail(BRIM_ELOAD, "the module's version is missing");
  if (!module->plugins) return brim_fail(BRIM_ELOAD, "the module's list of plugins is NULL");
  if (!module->plugins[0]) return brim_fail(BRIM_ELOAD, "the module's list of plugins is empty");
  return BRIM_OK;
}

brim_status brim_loader_check_all(const brim_module *module, brim_loader_report on_problem, void *context)
{
  const finding f = {on_problem, context};
  if (check_module(module) != BRIM_OK) return report(&f, BRIM_ELOAD);
  for (size_t i = 0; module->plugins[i]; i++) {
    if (i == PLUGINS_MAX)
      return report(
          &f, brim_fail(BRIM_ELOAD, "the module lists more than %d plugins: is the final NULL missing?", PLUGINS_MAX));
    BRIM_TRY(check_one(module, i, &f));
  }
  return BRIM_OK;
}

brim_status brim_loader_check(const brim_module *module)
{
  return brim_loader_check_all(module, NULL, NULL);
}
