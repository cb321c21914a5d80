/* brim devices: lists the devices, and the backends that cannot be used, with the reason. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/table.h"
#include "base/text.h"
#include "brim/backend.h"
#include "cli/cli.h"
#include "exec/profile.h"
#include "memory/board.h"
#include "memory/claims.h"
#include "monitor/backends.h"
#include "planner/taken.h"

#define DEVICE_COLUMNS 7
#define USER_COLUMNS 4
#define TICKET_COLUMNS 8
#define TAKEN_COLUMNS 6

typedef struct devices {
  brim_config *config; /* NULL: the command line does not set a backend */
  brim_arena *arena;
  bool json, forgets;
  brim_table table, users, tickets;
  brim_table taken;                         /* per process, besides its plan */
  json_t *device, *queue, *failure, *needs; /* used with --json */
  brim_text failures, need;                 /* used without --json: one line for each failure or need */
} devices;

/* An empty text becomes null. */
static json_t *json_text(const char *text)
{
  return text[0] ? json_string(text) : json_null();
}

static const char *capability_of(devices *d, const brim_device_info *info)
{
  if (info->capability_major == 0) return "";
  return brim_arena_printf(d->arena, "%" PRId32 ".%" PRId32, info->capability_major, info->capability_minor);
}

static void add_user(devices *d, json_t *list, const char *device, const brim_device_user *user)
{
  const bool known = user->bytes != BRIM_BYTES_UNKNOWN;
  char bytes[32];
  if (d->json) {
    json_array_append_new(list, json_pack("{s:I, s:o, s:o}", "pid", (json_int_t)user->pid, "bytes",
                                          known ? json_integer((json_int_t)user->bytes) : json_null(), "name",
                                          json_text(user->name)));
    return;
  }
  brim_table_add(&d->users, device);
  brim_table_add(&d->users, brim_arena_printf(d->arena, "%" PRId64, user->pid));
  brim_table_add(&d->users, known ? brim_format_bytes(bytes, sizeof bytes, user->bytes) : "-");
  brim_table_add(&d->users, user->name[0] ? user->name : "-");
}

/* Lists the processes that use a device; null if unknown, or for the host, whose memory every process uses. */
static json_t *add_users(devices *d, const char *device, const brim_device_seen *seen)
{
  if (seen->users_failure)
    brim_text_printf(&d->failures, "cannot list the processes that use %s: %s\n", device, seen->users_failure);
  if (!seen->has_users) return json_null();
  json_t *list = json_array();
  for (size_t i = 0; i < seen->users; i++) add_user(d, list, device, &seen->user[i]);
  return list;
}

/* Finds the device memory that a process uses besides its plan, as measured in earlier runs. False: not measured on
 * this device, or the profile cannot be read. */
static bool find_taken(const brim_registry_entry *entry, const brim_device_info *info, brim_taken *out)
{
  char path[BRIM_PATH_MAX];
  brim_profile *profile = NULL;
  if (!brim_taken_is_measured(entry->plugin->ops)) return false;
  const brim_profile_subject subject = brim_profile_subject_of(entry->plugin->id, entry->file, info);
  const bool has_path = brim_profile_default_path(&subject, path, sizeof path);
  if (brim_profile_open(has_path ? path : NULL, &subject, &profile) != BRIM_OK) return false;
  brim_taken_of_profile(profile, out);
  brim_profile_close(profile);
  return true;
}

static void add_taken(devices *d, const char *device, const brim_taken *t)
{
  const uint64_t bytes[] = {t->context_bytes, t->libraries_bytes, t->node_bytes, t->comm_bytes, t->headroom_bytes};
  char text[32];
  brim_table_add(&d->taken, device);
  for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++)
    brim_table_add(&d->taken, bytes[i] == BRIM_BYTES_UNKNOWN ? "not measured yet"
                                                             : brim_format_bytes(text, sizeof text, bytes[i]));
}

/* Lists the 16-bit types for which the device has instructions that multiply. */
static json_t *json_types(uint32_t types)
{
  json_t *list = json_array();
  if (types & BRIM_STORES(BRIM_DTYPE_BF16)) json_array_append_new(list, json_string("bf16"));
  if (types & BRIM_STORES(BRIM_DTYPE_F16)) json_array_append_new(list, json_string("fp16"));
  return list;
}

