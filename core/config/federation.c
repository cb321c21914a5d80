#include "config/federation.h"

#include <stdio.h>
#include <string.h>

#include "brim/aggregator.h"
#include "brim/selector.h"
#include "config/privacy.h"
#include "config/refusal.h"
#include "param/value.h"

#define PROCESSES_MAX 1024

const char *brim_federation_process(int32_t rank, char *out, size_t room)
{
  snprintf(out, room, rank == 0 ? "server" : "client_%d", (int)rank);
  return out;
}

/* Whether the key has a value other than its default, or is on the command line. */
static bool is_set(const brim_composition *c, const brim_schema *schema, const brim_config *config, const char *path)
{
  const brim_param *row = brim_schema_find(schema, path)->row;
  const brim_yaml *node = brim_yaml_get_path(config->root, path);
  return node->origin.text || !brim_value_same(row, node, brim_value_default(row, c->arena), c->arena);
}

/* If a file, such as an experiment, sets training.epochs, it means the passes of a client over its own samples, unless
 * that key is set too. On the command line the user may mean rounds, so that is an error. */
static void take_epochs(brim_composition *c, const brim_schema *schema, brim_config *config)
{
  brim_yaml *epochs = brim_yaml_get_path(config->root, "training.epochs"),
            *local = brim_yaml_get_path(config->root, "federate.local_epochs");
  if (epochs->origin.text || !is_set(c, schema, config, "training.epochs")) return;
  if (!is_set(c, schema, config, "federate.local_epochs")) {
    brim_problem(&c->notes, BRIM_OK, "training.epochs=%s is taken as federate.local_epochs=%s, as there are clients",
                 epochs->scalar, epochs->scalar);
    config->settings.federate.local_epochs = config->settings.training.epochs;
    local->scalar = epochs->scalar;
    local->origin = epochs->origin;
  }
  epochs->scalar = brim_value_default(brim_schema_find(schema, "training.epochs")->row, c->arena)->scalar;
}

/* Rejects keys that have no meaning, or another effect, with clients. */
static void refuse_keys(brim_composition *c, const brim_schema *schema, const brim_config *config)
{
  const brim_settings *s = &config->settings;
  const brim_refusal keys[] = {
      {"training.epochs", is_set(c, schema, config, "training.epochs"), "a federation counts rounds",
       "set rounds=N, and federate.local_epochs=N for the passes of a client over its own samples"},
      {"training.steps", s->training.steps > 0, "a federation counts rounds", "set rounds=N"},
      {"training.eval_every_steps", s->training.eval_every_steps > 0, "a federation counts rounds",
       "set federate.eval_every_rounds=N"},
      {"training.checkpoint_every_steps", s->training.checkpoint_every_steps > 0, "a federation counts rounds",
       "set federate.checkpoint_every_rounds=N"},
      {"training.ema_decay", s->training.ema_decay > 0, "clients begin each round with the global model",
       "leave it at 0; server_optimizer.momentum averages over rounds"},
      {"precision", s->precision == BRIM_PRECISION_FP16,
       "fp16 needs a loss scale, which every client would have to find for itself", "take precision=bf16 or fp32"},
      {"augment.mixup", s->augment.mixup > 0, "a sample's partner may belong to another client", "leave it at 0"},
      {"augmentation", brim_settings_mix(s) && s->augment.mixup == 0, "a sample's partner may belong to another client",
       "leave out the one that mixes samples"},
      {"memory.offload", s->memory.offload != BRIM_OFFLOAD_NONE, "a client's optimizer lives for one round only",
       "take memory.offload=none"},
      {"dist.shard", s->dist.shard != 0, "every rank trains whole clients", "take dist.shard=none"},
  };
  char with[48];
  snprintf(with, sizeof with, "total_clients=%lld", (long long)s->total_clients);
  brim_refuse(c, config, keys, sizeof keys / sizeof keys[0], with);
}

/* Adds a problem for a key that has no effect; `where`: "without edges". */
static void no_effect(brim_composition *c, const brim_config *config, const char *path, const char *where,
                      const char *instead)
{
  brim_problem_at(&c->problems, brim_origin_of(config, path), "'%s' has no effect %s", path, where);
  brim_problem_hint(&c->problems, "%s", instead);
}

