#include "federate/world.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/text.h"
#include "brim/aggregator.h"
#include "federate/edges.h"
#include "federate/link.h"
#include "federate/trace.h"
#include "graph/op.h"

/* Streams of the world's random numbers. The bits above a stream hold the number of the attempt or of the availability
 * check. Stream 8 is that of edges.c. */
enum { SPEED = 1, CHANNEL, WALK, NETWORK, DAY, TURN, PRESENCE };
#define NUMBERED(stream, number) ((uint32_t)(number) << 4 | (uint32_t)(stream))
#define CHECKS_MAX 10000 /* limit for availability checks, after which the round fails */

struct brim_fleet {
  brim_arena arena; /* owns all arrays but mbit */
  const brim_setup *setup;
  const brim_world_settings *world;
  const brim_network_settings *network;
  uint64_t seed;
  int64_t clients;
  /* The counts are for the model's own operations, before fusion and recompute, so that they do not depend on plan or
   * backend. */
  uint64_t batch_flops, look_flops, update_flops; /* per batch in training and in evaluation; per update */
  bool looks;              /* a client of a round also computes its loss under the global model, for the aggregator */
  int64_t bytes, up_bytes; /* bytes sent by the server (as fp32), and by a client */
  float *gflops;           /* [clients] */
  float *mbit;             /* [clients] from world.devices; NULL: the networks' bandwidth applies */
  float *channel;          /* [clients] in round channel_round */
  int64_t channel_round;
  int64_t rounds;  /* rounds of an edge, or of a client without edges, in a round of the server */
  uint8_t *seen;   /* [federate.edges] while edges are counted */
  double *slowest; /* [federate.edges] seconds of each edge's slowest client in a round */
  brim_trace_times times;
};

/* ---- random numbers ---- */

static brim_philox draw(const brim_fleet *f, uint32_t stream, int64_t item, uint32_t block)
{
  return brim_random4(f->seed, BRIM_STREAM_WORLD, stream, (uint64_t)item, block);
}

/* In (0, 1). */
static double uniform(uint32_t x)
{
  return ((double)x + 0.5) * (1.0 / 4294967296.0);
}

/* Draws a random number per client and round. */
static uint32_t draw_by_round(const brim_fleet *f, uint32_t stream, int64_t client, int64_t round)
{
  return draw(f, stream, client, (uint32_t)(round / 4)).v[round % 4];
}

/* ---- constants ---- */

static uint64_t count_flops(const brim_graph *g)
{
  uint64_t flops = 0;
  for (size_t i = 0; i < g->node_count; i++) flops += brim_op_cost(g->node[i]).flops;
  return flops;
}

/* Sets the bytes that the server sends to a client and those that the client sends back. */
static void count_bytes(brim_fleet *f, const brim_graph *g)
{
  for (size_t i = 0; i < g->parameter_count; i++) {
    const int64_t values = brim_shape_count(&g->parameter[i].value->shape), whole = values * (int64_t)sizeof(float);
    if (!brim_parameter_is_sent(&g->parameter[i])) continue;
    f->bytes += whole;
    f->up_bytes += g->parameter[i].is_buffer ? whole : brim_setup_compressed_bytes(f->setup, values);
    if (!brim_setup_sends_controls(f->setup) || !brim_parameter_is_controlled(&g->parameter[i])) continue;
    f->bytes += whole; /* controls */
    f->up_bytes += whole;
  }
}