static void add_device(devices *d, const brim_registry_entry *entry, int index, const brim_device_info *info,
                       json_t *users)
{
  char bytes[32];
  brim_taken taken;
  const char *backend = entry->plugin->id;
  const bool measured = find_taken(entry, info, &taken);
  if (measured && !d->json) add_taken(d, brim_arena_printf(d->arena, "%s:%d", backend, index), &taken);
  if (d->json) {
    json_t *row = json_pack(
        "{s:s, s:i, s:s, s:I, s:I, s:i, s:o, s:o, s:o, s:O, s:o}", "backend", backend, "index", index, "name",
        info->name, "total_bytes", (json_int_t)info->total_bytes, "free_bytes", (json_int_t)info->free_bytes, "threads",
        (int)info->threads, "capability", json_text(capability_of(d, info)), "multiplies", json_types(info->multiplies),
        "uuid", json_text(info->uuid), "users", users, "memory", measured ? brim_taken_json(&taken) : json_null());
    json_array_append_new(d->device, row);
    return;
  }
  brim_table_add(&d->table, brim_arena_printf(d->arena, "%s:%d", backend, index));
  brim_table_add(&d->table, brim_format_bytes(bytes, sizeof bytes, info->free_bytes));
  brim_table_add(&d->table, brim_format_bytes(bytes, sizeof bytes, info->total_bytes));
  brim_table_add(&d->table, info->threads ? brim_arena_printf(d->arena, "%" PRId32, info->threads) : "-");
  brim_table_add(&d->table, info->capability_major ? capability_of(d, info) : "-");
  brim_table_add(&d->table, info->uuid[0] ? info->uuid : "-");
  brim_table_add(&d->table, info->name);
}

/* Adds a backend that cannot be used, with the first line of the reason. */
static void add_failure(devices *d, const char *backend, const char *reason)
{
  if (d->json) {
    json_array_append_new(d->failure, json_pack("{s:s, s:s}", "backend", backend, "reason", reason));
    return;
  }
  brim_text_printf(&d->failures, "backend '%s' cannot be used: ", backend);
  for (const char *s = reason; *s; s++)
    if (*s == '\n')
      brim_text_add(&d->failures, "; ");
    else
      brim_text_add_n(&d->failures, s, 1);
  brim_text_add(&d->failures, "\n");
}

/* Adds "cuda: driver 580.65.06 (CUDA 13.0); needed: ...". */
static void add_needs(devices *d, const brim_backend_seen *b)
{
  char text[512] = "";
  if (BRIM_HAS(brim_backend_ops, b->ops, needs)) b->ops->needs(b->self, text, sizeof text);
  if (!text[0]) return;
  if (d->json)
    json_object_set_new(d->needs, b->id, json_string(text));
  else
    brim_text_printf(&d->need, "%s: %s\n", b->id, text);
}

static brim_status list_devices(devices *d, const brim_backend_seen *b)
{
  for (int i = 0; i < b->devices; i++) {
    brim_device_seen seen;
    BRIM_TRY(brim_device_see(b, i, d->arena, &seen));
    json_t *users = add_users(d, brim_arena_printf(d->arena, "%s:%d", b->id, i), &seen);
    add_device(d, b->entry, i, &seen.info, users);
    json_decref(users);
  }
  add_needs(d, b);
  return BRIM_OK;
}

static void collect(devices *d, const brim_registry *registry)
{
  static const char *const head[DEVICE_COLUMNS] = {"device", "free", "total", "threads", "capability", "uuid", "name"};
  static const char *const user_head[USER_COLUMNS] = {"used", "by", "memory", "process"};
  for (size_t i = 0; i < DEVICE_COLUMNS; i++) brim_table_add(&d->table, head[i]);
  static const char *const taken_head[TAKEN_COLUMNS] = {"a process takes",    "context", "libraries", "a graph's node",
                                                        "ranks' connections", "headroom"};
  for (size_t i = 0; i < USER_COLUMNS; i++) brim_table_add(&d->users, user_head[i]);
  for (size_t i = 0; i < TAKEN_COLUMNS; i++) brim_table_add(&d->taken, taken_head[i]);
  brim_backends backends;
  brim_backends_open(registry, d->config, d->arena, &backends);
  for (size_t i = 0; i < backends.count; i++) {
    const brim_backend_seen *b = &backends.backend[i];
    if (b->failure)
      add_failure(d, b->id, b->failure);
    else if (list_devices(d, b) != BRIM_OK)
      add_failure(d, b->id, brim_error_text());
  }
  brim_backends_close(&backends);
}

static void add_ticket(devices *d, const brim_ticket *t, size_t place)
{
  char bytes[32], hour[16];
  const char *claimed = t->device < 0 ? "" : brim_arena_printf(d->arena, "%s:%d", t->backend, t->device);
  if (d->json) {
    json_array_append_new(d->queue,
                          json_pack("{s:s, s:s, s:o, s:I, s:I, s:f, s:o}", "backend", t->backend, "wish", t->wish,
                                    "claimed", json_text(claimed), "pid", (json_int_t)t->pid, "need_bytes",
                                    (json_int_t)t->need_bytes, "since", t->since, "name", json_text(t->process)));
    return;
  }
  brim_table_add(&d->tickets, brim_arena_printf(d->arena, "%zu", place));
  brim_table_add(&d->tickets, t->backend);
  brim_table_add(&d->tickets, t->wish);
  brim_table_add(&d->tickets, claimed[0] ? claimed : "waits");
  brim_table_add(&d->tickets, brim_format_bytes(bytes, sizeof bytes, t->need_bytes));
  brim_table_add(&d->tickets, brim_format_hour(hour, sizeof hour, t->since));
  brim_table_add(&d->tickets, brim_arena_printf(d->arena, "%" PRId64, t->pid));
  brim_table_add(&d->tickets, t->process[0] ? t->process : "-");
}