/* Adds a problem for a number of clients above its limit, which is that of `of`. */
static void check_most(brim_composition *c, const brim_config *config, const char *path, int64_t value, int64_t limit,
                       const char *of, const char *otherwise)
{
  if (value <= limit) return;
  brim_problem_at(&c->problems, brim_origin_of(config, path), "%s %lld is more than the %lld clients of %s", path,
                  (long long)value, (long long)limit, of);
  brim_problem_hint(&c->problems, "set %s to %lld at most%s", path, (long long)limit, otherwise);
}

/* ---- clients in processes of their own ---- */

static void refuse_processes(brim_composition *c, const brim_config *config)
{
  const brim_settings *s = &config->settings;
  const brim_config_choice *aggregator = brim_config_aggregator(config);
  const brim_aggregator_ops *ops = aggregator ? aggregator->plugin->ops : NULL;
  const brim_yaml *named = brim_yaml_get_path(config->root, "policy.capped.client");
  const brim_refusal keys[] = {
      {"parallel_clients", s->parallel_clients > 1, "each client has a process, which trains it alone",
       "leave it at -1"},
      {"comm.id", strcmp(brim_config_choice_of(config, "comm")->plugin->id, "auto") != 0,
       "the processes exchange messages with the process that starts them", "take comm=auto"},
      {"aggregator.id", ops && ops->merge,
       "it compares the updates of all clients, which every process would have to receive",
       "take fedavg, uniform, qfedavg or fednova, or federate.mode=simulate"},
      {"policy.capped.client", named && named->scalar && named->scalar[0],
       "each process has a client's name of its own", "leave it empty"},
  };
  brim_refuse(c, config, keys, sizeof keys / sizeof keys[0], "federate.mode=processes");
}

/* Sets the number of processes: one for each client, and one for the server. */
static void count_processes(brim_composition *c, brim_config *config)
{
  brim_settings *s = &config->settings;
  const int64_t processes = s->total_clients + 1;
  if (s->federate.mode != BRIM_FEDERATE_PROCESSES) return;
  refuse_processes(c, config);
  if (s->dist.ranks > 0 && s->dist.ranks != processes) {
    brim_problem_at(&c->problems, brim_origin_of(config, "dist.ranks"),
                    "dist.ranks is %lld, but federate.mode=processes has a process for each of the %lld clients and "
                    "one for the server: %lld",
                    (long long)s->dist.ranks, (long long)s->total_clients, (long long)processes);
    brim_problem_hint(&c->problems, "leave dist.ranks out, or change total_clients");
  }
  if (processes > PROCESSES_MAX) {
    brim_problem_at(&c->problems, brim_origin_of(config, "total_clients"),
                    "federate.mode=processes would start %lld processes; the limit is %d", (long long)processes,
                    PROCESSES_MAX);
    brim_problem_hint(&c->problems, "set total_clients to %d at most, or federate.mode=simulate", PROCESSES_MAX - 1);
  }
  s->dist.ranks = processes;
}

/* ---- the simulated world ---- */

/* Whether a key of the section has a value other than its default, set on the command line or in a file, because a
 * resumed run cannot tell which. */
static bool is_changed(const brim_composition *c, const brim_schema *schema, const brim_config *config,
                       const char *section)
{
  for (size_t i = 0; i < schema->count; i++) {
    const brim_schema_row *row = &schema->row[i];
    if (!row->section || strcmp(row->section->path, section) != 0) continue;
    const brim_yaml *node = brim_yaml_get_path(config->root, row->path);
    if (node && !brim_value_same(row->row, node, brim_value_default(row->row, c->arena), c->arena)) return true;
  }
  return false;
}