/* Measures the model as written, for a batch of training.effective_batch_size samples. */
static brim_status measure_model(brim_fleet *f)
{
  const brim_setup *s = f->setup;
  brim_graph_options options = brim_setup_graph_options(s, BRIM_PRECISION_FP32);
  brim_update_options update = {0};
  brim_graph *train = NULL, *look = NULL, *step = NULL;
  options.fuse = 0;
  options.batch = s->settings->training.effective_batch_size;
  brim_optimizer_describe(s->optimizer->ops, s->optimizer_params, &update);
  brim_status status = brim_graph_build(&options, &look);
  options.training = true;
  if (status == BRIM_OK) status = brim_graph_build(&options, &train);
  if (status == BRIM_OK) status = brim_graph_build_update(train, &update, &step);
  if (status == BRIM_OK) {
    f->batch_flops = count_flops(train);
    f->look_flops = count_flops(look);
    f->update_flops = count_flops(step);
    count_bytes(f, train);
  }
  brim_graph *const all[] = {train, look, step};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
    if (all[i]) brim_graph_free(all[i]);
  return status;
}

static void begin_channels(brim_fleet *f)
{
  const double least = f->world->channel_least;
  for (int64_t k = 0; k < f->clients; k++)
    f->channel[k] = (float)(least + (1 - least) * uniform(draw(f, CHANNEL, k, 0).v[0]));
  f->channel_round = 0;
}

static brim_status open_fleet(brim_fleet *f)
{
  const size_t clients = (size_t)f->clients;
  const int64_t edges = f->setup->settings->federate.edges + 1;
  if (!BRIM_ARENA_TRY(&f->arena, f->gflops, clients) || !BRIM_ARENA_TRY(&f->arena, f->channel, clients) ||
      !BRIM_ARENA_TRY(&f->arena, f->seen, edges) || !BRIM_ARENA_TRY(&f->arena, f->slowest, edges))
    return brim_fail(BRIM_ENOMEM_HOST, "no host memory for a world of %zu clients", clients);
  begin_channels(f);
  BRIM_TRY(measure_model(f));
  if (f->world->availability == BRIM_AVAILABILITY_TRACE)
    BRIM_TRY(brim_trace_read_times(f->world->trace, f->clients, &f->times));
  if (f->world->devices[0]) return brim_trace_read_devices(f->world->devices, f->clients, f->gflops, &f->mbit);
  const double full_turn = 6.283185307179586;
  for (int64_t k = 0; k < f->clients; k++) {
    const brim_philox r = draw(f, SPEED, k, 0);
    const double normal = sqrt(-2 * log(uniform(r.v[0]))) * cos(full_turn * uniform(r.v[1]));
    f->gflops[k] = (float)(f->world->gflops * exp(f->world->speed_sigma * normal));
  }
  return BRIM_OK;
}

brim_status brim_fleet_open(const brim_setup *setup, brim_fleet **out)
{
  *out = NULL;
  if (!setup->settings->has_world) return BRIM_OK;
  brim_fleet *f = brim_try_calloc(1, sizeof *f);
  if (!f) return brim_fail(BRIM_ENOMEM_HOST, "no host memory for a simulated world");
  f->setup = setup;
  f->world = &setup->settings->world;
  f->network = &setup->settings->network;
  f->seed = (uint64_t)setup->settings->seed;
  f->clients = setup->partition.clients;
  f->rounds = setup->settings->federate.edge_rounds;
  f->looks = (brim_setup_aggregator(setup)->needs & BRIM_NEED_LOSS_BEFORE) != 0;
  const brim_status status = open_fleet(f);
  if (status == BRIM_OK)
    *out = f;
  else
    brim_fleet_close(f);
  return status;
}

void brim_fleet_close(brim_fleet *f)
{
  if (!f) return;
  brim_trace_release(&f->times);
  free(f->mbit);
  brim_arena_release(&f->arena);
  free(f);
}

void brim_fleet_print(const brim_fleet *f, brim_text *out)
{
  brim_text_printf(out,
                   "a batch of %lld samples is %" PRIu64 " operations, an update %" PRIu64
                   ", a loss of that batch %" PRIu64 "; the model is %" PRId64 " bytes",
                   (long long)f->setup->settings->training.effective_batch_size, f->batch_flops, f->update_flops,
                   f->look_flops, f->bytes);
  if (f->up_bytes == f->bytes)
    brim_text_add(out, " each way");
  else
    brim_text_printf(out, ", a compressed update %" PRId64, f->up_bytes);
}

