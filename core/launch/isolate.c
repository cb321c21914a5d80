/* See isolate.h. */
#include "launch/isolate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "brim/backend.h"
#include "config/federation.h"
#include "memory/board.h"
#include "memory/choose.h"

bool brim_isolate_is_wanted(const brim_config *config)
{
  return config->settings.total_clients > 0 && config->settings.federate.mode == BRIM_FEDERATE_PROCESSES;
}

/* ---- the table ---- */

/* Finds the first table of shares with rows among the policies' parameters; NULL if all are empty or no policy has
 * one. */
static const brim_shares *find_table(const brim_config *config, const char **policy)
{
  for (size_t i = 0; i < config->choice_count; i++) {
    const brim_config_choice *c = &config->choice[i];
    if (c->plugin->kind != BRIM_POLICY) continue;
    for (const brim_param *row = c->plugin->params; row && row->key; row++) {
      const brim_shares *shares = (const void *)((const char *)c->params + row->offset);
      if (row->type != BRIM_SHARES || shares->count == 0) continue;
      *policy = c->plugin->id;
      return shares;
    }
  }
  return NULL;
}

/* "cuda:1 client_2, cuda:1 server" */
static void list_shares(const brim_shares *table, char *out, size_t room)
{
  out[0] = '\0';
  for (size_t i = 0; i < table->count; i++) {
    const size_t length = strlen(out);
    snprintf(out + length, room - length, "%s%s of %s", i ? ", " : "", table->item[i].who, table->item[i].of);
  }
}

static brim_status check_names(const brim_shares *table, const char *policy, int32_t ranks)
{
  char list[1024], name[32];
  for (size_t i = 0; i < table->count; i++) {
    int32_t rank = 0;
    for (brim_federation_process(0, name, sizeof name); rank < ranks && strcmp(name, table->item[i].who) != 0;)
      brim_federation_process(++rank, name, sizeof name);
    if (rank < ranks) continue;
    list_shares(table, list, sizeof list);
    return brim_fail(BRIM_ECONFIG,
                     "policy.%s gives '%s' a share of %s, but no process has this name\nwith total_clients=%d the "
                     "processes are server and client_1%s; the table has: %s",
                     policy, table->item[i].who, table->item[i].of, (int)ranks - 1, ranks > 2 ? " and so on" : "",
                     list);
  }
  return BRIM_OK;
}

/* Finds the device that the user requests, with `device` or GPU_DEVICE_ID; empty: any device. */
static void find_wish(const brim_config *config, const char *backend, char *out, size_t room)
{
  const char *device = config->settings.device, *number = getenv("GPU_DEVICE_ID");
  out[0] = '\0';
  if (strchr(device, ':'))
    snprintf(out, room, "%s", device);
  else if (strcmp(device, "auto") == 0 && number && number[0])
    snprintf(out, room, "%s:%s", backend, number);
}

static bool is_of(const char *device, const char *backend)
{
  const size_t length = strlen(backend);
  return strncmp(device, backend, length) == 0 && device[length] == ':';
}

static brim_status take_share(const brim_config *config, const brim_shares *table, const char *policy,
                              brim_isolated *out)
{
  const char *backend = brim_config_choice_of(config, "backend")->plugin->id, *elsewhere = NULL;
  char list[1024], wish[64];
  find_wish(config, backend, wish, sizeof wish);
  for (size_t i = 0; i < table->count && !out->device[0]; i++) {
    const brim_share *share = &table->item[i];
    if (strcmp(share->who, out->name) != 0 || !is_of(share->of, backend)) continue;
    elsewhere = share->of;
    if (!wish[0] || strcmp(wish, share->of) == 0) snprintf(out->device, sizeof out->device, "%s", share->of);
  }
  if (out->device[0]) return BRIM_OK;
  if (elsewhere)
    return brim_fail(BRIM_ECONFIG, "policy.%s gives '%s' a share only of %s, but %s asks for %s", policy, out->name,
                     elsewhere, strchr(config->settings.device, ':') ? "device" : "GPU_DEVICE_ID", wish);
  list_shares(table, list, sizeof list);
  return brim_fail(BRIM_ECONFIG,
                   "policy.%s gives '%s' no share of a device of backend '%s'\nfederate.mode=processes needs one for "
                   "the server and for each client; the table has: %s",
                   policy, out->name, backend, list);
}

/* ---- devices that a process sees ---- */

/* Copies the item of CUDA_VISIBLE_DEVICES to which a process of this job gives the number `number`. */
static brim_status find_visible(const char *device, long number, char *out, size_t room)
{
  const char *all = getenv("CUDA_VISIBLE_DEVICES"), *at = all;
  if (!all || !all[0]) {
    snprintf(out, room, "%ld", number);
    return BRIM_OK;
  }
  for (long i = 0; i < number && at; i++) {
    at = strchr(at, ',');
    if (at) at++;
  }
  if (!at) return brim_fail(BRIM_ECONFIG, "there is no %s: CUDA_VISIBLE_DEVICES is '%s'", device, all);
  snprintf(out, room, "%.*s", (int)strcspn(at, ","), at);
  return BRIM_OK;
}