/* Checks that the four lists describe the same networks. `section`: "network" or "edge_network". */
static void check_network(brim_composition *c, const brim_config *config, const char *section,
                          const brim_network_settings *n)
{
  const struct {
    const char *key;
    size_t count;
  } lists[] = {{"jitter_ms", n->jitter_ms.count},
               {"bandwidth_mbit", n->bandwidth_mbit.count},
               {"loss_percent", n->loss_percent.count}};
  for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
    const char *path = brim_arena_printf(c->arena, "%s.%s", section, lists[i].key);
    if (lists[i].count == n->latency_ms.count) continue;
    brim_problem_at(&c->problems, brim_origin_of(config, path), "'%s' has %zu value%s, and %s.latency_ms has %zu", path,
                    lists[i].count, lists[i].count == 1 ? "" : "s", section, n->latency_ms.count);
    brim_problem_hint(&c->problems, "each network needs one value of latency_ms, jitter_ms, bandwidth_mbit and "
                                    "loss_percent");
  }
}

/* Checks network.sleep: clients wait in the lanes that train them. */
static void check_sleep(brim_composition *c, const brim_config *config, const char *section,
                        const brim_network_settings *n)
{
  const brim_federate_settings *f = &config->settings.federate;
  const char *path = brim_arena_printf(c->arena, "%s.sleep", section);
  const brim_refusal keys[] = {
      {path, n->latency_ms.count == 0, "no transfer takes time", "choose a network, or leave it out"},
      {path, !f->train, "nothing trains, so nothing waits", "leave it out"},
      {path, f->async, "clients train in the order in which they arrive, and not at the same time", "leave it out"},
  };
  const char *const with[] = {brim_arena_printf(c->arena, "%s=none", section), "federate.train=false",
                              "federate.async=true"};
  for (size_t i = 0; i < sizeof keys / sizeof keys[0] && n->sleep; i++) brim_refuse(c, config, &keys[i], 1, with[i]);
}

/* ---- edges ---- */

/* Rejects settings that edge rounds do not support. An edge's model is a mean that the core computes, and clients train
 * several times before a round commits. */
static void refuse_edge_rounds(brim_composition *c, const brim_config *config)
{
  static const char states[] = "clients have no state between an edge's rounds";
  const brim_settings *s = &config->settings;
  const brim_federate_settings *f = &s->federate;
  const brim_config_choice *aggregator = brim_config_aggregator(config);
  const char *id = !aggregator ? "fedavg" : aggregator->file[0] ? "" : aggregator->plugin->id;
  const brim_refusal keys[] = {
      {"aggregator.id", strcmp(id, "fedavg") != 0 && strcmp(id, "uniform") != 0,
       "an edge's model is the mean of its clients' models", "set aggregator=fedavg or uniform"},
      {"federate.local", f->local >= BRIM_LOCAL_SCAFFOLD, states, "set federate.local=fedavg or fedprox"},
      {"federate.norm_buffers", f->norm_buffers == BRIM_NORM_BUFFERS_KEEP, states, "set it to average"},
      {"federate.local_parameters", f->local_parameters[0] != '\0', states, "leave it out"},
      {"federate.error_feedback", f->error_feedback, states, "leave it out"},
      {"federate.personal", f->personal != BRIM_PERSONAL_NONE, states, "leave it out"},
      {"federate.mode", f->mode == BRIM_FEDERATE_PROCESSES, "an edge is a part of the process that trains its clients",
       "set federate.mode=simulate"},
      {"federate.over_selection", f->over_selection > 0, "all clients of an edge arrive together", "leave it out"},
      {"privacy.clip_norm", s->privacy.clip_norm > 0, "a client sends several updates in a round", "leave it out"},
  };
  if (f->edge_rounds > 1) brim_refuse(c, config, keys, sizeof keys / sizeof keys[0], "federate.edge_rounds above 1");
}