const char *brim_outcome_name(enum brim_outcome outcome)
{
  static const char *const names[] = {"", "dropout", "late", "surplus", "stale"};
  return names[outcome];
}

/* ---- a client's time ---- */

/* Computes the channels: a random walk within [channel_least, 1], reflected at its ends. */
static void walk_channels(brim_fleet *f, int64_t round)
{
  const double least = f->world->channel_least, step = f->world->channel_step;
  if (round < f->channel_round) begin_channels(f); /* the run has resumed from an earlier checkpoint */
  for (; f->channel_round < round; f->channel_round++)
    for (int64_t k = 0; k < f->clients; k++) {
      const double u = uniform(draw_by_round(f, WALK, k, f->channel_round));
      double at = (double)f->channel[k] + step * (2 * u - 1);
      if (at > 1) at = 2 - at;
      if (at < least) at = 2 * least - at;
      f->channel[k] = (float)(at > 1 ? 1 : at);
    }
}

/* The phases of a client's round, in order; if its edge has several rounds, the sum of each phase over them. */
typedef struct phases {
  double down, compute, up; /* seconds */
} phases;

static brim_link find_link(const brim_fleet *f, int64_t client, int64_t round)
{
  brim_link link = brim_link_of(
      f->network, f->network->latency_ms.count > 1 ? uniform(draw_by_round(f, NETWORK, client, round)) : 0);
  if (f->mbit) link.mbit = (double)f->mbit[client];
  return link;
}

/* Returns the seconds of a transfer between the client and its edge or the server. */
static double send(const brim_fleet *f, const brim_link *link, int64_t client, int64_t bytes, double delay)
{
  return brim_link_seconds(link, (double)f->channel[client], bytes, delay);
}

/* Returns the seconds of the client's training, and of its loss under the global model if the aggregator needs that. */
static double train_seconds(const brim_fleet *f, int64_t client)
{
  const brim_setup *s = f->setup;
  const int64_t batch = s->settings->training.effective_batch_size,
                samples = brim_setup_client_samples(s, brim_partition_count(&s->partition, client)),
                steps = (samples + batch - 1) / batch;
  const double epoch =
      (double)f->batch_flops * (double)samples / (double)batch + (double)f->update_flops * (double)steps;
  const double look = f->looks ? (double)f->look_flops * (double)samples / (double)batch : 0;
  return ((double)s->settings->federate.local_epochs * epoch + look) / (1e9 * (double)f->gflops[client]);
}

static phases predict(const brim_fleet *f, int64_t client, int64_t round, double down, double up)
{
  const brim_link n = find_link(f, client, round);
  const double rounds = (double)f->rounds;
  return (phases){rounds * send(f, &n, client, f->bytes, down), rounds * train_seconds(f, client),
                  rounds * send(f, &n, client, f->up_bytes, up)};
}

static double joules_of(const brim_fleet *f, double radio, double compute)
{
  return f->world->radio_watts * radio + f->world->compute_watts * compute;
}

/* The client's cost after `seconds`. */
static brim_expense spend(const brim_fleet *f, const phases *p, double seconds)
{
  const double all = p->down + p->compute + p->up;
  if (seconds >= all)
    return (brim_expense){all, joules_of(f, p->down + p->up, p->compute), f->rounds * (f->bytes + f->up_bytes)};
  const double down = fmin(seconds, p->down), compute = fmin(seconds - down, p->compute),
               up = fmin(seconds - down - compute, p->up);
  const double rounds = (double)f->rounds, received = rounds * (p->down > 0 ? down / p->down : 1) * (double)f->bytes,
               sent = rounds * (up > 0 ? up / p->up : 0) * (double)f->up_bytes;
  return (brim_expense){seconds, joules_of(f, down + up, compute), (int64_t)floor(received + sent)};
}

