/* For authors of selectors: which clients of a federation train in a round.
 *
 * A selector sees columns of what is known of each client, and keeps nothing itself: what it wants to remember from one
 * round to the next lies in memory of brim's (`state`), which is part of checkpoints. So a federation that was stopped
 * goes on with the choices that it would have made. Random numbers come from the round's seed, never from a generator
 * with a state.
 *
 * All functions are called between rounds, on a thread of their own, on which brim also calls policies: a crash or a
 * loop ends the run with a checkpoint. Since ABI 1.9. */
#ifndef BRIM_SELECTOR_H
#define BRIM_SELECTOR_H
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "brim/plugin.h"
#include "brim/random.h"
#include "brim/status.h"
#ifdef __cplusplus
extern "C" {
#endif

/* What a selector needs besides the columns that are always there. */
enum brim_selector_need {
  BRIM_NEED_LABELS = 1, /* how many samples of each class clients have; costs 4 bytes a client and class */
  BRIM_NEED_SKETCH = 2, /* of clients' last updates; costs 4 * BRIM_SKETCH bytes a client */
  BRIM_NEED_LOSSES = 4, /* losses under the present model: see brim_selection_query.losses */
  BRIM_NEED_SQUARES = 8 /* square_loss */
};
#define BRIM_SKETCH 64 /* numbers of a sketch */

/* Columns of [count] clients; what is not known is NAN, and -1 in last_round. */
typedef struct brim_clients {
  uint32_t size;
  int64_t count, classes; /* classes: of the data set; 0: answers are no classes */
  const int64_t *samples;
  const float *loss,
      *square_loss;  /* means over the samples of its last training: of losses, and, if needed, of their squares */
  const float *norm; /* of its last update: the Euclidean norm of what all parameters have moved by */
  const float *seconds, *joules; /* that a round takes it, as the simulated world predicts; NAN: there is no world */
  const int32_t *last_round;     /* in which it was selected last, counted from 0 */
  const int32_t *times;          /* that it was selected, whether or not it arrived */
  const uint32_t *labels;        /* [count, classes] samples of each class; NULL unless needed, or without classes */
  const float *sketch;   /* [count, BRIM_SKETCH] of the last update: sums of its values, each with a sign of its own and
                          * in a place of its own, so that inner products of sketches are about those of updates. NULL
                          * unless needed */
  const float *accuracy; /* share of the answers of its last training that were right; NAN also where answers are
                          * values. Since ABI 1.10 */
} brim_clients;

typedef struct brim_selection_query {
  uint32_t size;
  int64_t round, wanted;   /* round: from 0; wanted: clients, at most `candidates` */
  double deadline_seconds; /* of a round; 0: none */
  const brim_clients *clients;
  const int64_t *candidate; /* [candidates] that are there, ascending */
  int64_t candidates;
  uint64_t seed;           /* of the round, for brim_random4(seed, BRIM_STREAM_SELECT, ...) */
  double *own, *of_client; /* state, as asked for by `state`; of_client: [count, of_client numbers] */
  /* [its thread] Mean losses of these clients' data under the present model, for a selector that needs them. */
  brim_status (*losses)(const struct brim_selection_query *query, const int64_t *client, int64_t count, float *out);
  void *host;
} brim_selection_query;

typedef struct brim_selection {
  int64_t *client; /* room for `wanted`: different ones, of the candidates */
  int64_t count;   /* may be fewer than wanted, but one */
} brim_selection;

/* A round that is over. */
typedef struct brim_selection_result {
  uint32_t size;
  int64_t round, count;
  const int64_t *client;  /* [count] as selected */
  const uint8_t *arrived; /* [count] 0: it dropped out, was late, or has diverged */
  double accuracy;        /* of the global model at the newest evaluation, which was before this round; NAN: none */
  double seconds;         /* simulated, of the round; NAN: there is no world */
  const brim_clients *clients; /* with what this round has brought */
  double *own, *of_client;     /* state */
} brim_selection_result;

typedef struct brim_selector_ops {
  uint32_t size, needs; /* of enum brim_selector_need */
  /* [init] How many doubles of state it has, and how many for each client; zero in the first round. NULL: none. */
  void (*state)(const void *self, const brim_clients *clients, int64_t *own, int64_t *of_client);
  /* [step] Selects. Must give the same for the same query. */
  brim_status (*select)(void *self, const brim_selection_query *query, brim_selection *out);
  /* [step] After a round. NULL: nothing. */
  brim_status (*learn)(void *self, const brim_selection_result *result);
} brim_selector_ops;

/* ---- for all selectors ---- */

/* Uniform in (0, 1), with 53 bits: number `item` of a round's `stream`. */
BRIM_ANYWHERE double brim_selection_draw(const brim_selection_query *query, uint32_t stream, int64_t item)
{
  const brim_philox r = brim_random4(query->seed, BRIM_STREAM_SELECT, stream, (uint64_t)item, 0);
  return ((double)(r.v[0] >> 6) * 134217728.0 + (double)(r.v[1] >> 5) + 0.5) * (1.0 / 9007199254740992.0);
}

/* The `wanted` clients of the highest score so far, as a heap whose first is the lowest of them; of equal scores those
 * with the lower number win. All clients need not be sorted, as there may be millions. */
typedef struct brim_best {
  double score;
  int64_t client;
} brim_best;

BRIM_ANYWHERE int brim_best_is_before(const brim_best *a, const brim_best *b)
{
  return a->score > b->score || (a->score == b->score && a->client < b->client);
}

/* Puts the element at `i` of `count` where it belongs. */
BRIM_ANYWHERE void brim_best_sink(brim_best *best, int64_t count, int64_t i)
{
  for (;;) {
    int64_t last = i;
    for (int64_t child = 2 * i + 1; child <= 2 * i + 2 && child < count; child++)
      if (brim_best_is_before(&best[last], &best[child])) last = child;
    if (last == i) return;
    const brim_best other = best[i];
    best[i] = best[last];
    best[last] = other;
    i = last;
  }
}

/* `best` has room for `wanted`, and holds *count. A score that is NAN is the lowest. */
BRIM_ANYWHERE void brim_best_add(brim_best *best, int64_t *count, int64_t wanted, int64_t client, double score)
{
  const brim_best one = {score == score ? score : -1.0 / 0.0, client};
  if (*count < wanted) {
    best[(*count)++] = one;
    if (*count == wanted)
      for (int64_t i = wanted / 2; i-- > 0;) brim_best_sink(best, wanted, i);
    return;
  }
  if (!brim_best_is_before(&one, &best[0])) return;
  best[0] = one;
  brim_best_sink(best, wanted, 0);
}

/* Puts them in the order of their scores, the highest first. */
BRIM_ANYWHERE void brim_best_sort(brim_best *best, int64_t count)
{
  for (int64_t i = count / 2; i-- > 0;) brim_best_sink(best, count, i);
  for (int64_t end = count; end-- > 1;) {
    const brim_best lowest = best[0];
    best[0] = best[end];
    best[end] = lowest;
    brim_best_sink(best, end, 0);
  }
}

/* Memory for `count` things of `size` bytes, all zero, to be freed; NULL after brim_fail(BRIM_ENOMEM_HOST). */
static inline void *brim_selection_alloc(int64_t count, size_t size)
{
  void *memory = calloc((size_t)(count > 0 ? count : 1), size);
  if (!memory) brim_fail(BRIM_ENOMEM_HOST, "no memory to select clients: %lld times %zu bytes", (long long)count, size);
  return memory;
}

/* A score for drawing without replacement in proportion to `share` > 0: the clients of the highest scores are those
 * drawn (Efraimidis and Spirakis: Weighted Random Sampling with a Reservoir, 2006). */
static inline double brim_score_drawn(const brim_selection_query *query, uint32_t stream, int64_t client, double share)
{
  return log(brim_selection_draw(query, stream, client)) / share;
}

/* The score of a client never seen: at random, and higher than any that is below 1e30. */
static inline double brim_score_new(const brim_selection_query *query, int64_t client)
{
  return 1e30 * (1 + brim_selection_draw(query, 0, client));
}

/* A tiny random number, by which equal scores differ. */
static inline double brim_score_tie(const brim_selection_query *query, int64_t client)
{
  return 1e-9 * brim_selection_draw(query, 0, client);
}

/* Selects the `wanted` candidates of the highest scores, the highest first. */
typedef double (*brim_score_fn)(const brim_selection_query *query, const void *context, int64_t client);
static inline brim_status brim_select_highest(const brim_selection_query *query, brim_score_fn score,
                                              const void *context, brim_selection *out)
{
  brim_best *best = (brim_best *)brim_selection_alloc(query->wanted, sizeof *best);
  if (!best) return BRIM_ENOMEM_HOST;
  for (int64_t i = 0; i < query->candidates; i++) {
    const int64_t client = query->candidate[i];
    brim_best_add(best, &out->count, query->wanted, client, score(query, context, client));
  }
  brim_best_sort(best, out->count);
  for (int64_t i = 0; i < out->count; i++) out->client[i] = best[i].client;
  free(best);
  return BRIM_OK;
}

/* The score of what clients came to when they trained last, by a column of it; those never seen come first, at random.
 */
static inline double brim_score_last(const brim_selection_query *query, const void *column, int64_t client)
{
  return query->clients->last_round[client] < 0 ? brim_score_new(query, client)
                                                : (double)((const float *)column)[client];
}

/* A function of sets of clients that grows the less by a client the more others are in the set (it is submodular). */
typedef struct brim_greedy {
  double (*gain)(void *context, int64_t client); /* by how much it grows if this client joins */
  void (*take)(void *context, int64_t client);   /* the client joins */
  void *context;
} brim_greedy;

/* Adds clients to `out`, each time the one of the highest gain, of equal ones the lowest number, until there are
 * `until` or all of `client`. Gains are computed anew only where they may matter (Minoux: Accelerated Greedy Algorithms
 * for Maximizing Submodular Set Functions, 1978). */
static inline brim_status brim_select_greedily(const brim_greedy *f, const int64_t *client, int64_t count,
                                               int64_t until, brim_selection *out)
{
  brim_best *heap = (brim_best *)brim_selection_alloc(count, sizeof *heap);
  if (!heap) return BRIM_ENOMEM_HOST;
  for (int64_t i = 0; i < count; i++) { /* the lowest is the first: signs are turned */
    heap[i].score = -f->gain(f->context, client[i]);
    heap[i].client = -client[i];
  }
  for (int64_t i = count / 2; i-- > 0;) brim_best_sink(heap, count, i);
  while (count > 0 && out->count < until) {
    const double score = -f->gain(f->context, -heap[0].client);
    if (score == heap[0].score) {
      out->client[out->count++] = -heap[0].client;
      f->take(f->context, -heap[0].client);
      heap[0] = heap[--count];
    } else {
      heap[0].score = score;
    }
    brim_best_sink(heap, count, 0);
  }
  free(heap);
  return BRIM_OK;
}

/* The value of rank `rank`, from 0, of `count` finite ones, whose order changes: no sorting is needed. */
static inline double brim_value_of_rank(double *value, int64_t count, int64_t rank)
{
  int64_t first = 0, last = count - 1;
  while (first < last) {
    const double a = value[first], b = value[first + (last - first) / 2], c = value[last];
    const double pivot = a < b ? (b < c ? b : a < c ? c : a) : (a < c ? a : b < c ? c : b);
    int64_t i = first, j = last;
    while (i <= j) {
      while (value[i] < pivot) i++;
      while (value[j] > pivot) j--;
      if (i > j) break;
      const double other = value[i];
      value[i++] = value[j];
      value[j--] = other;
    }
    if (rank <= j)
      last = j;
    else if (rank >= i)
      first = i;
    else
      return value[rank];
  }
  return value[rank];
}

/* The mean of what is known in a column of the candidates; NAN: nothing is. */
static inline double brim_mean_known(const brim_selection_query *query, const float *column)
{
  double sum = 0;
  int64_t known = 0;
  for (int64_t i = 0; i < query->candidates; i++)
    if (isfinite(column[query->candidate[i]])) {
      sum += (double)column[query->candidate[i]];
      known++;
    }
  return known > 0 ? sum / (double)known : NAN;
}

/* The highest last loss of the candidates; 0: none is known. */
static inline double brim_highest_loss(const brim_selection_query *query)
{
  double highest = 0;
  for (int64_t i = 0; i < query->candidates; i++)
    if ((double)query->clients->loss[query->candidate[i]] > highest)
      highest = (double)query->clients->loss[query->candidate[i]];
  return highest;
}

/* A client's last loss as a share of the highest: 1 if it was never seen, 0 if it was and no loss has arrived. */
static inline double brim_loss_share(const brim_selection_query *query, double highest, int64_t client)
{
  if (query->clients->last_round[client] < 0) return 1;
  const double loss = (double)query->clients->loss[client];
  return loss > 0 ? loss / highest : 0;
}

#ifdef __cplusplus
}
#endif
#endif