static void check_edges(brim_composition *c, const brim_schema *schema, const brim_config *config)
{
  const brim_settings *s = &config->settings;
  const brim_config_choice *aggregator = brim_config_aggregator(config);
  const brim_aggregator_ops *ops = aggregator ? aggregator->plugin->ops : NULL;
  check_network(c, config, "edge_network", &s->edge_network);
  check_sleep(c, config, "edge_network", &s->edge_network);
  if (s->federate.edges == 0 && is_changed(c, schema, config, "edge_network")) {
    brim_problem_at(&c->problems, brim_origin_of(config, "edge_network.latency_ms"),
                    "'edge_network' has no effect without edges");
    brim_problem_hint(&c->problems, "set federate.edges=N, or edge_network=none");
  }
  check_most(c, config, "federate.edges", s->federate.edges, s->total_clients, "total_clients", "");
  if (s->federate.edges == 0 && s->federate.edge_rounds > 1)
    no_effect(c, config, "federate.edge_rounds", "without edges", "set federate.edges=N, or leave it out");
  refuse_edge_rounds(c, config);
  const brim_refusal keys[] = {
      {"federate.async", s->federate.async, "an edge adds up the updates of clients that start together",
       "leave one of them out"},
      {"aggregator.id", ops && ops->merge, "the server gets sums from the edges, and not each update",
       "set aggregator=fedavg, uniform, qfedavg or fednova"},
  };
  if (s->federate.edges > 0) brim_refuse(c, config, keys, sizeof keys / sizeof keys[0], "federate.edges");
}

/* Returns the key that turns on the simulated world, if it is not world.simulate. */
static const char *cause_of_world(const brim_composition *c, const brim_schema *schema, const brim_config *config)
{
  const brim_federate_settings *f = &config->settings.federate;
  if (f->async) return "federate.async";
  if (f->edges > 0) return "federate.edges";
  if (f->deadline_seconds > 0) return "federate.deadline_seconds";
  if (f->over_selection > 0) return "federate.over_selection";
  if (is_changed(c, schema, config, "network")) return "network";
  return is_changed(c, schema, config, "world") ? "a key of world" : NULL;
}

/* Decides whether the world is simulated. Only the command line can turn it off, because false is also the default. */
static void decide_world(brim_composition *c, const brim_schema *schema, brim_config *config)
{
  const brim_yaml *node = brim_yaml_get_path(config->root, "world.simulate");
  const char *cause = cause_of_world(c, schema, config);
  config->settings.has_world = cause != NULL;
  if (!cause || config->settings.world.simulate || !node || !node->origin.text) return;
  brim_problem_at(&c->problems, &node->origin, "world.simulate=false has no effect: %s switches the simulation on",
                  cause);
  brim_problem_hint(&c->problems, "leave out one of the two");
}

static void check_world(brim_composition *c, const brim_config *config)
{
  const brim_world_settings *w = &config->settings.world;
  const bool traced = w->availability == BRIM_AVAILABILITY_TRACE;
  check_network(c, config, "network", &config->settings.network);
  check_sleep(c, config, "network", &config->settings.network);
  if (traced && !w->trace[0]) {
    brim_problem_at(&c->problems, brim_origin_of(config, "world.availability"),
                    "world.availability=trace needs a trace");
    brim_problem_hint(&c->problems, "set world.trace=FILE, a CSV file with the columns client,start,end");
  }
  if (!traced && w->trace[0])
    no_effect(c, config, "world.trace", "here", "set world.availability=trace, or leave world.trace out");
}

/* Rejects keys that the chosen federate.local does not read. */
static void check_local(brim_composition *c, const brim_schema *schema, const brim_config *config)
{
  static const char *const instead[] = {[BRIM_LOCAL_FEDAVG] = "fedprox, whose mu=0 is federated averaging",
                                        [BRIM_LOCAL_SCAFFOLD] = "scaffold_fedprox",
                                        [BRIM_LOCAL_FEDDYN] = "fedprox (the strength of feddyn is federate.alpha)"};
  const brim_federate_settings *f = &config->settings.federate;
  const char *where =
      brim_arena_printf(c->arena, "with federate.local=%s", brim_yaml_get_path(config->root, "federate.local")->scalar);
  if (instead[f->local] && is_set(c, schema, config, "federate.mu"))
    no_effect(c, config, "federate.mu", where,
              brim_arena_printf(c->arena, "set federate.local=%s, or leave it out", instead[f->local]));
  if (f->local != BRIM_LOCAL_FEDDYN && is_set(c, schema, config, "federate.alpha"))
    no_effect(c, config, "federate.alpha", where,
              "set federate.local=feddyn, or leave it out; the partition has partition.alpha");
}