/* ---- availability ---- */

static bool is_there(const brim_fleet *f, int64_t client, double clock)
{
  if (f->world->availability == BRIM_AVAILABILITY_TRACE) return brim_trace_is_there(&f->times, client, clock);
  const double phase = uniform(draw(f, DAY, client, 0).v[0]), day = clock / f->world->day_seconds + phase;
  return day - floor(day) < f->world->day_share;
}

/* Lists the available clients; `look`: the number of this check in the round. */
static int64_t list_candidates(const brim_fleet *f, const brim_moment *m, int64_t look, int64_t *out)
{
  const int32_t availability = f->world->availability;
  int64_t count = 0;
  brim_philox four = {{0}};
  for (int64_t k = 0; k < f->clients; k++) {
    bool there = true;
    if (availability == BRIM_AVAILABILITY_BERNOULLI) {
      if (k % 4 == 0) four = draw(f, NUMBERED(PRESENCE, look), k / 4, (uint32_t)m->number);
      there = uniform(four.v[k % 4]) < f->world->probability;
    } else if (availability != BRIM_AVAILABILITY_ALWAYS) {
      there = is_there(f, k, m->clock);
    }
    if (there) out[count++] = k;
  }
  return count;
}

static void predict_all(const brim_fleet *f, const brim_moment *m, brim_fleet_columns *c)
{
  for (int64_t k = 0; k < f->clients; k++) {
    const phases p = predict(f, k, m->round, 0, 0);
    const brim_edge_trip trip = brim_edge_trip_of(f->setup, m, k, f->bytes, false);
    c->seconds[k] = (float)(trip.down + p.down + p.compute + p.up + trip.up);
    c->joules[k] = (float)joules_of(f, p.down + p.up, p.compute);
  }
}

static brim_status refuse_wait(const brim_moment *m, double waited, int64_t needed)
{
  return brim_fail(
      BRIM_ENUMERIC,
      "round %" PRId64 ": waited %g simulated seconds, but fewer than %" PRId64
      " clients were available at every check\nset world.too_few=go_on with a smaller federate.min_clients, or change "
      "clients_per_round or world.availability",
      m->round + 1, waited, needed);
}

/* Returns the seconds after which availability repeats; 0: never. */
static double period_of(const brim_fleet *f)
{
  if (f->world->availability == BRIM_AVAILABILITY_TRACE) return f->times.period;
  return f->world->availability == BRIM_AVAILABILITY_DAY ? f->world->day_seconds : 0;
}

brim_status brim_fleet_gather(brim_fleet *f, brim_moment *m, brim_fleet_columns *columns, int64_t *candidates)
{
  const brim_settings *s = f->setup->settings;
  const int64_t asked = s->clients_per_round,
                needed = f->world->too_few == BRIM_TOO_FEW_WAIT ? asked : s->federate.min_clients;
  const double start = m->clock, period = period_of(f);
  int64_t look = 0;
  walk_channels(f, m->round);
  predict_all(f, m, columns);
  for (;;) {
    /* Checks of different attempts have different numbers. */
    *candidates = list_candidates(f, m, look * BRIM_ATTEMPTS_MAX + m->attempt, columns->candidate);
    if (*candidates >= needed) break;
    if (++look == CHECKS_MAX || (period > 0 && m->clock - start > period))
      return refuse_wait(m, m->clock - start, needed);
    m->clock += f->world->check_seconds;
  }
  if (look > 0)
    brim_log(BRIM_LOG_INFO, "round %" PRId64 ": waited %g simulated seconds until %" PRId64 " clients were available",
             m->round + 1, m->clock - start, needed);
  if (*candidates < asked)
    brim_log(BRIM_LOG_INFO, "round %" PRId64 ": continues with %" PRId64 " available clients, of %" PRId64,
             m->round + 1, *candidates, asked);
  return BRIM_OK;
}