static bool is_on_gpus(const brim_config *config)
{
  return strcmp(brim_config_choice_of(config, "backend")->plugin->id, "cuda") == 0;
}

/* Finds a device that `device` names, among all devices. */
static brim_status narrow(const brim_config *config, brim_isolated *rank)
{
  const char *colon = strchr(rank->device, ':');
  if (!colon || !is_on_gpus(config) || strcmp(config->settings.device, "auto") != 0) return BRIM_OK;
  return find_visible(rank->device, strtol(colon + 1, NULL, 10), rank->visible, sizeof rank->visible);
}

/* ---- without a table ---- */

int32_t brim_launch_devices(const brim_config *config)
{
  const brim_config_choice *backend = brim_config_choice_of(config, "backend");
  const brim_backend_ops *ops = backend->plugin->ops;
  void *self = backend->params;
  brim_shared_folder_set(config->settings.claims.dir);
  if (backend->plugin->create && backend->plugin->create(backend->params, &self) != BRIM_OK) return 0;
  const int count = ops->device_count(self);
  if (backend->plugin->destroy) backend->plugin->destroy(self);
  return count;
}

/* Assigns devices in turn; the first client and the server get the first one. */
static void take_turns(const brim_config *config, int32_t ranks, brim_isolated *out)
{
  const char *backend = brim_config_choice_of(config, "backend")->plugin->id;
  char wish[64];
  find_wish(config, backend, wish, sizeof wish);
  const bool is_any = strcmp(config->settings.device, "auto") == 0 && !wish[0];
  const int count = is_any ? brim_launch_devices(config) : 0;
  for (int32_t r = 0; r < ranks && count > 1; r++)
    snprintf(out[r].device, sizeof out[r].device, "%s:%d", backend, r == 0 ? 0 : (int)(r - 1) % count);
}

/* Rejects shares of devices that do not exist. */
static brim_status check_devices(const brim_config *config, const brim_shares *table, const char *policy)
{
  const char *backend = brim_config_choice_of(config, "backend")->plugin->id;
  const int32_t count = brim_launch_devices(config);
  for (size_t i = 0; i < table->count && count > 0; i++) {
    const brim_share *share = &table->item[i];
    if (!is_of(share->of, backend) || strtol(share->of + strlen(backend) + 1, NULL, 10) < count) continue;
    return brim_fail(BRIM_ECONFIG,
                     "policy.%s gives '%s' a share of %s, but there is no such device\nbackend '%s' has %d device%s, "
                     "numbered from 0",
                     policy, share->who, share->of, backend, (int)count, count == 1 ? "" : "s");
  }
  return BRIM_OK;
}

brim_status brim_isolate_plan(const brim_config *config, int32_t ranks, brim_isolated *out)
{
  const char *policy = "";
  const brim_shares *table = find_table(config, &policy);
  for (int32_t r = 0; r < ranks; r++) brim_federation_process(r, out[r].name, sizeof out[r].name);
  if (table) BRIM_TRY(check_names(table, policy, ranks));
  if (!table) take_turns(config, ranks, out);
  for (int32_t r = 0; r < ranks; r++) {
    if (table) BRIM_TRY(take_share(config, table, policy, &out[r]));
    BRIM_TRY(narrow(config, &out[r]));
  }
  return table ? check_devices(config, table, policy) : BRIM_OK;
}

/* ---- the environment ---- */

static const char *const names[] = {"CLIENT_ID", BRIM_SHARE_DEVICE, "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ID"};
#define NAMES (sizeof names / sizeof names[0])
static struct {
  char *value[NAMES];
  bool is_kept;
} before;

void brim_isolate_set(const brim_isolated *rank)
{
  for (size_t i = 0; i < NAMES && !before.is_kept; i++)
    before.value[i] = getenv(names[i]) ? strdup(getenv(names[i])) : NULL;
  before.is_kept = true;
  setenv("CLIENT_ID", rank->name, 1);
  if (rank->device[0]) setenv(BRIM_SHARE_DEVICE, rank->device, 1);
  /* Unsets the variable, because brim has applied it already: it counts all GPUs of the host, but the process sees only
   * one. */
  if (rank->device[0]) unsetenv("GPU_DEVICE_ID");
  if (rank->visible[0]) setenv("CUDA_VISIBLE_DEVICES", rank->visible, 1);
}

void brim_isolate_unset(void)
{
  for (size_t i = 0; i < NAMES && before.is_kept; i++) {
    if (before.value[i])
      setenv(names[i], before.value[i], 1);
    else
      unsetenv(names[i]);
    free(before.value[i]);
  }
  before.is_kept = false;
}