static void check_numbers(brim_composition *c, const brim_schema *schema, const brim_config *config)
{
  const brim_settings *s = &config->settings;
  check_most(c, config, "clients_per_round", s->clients_per_round, s->total_clients, "total_clients",
             ", or total_clients higher");
  check_most(c, config, "federate.min_clients", s->federate.min_clients, s->clients_per_round, "a round",
             ", or clients_per_round higher");
  check_local(c, schema, config);
  if (s->federate.finetune_epochs > 0 && !s->federate.train)
    no_effect(c, config, "federate.finetune_epochs", "with federate.train=false", "leave out one of the two");
}

/* Checks personal models: Ditto's have all parameters, and local parameters are personal already. */
static void check_personal(brim_composition *c, const brim_schema *schema, const brim_config *config)
{
  static const char *const keys[] = {"federate.personal_lambda", "federate.personal_epochs"};
  const brim_federate_settings *f = &config->settings.federate;
  const bool is_ditto = f->personal == BRIM_PERSONAL_DITTO;
  const brim_refusal refused[] = {{"federate.local_parameters", is_ditto && f->local_parameters[0],
                                   "a personal model has all parameters, and none of them is averaged",
                                   "leave one of the two out"}};
  brim_refuse(c, config, refused, 1, "federate.personal=ditto");
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
    if (!is_ditto && is_set(c, schema, config, keys[i]))
      no_effect(c, config, keys[i], "with federate.personal=none", "set federate.personal=ditto, or leave it out");
}

/* ---- malicious clients ---- */

static void check_attackers(brim_composition *c, const brim_config *config)
{
  const brim_attack_settings *a = &config->settings.attack;
  const long long clients = (long long)config->settings.total_clients;
  if (a->share > 0 && a->clients.count > 0) {
    brim_problem_at(&c->problems, brim_origin_of(config, "attack.share"),
                    "attack.share=%g and attack.clients both name the malicious clients", a->share);
    brim_problem_hint(&c->problems, "leave out one of them");
  }
  if (a->share == 0 && a->clients.count == 0) {
    brim_problem_at(&c->problems, brim_origin_of(config, "attack.kind"), "no client is malicious");
    brim_problem_hint(&c->problems, "set attack.share=0.2, or attack.clients=[0,1], or attack.kind=none");
  }
  for (size_t i = 0; i < a->clients.count; i++) {
    const double k = a->clients.item[i];
    if (k == (double)(long long)k && k < (double)clients) continue;
    brim_problem_at(&c->problems, brim_origin_of(config, "attack.clients"), "attack.clients has %g, which is no client",
                    k);
    brim_problem_hint(&c->problems, "clients are numbered from 0 to %lld (total_clients=%lld)", clients - 1, clients);
  }
}

static void check_attack(brim_composition *c, const brim_schema *schema, const brim_config *config)
{
  static const char *const keys[] = {"attack.share", "attack.clients", "attack.scale"};
  const int32_t kind = config->settings.attack.kind;
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
    const bool has_effect = kind != BRIM_ATTACK_NONE && !(kind == BRIM_ATTACK_LABEL_FLIP && i == 2);
    if (has_effect || !is_set(c, schema, config, keys[i])) continue;
    no_effect(c, config, keys[i], kind == BRIM_ATTACK_NONE ? "with attack.kind=none" : "with attack.kind=label_flip",
              i == 2 ? "set attack.kind to sign_flip or noise, or leave it out"
                     : "set attack.kind to sign_flip or noise or label_flip, or leave it out");
  }
  if (kind != BRIM_ATTACK_NONE) check_attackers(c, config);
}

/* ---- aggregators ---- */

/* Checks that rounds have as many updates as the aggregator needs. */
static void check_aggregator(brim_composition *c, brim_config *config)
{
  brim_settings *s = &config->settings;
  const brim_config_choice *choice = brim_config_aggregator(config);
  const brim_aggregator_ops *ops = choice ? choice->plugin->ops : NULL;
  const int64_t least = ops && ops->least ? ops->least(choice->params) : 1;
  if (least > s->clients_per_round) {
    brim_problem_at(&c->problems, brim_origin_of(config, "aggregator.id"),
                    "aggregator=%s, as configured, needs the updates of %lld clients, and a round has %lld",
                    choice->plugin->id, (long long)least, (long long)s->clients_per_round);
    brim_problem_hint(&c->problems, "set clients_per_round to %lld at least%s", (long long)least,
                      brim_yaml_get_path(config->root, "aggregator.byzantine") ? ", or aggregator.byzantine lower"
                                                                               : "");
  }
  if (s->federate.min_clients < least) s->federate.min_clients = least;
}