int64_t brim_fleet_look(brim_fleet *f, const brim_moment *m, brim_fleet_columns *columns)
{
  walk_channels(f, m->round);
  predict_all(f, m, columns);
  return list_candidates(f, m, 0, columns->candidate);
}

/* ---- a round ---- */

/* Returns the longest time of a client's transfers: on the slowest network, at the worst quality of the channel. */
static double longest_transfers(const brim_network_settings *n, double channel, double bytes)
{
  double most = 0;
  for (size_t k = 0; k < n->latency_ms.count && n->sleep; k++) {
    const double each = 1e-3 * (n->latency_ms.item[k] + n->jitter_ms.item[k]),
                 rate = 1e6 / 8 * n->bandwidth_mbit.item[k] * channel * (1 - 1e-2 * n->loss_percent.item[k]);
    most = fmax(most, 2 * each + bytes / rate);
  }
  return most;
}

double brim_fleet_longest_sleep(const brim_fleet *f)
{
  const brim_settings *s = f->setup->settings;
  return (double)f->rounds * longest_transfers(&s->network, f->world->channel_least, (double)(f->bytes + f->up_bytes)) +
         longest_transfers(&s->edge_network, 1, 2.0 * (double)f->bytes);
}

brim_expense brim_fleet_ask(const brim_fleet *f, const brim_moment *m, const int64_t *client, int64_t count)
{
  const brim_setup *s = f->setup;
  brim_expense all = {0, 0, 0, 0};
  for (int64_t i = 0; i < count; i++) {
    const brim_link n = find_link(f, client[i], m->round);
    const brim_edge_trip trip = brim_edge_trip_of(s, m, client[i], f->bytes, false);
    const int64_t samples = brim_setup_client_samples(s, brim_partition_count(&s->partition, client[i]));
    const double down = send(f, &n, client[i], f->bytes, 0),
                 compute = (double)f->look_flops * (double)samples /
                           (double)s->settings->training.effective_batch_size / (1e9 * (double)f->gflops[client[i]]);
    all.seconds = fmax(all.seconds, trip.down + down + compute);
    all.joules += joules_of(f, down, compute);
    all.bytes += f->bytes;
  }
  all.edge_bytes = brim_edges_count(s, client, count, NULL, f->seen) * f->bytes;
  all.bytes += all.edge_bytes;
  return all;
}

/* Draws when the client finishes or stops, independently of the other clients. */
static phases begin_turn(const brim_fleet *f, const brim_moment *m, int64_t client, brim_fate *fate)
{
  const brim_philox r = draw(f, NUMBERED(TURN, m->attempt), client, (uint32_t)m->number);
  const phases p = predict(f, client, m->round, 2 * uniform(r.v[0]) - 1, 2 * uniform(r.v[1]) - 1);
  const double all = p.down + p.compute + p.up;
  const bool drops = uniform(r.v[2]) < f->world->dropout;
  *fate = (brim_fate){drops ? BRIM_OUTCOME_DROPOUT : BRIM_OUTCOME_ARRIVES, {drops ? all * uniform(r.v[3]) : all, 0, 0}};
  return p;
}

void brim_fleet_start(const brim_fleet *f, const brim_moment *m, int64_t client, brim_fate *fate)
{
  const phases p = begin_turn(f, m, client, fate);
  fate->spent = spend(f, &p, fate->spent.seconds);
}

/* Keeps the `wanted` clients that arrive first; of clients that arrive together, those that were selected first. */
static void drop_surplus(brim_fate *fate, int64_t count, int64_t wanted)
{
  int64_t arrives = 0;
  for (int64_t i = 0; i < count; i++) arrives += fate[i].outcome == BRIM_OUTCOME_ARRIVES;
  for (; arrives > wanted; arrives--) {
    int64_t last = -1;
    for (int64_t i = 0; i < count; i++)
      if (fate[i].outcome == BRIM_OUTCOME_ARRIVES && (last < 0 || fate[i].spent.seconds >= fate[last].spent.seconds))
        last = i;
    fate[last].outcome = BRIM_OUTCOME_SURPLUS;
  }
}