/* Lists runs that wait for a device, and runs that have claimed one but not placed anything on it yet. */
static void collect_queue(devices *d)
{
  static const char *const head[TICKET_COLUMNS] = {"queue", "backend", "device", "claimed",
                                                   "needs", "since",   "pid",    "process"};
  brim_ticket *ticket;
  size_t count;
  for (size_t i = 0; i < TICKET_COLUMNS; i++) brim_table_add(&d->tickets, head[i]);
  if (brim_claims_list(d->arena, &ticket, &count) != BRIM_OK) {
    brim_text_printf(&d->failures, "cannot list the processes that wait for devices: %s\n", brim_error_text());
    return;
  }
  for (size_t i = 0; i < count; i++) add_ticket(d, &ticket[i], i + 1);
}

static brim_status print(const devices *d)
{
  if (d->json)
    return brim_cli_print_json(json_pack("{s:O, s:O, s:O, s:O}", "devices", d->device, "queue", d->queue, "failures",
                                         d->failure, "needs", d->needs));
  brim_text out = {0};
  brim_table_print(&d->table, &out);
  if (d->users.count > USER_COLUMNS) {
    brim_text_add(&out, "\n");
    brim_table_print(&d->users, &out);
  }
  if (d->tickets.count > TICKET_COLUMNS) {
    brim_text_add(&out, "\n");
    brim_table_print(&d->tickets, &out);
  }
  if (d->taken.count > TAKEN_COLUMNS) {
    brim_text_add(&out, "\n");
    brim_table_print(&d->taken, &out);
  }
  brim_text_add(&out, brim_text_str(&d->need));
  brim_text_add(&out, brim_text_str(&d->failures));
  brim_cli_print(brim_text_str(&out));
  brim_text_release(&out);
  return BRIM_OK;
}

static brim_status forget_times(void)
{
  size_t count;
  BRIM_TRY(brim_profile_forget_all(&count));
  brim_log(BRIM_LOG_INFO, "%zu device profile%s deleted", count, brim_plural((int64_t)count));
  return BRIM_OK;
}

static const brim_option options[] = {
    {"--json", BRIM_CLI_FLAG(devices, json), NULL, "print JSON"},
    {"--forget-times", BRIM_CLI_FLAG(devices, forgets), NULL,
     "delete the cached device profiles, so that the next runs measure kernels again"},
    {NULL}};

static int run_command(brim_cli *cli, int argc, char **argv)
{
  devices d = {.device = json_array(), .queue = json_array(), .failure = json_array(), .needs = json_object()};
  brim_operands operands;
  brim_status status = brim_cli_parse(argc, argv, options, &d, &operands);
  if (status == BRIM_OK && d.forgets) {
    status = forget_times();
    return brim_cli_end(status, &operands);
  }
  if (status == BRIM_OK && operands.count > 0)
    status = brim_cli_config(cli, NULL, operands.word, operands.number, operands.count, &d.config);
  if (status == BRIM_OK) {
    if (d.config) brim_shared_folder_set(d.config->settings.claims.dir);
    d.arena = &operands.arena;
    d.table = (brim_table){.arena = d.arena, .columns = DEVICE_COLUMNS};
    d.taken = (brim_table){.arena = d.arena, .columns = TAKEN_COLUMNS};
    d.users = (brim_table){.arena = d.arena, .columns = USER_COLUMNS};
    d.tickets = (brim_table){.arena = d.arena, .columns = TICKET_COLUMNS};
    collect(&d, cli->registry);
    collect_queue(&d);
    status = print(&d);
  }
  json_decref(d.device);
  json_decref(d.queue);
  json_decref(d.failure);
  json_decref(d.needs);
  brim_text_release(&d.need);
  brim_text_release(&d.failures);
  brim_config_free(d.config);
  return brim_cli_end(status, &operands);
}

const brim_command brim_command_devices = {
    "devices", "list the devices", run_command,
    "usage: brim devices [--json] [overrides]\n"
    "\n"
    "  brim devices           each backend's devices, with free and total memory and the processes that use them; for\n"
    "                         GPUs also the measured memory of a process besides its plan, and the required driver\n"
    "  brim devices backend=cpu backend.devices=2 backend.memory_mb=4096\n"
    "                         the same for the backend of a run with these settings\n"
    "  brim devices --json    the same in bytes, as JSON\n"
    "\n"
    "For a backend that cannot be used here, the command prints the reason.\n",
    options};