/* Rejects keys that the chosen kind of compression does not read. */
static void check_compression(brim_composition *c, const brim_schema *schema, const brim_config *config)
{
  static const struct {
    const char *key, *kind;
    int32_t of;
  } keys[] = {{"federate.compression_bits", "quantize", BRIM_COMPRESSION_QUANTIZE},
              {"federate.compression_share", "top_k", BRIM_COMPRESSION_TOP_K}};
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
    if (config->settings.federate.compression == keys[i].of || !is_set(c, schema, config, keys[i].key)) continue;
    const char *kind = brim_arena_printf(c->arena, "federate.compression=%s", keys[i].kind);
    no_effect(c, config, keys[i].key, brim_arena_printf(c->arena, "without %s", kind),
              brim_arena_printf(c->arena, "set %s, or leave it out", kind));
  }
  if (config->settings.federate.compression == BRIM_COMPRESSION_NONE && config->settings.federate.error_feedback)
    no_effect(c, config, "federate.error_feedback", "with federate.compression=none",
              "set federate.compression to sign, top_k or quantize, or leave it out");
}

/* ---- asynchronous rounds ---- */

/* Rejects settings that assume that a round's clients start together, or that no client is in flight twice. */
static void refuse_async(brim_composition *c, const brim_schema *schema, const brim_config *config)
{
  const brim_settings *s = &config->settings;
  const brim_federate_settings *f = &s->federate;
  const brim_config_choice *aggregator = brim_config_aggregator(config), *method = brim_config_method(config);
  const brim_aggregator_ops *ops = aggregator ? aggregator->plugin->ops : NULL;
  const brim_selector_ops *selector = method ? method->plugin->ops : NULL;
  const brim_refusal keys[] = {
      {"federate.deadline_seconds", f->deadline_seconds > 0, "a round has no start from which clients could be late",
       "set federate.max_staleness, which leaves out updates by rounds"},
      {"federate.over_selection", f->over_selection > 0, "a round takes the first updates of all clients in flight",
       "set federate.concurrency higher"},
      {"world.too_few", is_set(c, schema, config, "world.too_few"),
       "a place stays free until a client is available, and rounds do not wait for many", "leave it out"},
      {"federate.local", f->local >= BRIM_LOCAL_SCAFFOLD,
       "the controls of client and server would be of different rounds", "set federate.local=fedavg or fedprox"},
      {"federate.norm_buffers", f->norm_buffers == BRIM_NORM_BUFFERS_KEEP, "clients have no state",
       "set it to average"},
      {"federate.local_parameters", f->local_parameters[0] != '\0', "clients have no state", "leave it out"},
      {"federate.error_feedback", f->error_feedback, "clients have no state", "leave it out"},
      {"federate.personal", f->personal != BRIM_PERSONAL_NONE, "clients have no state", "leave it out"},
      {"privacy.clip_norm", s->privacy.clip_norm > 0, "epsilon is computed for clients that are drawn in each round",
       "leave it out"},
      {"aggregator.id", ops && ops->merge, "it compares updates, which start from different models here",
       "set aggregator=fedavg, uniform or fednova"},
      {"aggregator.id", ops && ops->needs & BRIM_NEED_LOSS_BEFORE, "it needs the losses of all clients under one model",
       "set aggregator=fedavg, uniform or fednova"},
      {"method.id", selector && selector->needs & BRIM_NEED_LOSSES, "it asks clients for their losses before a round",
       "set method=random, or another that needs no such losses"},
      {"method.id", method && strcmp(method->plugin->id, "round_robin") == 0,
       "its turns are those of rounds whose clients start together", "set method=random"},
  };
  brim_refuse(c, config, keys, sizeof keys / sizeof keys[0], "federate.async=true");
}