/* Returns the end of the round. It ends when the last client that it waits for has arrived or stopped; at the deadline
 * if clients are late; with a surplus, when enough have arrived. */
static double find_end(const brim_fate *fate, int64_t count, double deadline)
{
  double arrived = 0, stopped = 0;
  bool late = false, surplus = false;
  for (int64_t i = 0; i < count; i++) {
    const double seconds = fate[i].spent.seconds;
    late = late || fate[i].outcome == BRIM_OUTCOME_LATE;
    surplus = surplus || fate[i].outcome == BRIM_OUTCOME_SURPLUS;
    if (fate[i].outcome == BRIM_OUTCOME_ARRIVES) arrived = fmax(arrived, seconds);
    if (fate[i].outcome == BRIM_OUTCOME_DROPOUT) stopped = fmax(stopped, seconds);
  }
  return surplus ? arrived : late ? deadline : fmax(arrived, stopped);
}

/* A round of an edge takes as long as its slowest client. Clients that stop take part in no such round. */
static void wait_for_edges(const brim_fleet *f, const int64_t *client, int64_t count, brim_fate *fate)
{
  const int64_t edges = f->setup->settings->federate.edges;
  memset(f->slowest, 0, (size_t)edges * sizeof *f->slowest);
  for (int64_t i = 0; i < count; i++) {
    double *seconds = &f->slowest[client[i] % edges];
    if (fate[i].outcome == BRIM_OUTCOME_ARRIVES) *seconds = fmax(*seconds, fate[i].spent.seconds);
  }
  for (int64_t i = 0; i < count; i++)
    if (fate[i].outcome == BRIM_OUTCOME_ARRIVES) fate[i].spent.seconds = f->slowest[client[i] % edges];
}

brim_expense brim_fleet_play(const brim_fleet *f, const brim_moment *m, const int64_t *client, int64_t count,
                             brim_fate *fate)
{
  const brim_settings *s = f->setup->settings;
  const double deadline = s->federate.deadline_seconds;
  for (int64_t i = 0; i < count; i++) begin_turn(f, m, client[i], &fate[i]);
  if (f->rounds > 1) wait_for_edges(f, client, count, fate);
  for (int64_t i = 0; i < count; i++) {
    const brim_edge_trip trip = brim_edge_trip_of(f->setup, m, client[i], f->bytes, true);
    fate[i].spent.seconds += trip.down + trip.up; /* adds the time until the server has the sum */
    if (deadline > 0 && fate[i].spent.seconds > deadline) fate[i].outcome = BRIM_OUTCOME_LATE;
  }
  if (!s->privacy.draws_poisson) drop_surplus(fate, count, s->clients_per_round);
  brim_expense all = {find_end(fate, count, deadline), 0, 0, 0};
  for (int64_t i = 0; i < count; i++) {
    brim_fate other;
    const phases p = begin_turn(f, m, client[i], &other);
    const brim_edge_trip trip = brim_edge_trip_of(f->setup, m, client[i], f->bytes, true);
    fate[i].spent = spend(f, &p, fmin(other.spent.seconds, fmax(all.seconds - trip.down, 0)));
    fate[i].down_sleep = (f->network->sleep ? p.down : 0) + (s->edge_network.sleep ? trip.down : 0);
    fate[i].up_sleep = (f->network->sleep ? p.up : 0) + (s->edge_network.sleep ? trip.up : 0);
    all.joules += fate[i].spent.joules;
    all.bytes += fate[i].spent.bytes;
  }
  all.edge_bytes = f->bytes * (brim_edges_count(f->setup, client, count, NULL, f->seen) +
                               brim_edges_count(f->setup, client, count, fate, f->seen));
  all.bytes += all.edge_bytes;
  return all;
}