static void check_async(brim_composition *c, const brim_schema *schema, brim_config *config)
{
  static const char *const keys[] = {"federate.concurrency", "federate.max_staleness", "federate.staleness_exponent"};
  brim_settings *s = &config->settings;
  if (s->federate.async) {
    if (s->federate.concurrency == 0) s->federate.concurrency = s->clients_per_round;
    refuse_async(c, schema, config);
    check_most(c, config, "federate.concurrency", s->federate.concurrency, s->total_clients, "total_clients",
               ": a client is in flight once");
    return;
  }
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
    if (is_set(c, schema, config, keys[i]))
      no_effect(c, config, keys[i], "without federate.async=true", "set federate.async=true, or leave it out");
}

/* Rejects groups that have no effect without clients. On the command line such a choice is intentional. A file may also
 * be for federations, but then it has no reason to choose a server's optimizer. */
static void refuse_choices(brim_composition *c, const brim_config *config)
{
  const struct {
    const char *group, *path;
    const brim_config_choice *choice;
    bool also_in_files;
  } choices[] = {{"method", "method.id", brim_config_method(config), false},
                 {"aggregator", "aggregator.id", brim_config_aggregator(config), false},
                 {"server_optimizer", "server_optimizer.id", brim_config_server_optimizer(config), true}};
  for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
    const brim_yaml_origin *origin = brim_origin_of(config, choices[i].path);
    if (!choices[i].choice || !(choices[i].also_in_files || origin->text)) continue;
    brim_problem_at(&c->problems, origin, "%s=%s has no effect without clients", choices[i].group,
                    choices[i].choice->plugin->id);
    brim_problem_hint(&c->problems, "to train federated, write brim federate, or set total_clients=N");
  }
}

/* Reports total_clients=0 in a federation as one mistake, instead of each key that needs clients. */
static bool refuse_no_clients(brim_composition *c, const brim_config *config)
{
  const brim_yaml *clients = brim_yaml_get_path(config->root, "total_clients");
  if (!clients || !clients->origin.text || !brim_config_server_optimizer(config)) return false;
  brim_problem_at(&c->problems, &clients->origin, "there are no clients: total_clients is 0");
  brim_problem_hint(&c->problems, "set total_clients=N, or train without a federation: brim train");
  return true;
}

void brim_federation_resolve(brim_composition *c, const brim_schema *schema, brim_config *config)
{
  brim_settings *s = &config->settings;
  const brim_config_choice *server = brim_config_server_optimizer(config);
  if (s->total_clients == 0) {
    if (refuse_no_clients(c, config)) return;
    brim_privacy_refuse(c, config);
    refuse_choices(c, config);
    return;
  }
  take_epochs(c, schema, config);
  refuse_keys(c, schema, config);
  if (!server) {
    brim_problem_at(&c->problems, brim_origin_of(config, "total_clients"),
                    "no option is chosen for group 'server_optimizer', which moves the global model");
    brim_problem_hint(&c->problems,
                      "federated averaging is server_optimizer=sgd server_optimizer.lr=1 "
                      "server_optimizer.momentum=0; `brim federate` and `--config-name federate` have it by "
                      "default");
  }
  if (!brim_config_method(config)) {
    brim_problem_at(&c->problems, brim_origin_of(config, "total_clients"),
                    "no option is chosen for group 'method', which selects the clients of a round");
    brim_problem_hint(&c->problems, "method=random selects all clients with the same probability; it is the default "
                                    "of `brim federate`");
  }
  check_numbers(c, schema, config);
  count_processes(c, config);
  check_personal(c, schema, config);
  check_attack(c, schema, config);
  check_aggregator(c, config);
  check_compression(c, schema, config);
  check_async(c, schema, config);
  check_edges(c, schema, config);
  decide_world(c, schema, config);
  check_world(c, config);
  brim_privacy_resolve(c, config);
  s->training.steps = s->rounds;
  s->training.epochs = s->rounds;
  s->training.eval_every_steps = s->federate.eval_every_rounds;
  s->training.checkpoint_every_steps = s->federate.checkpoint_every_rounds;
  if (s->federate.train || s->rounds == 0) return;
  s->training.eval_every_steps = s->rounds; /* evaluate once, because the model does not change */
  s->training.checkpoint_every_steps = s->rounds;
}
