/* For authors of selectors: which clients of a federation train in a round.
 *
 * A selector gets columns of data about each client. It must not keep state of its own: brim provides memory (`state`)
 * for values that it needs in a later round, and saves that memory in checkpoints. So a resumed federation makes the
 * same choices as one that was not interrupted. Random numbers must come from the round's seed, not from a generator
 * with a state.
 *
 * brim calls all functions between rounds, on the thread that also runs policies: if a selector crashes or hangs, brim
 * writes a checkpoint and ends the run. Since ABI 1.9. */
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

/* Data that a selector needs besides the columns that are always present. */
enum brim_selector_need {
  BRIM_NEED_LABELS = 1, /* `labels`; costs 4 bytes per client and class */
  BRIM_NEED_SKETCH = 2, /* `sketch`; costs 4 * BRIM_SKETCH bytes per client */
  BRIM_NEED_LOSSES = 4, /* losses with the current model: brim_selection_query.losses */
  BRIM_NEED_SQUARES = 8 /* `square_loss` */
};
#define BRIM_SKETCH 64 /* numbers in a sketch */

/* Columns with one entry per client. An unknown value is NAN, in last_round -1. */
typedef struct brim_clients {
  uint32_t size;
  int64_t count, classes; /* classes: of the dataset; 0 if the task is not BRIM_TASK_CLASS */
  const int64_t *samples;
  const float *loss, *square_loss; /* mean loss over the samples of the client's last training, and, with
                                      BRIM_NEED_SQUARES, mean squared loss */
  const float *norm;               /* Euclidean norm of its last update, over all parameters */
  const float *seconds,
      *joules; /* predicted time and energy of a round, from the simulated world; NAN: no simulated world */
  const int32_t *last_round; /* the last round in which it was selected, counted from 0 */
  const int32_t *times;      /* how often it was selected, whether or not its update arrived */
  const uint32_t *labels; /* [count, classes] samples of each class; NULL without BRIM_NEED_LABELS or without classes */
  const float *sketch; /* [count, BRIM_SKETCH] a count sketch of the last update: each value is added to one entry, with
                          a fixed pseudorandom sign and place, so that inner products of sketches approximate those of
                          updates. NULL without BRIM_NEED_SKETCH */
  const float *accuracy; /* accuracy over its last training; NAN also for BRIM_TASK_VALUES. Since ABI 1.10 */
} brim_clients;

typedef struct brim_selection_query {
  uint32_t size;
  int64_t round, wanted;   /* round: from 0; wanted: clients, at most `candidates` */
  double deadline_seconds; /* deadline of a round; 0: no deadline */
  const brim_clients *clients;
  const int64_t *candidate; /* [candidates] the available clients, ascending */
  int64_t candidates;
  uint64_t seed;           /* the round's seed, for brim_random4(seed, BRIM_STREAM_SELECT, ...) */
  double *own, *of_client; /* the state, of the sizes that state() set; of_client: [count, numbers per client] */
  /* [step] Computes the mean losses of the given clients' samples with the current model. Only within select(), on its
   * thread. Requires BRIM_NEED_LOSSES. */
  brim_status (*losses)(const struct brim_selection_query *query, const int64_t *client, int64_t count, float *out);
  void *host; /* private to the core */
} brim_selection_query;

typedef struct brim_selection {
  int64_t *client; /* room for `wanted` distinct candidates */
  int64_t count;   /* at least 1, at most `wanted` */
} brim_selection;

/* The result of a finished round. */
typedef struct brim_selection_result {
  uint32_t size;
  int64_t round, count;
  const int64_t *client;  /* [count] the selected clients */
  const uint8_t *arrived; /* [count] 0: it dropped out, was late, or diverged */
  double accuracy;        /* accuracy of the global model at the last evaluation before this round; NAN: none yet */
  double seconds;         /* simulated duration of the round; NAN: no simulated world */
  const brim_clients *clients; /* updated by this round */
  double *own, *of_client;     /* the state, to be updated */
} brim_selection_result;

typedef struct brim_selector_ops {
  uint32_t size, needs; /* needs: bits of enum brim_selector_need */
  /* [init] Sets how many doubles of state the selector needs, and how many per client. They are 0 in the first round.
   * NULL: no state. */
  void (*state)(const void *self, const brim_clients *clients, int64_t *own, int64_t *of_client);
  /* [step] Selects the clients of a round. Must return the same selection for the same query. */
  brim_status (*select)(void *self, const brim_selection_query *query, brim_selection *out);
  /* [step] Updates the state with a round's result; called after each round. May be NULL. */
  brim_status (*learn)(void *self, const brim_selection_result *result);
} brim_selector_ops;

/* ---- helper functions ---- */

/* Uniform in (0, 1), with 53 bits: number `item` of a round's `stream`. */
BRIM_ANYWHERE double brim_selection_draw(const brim_selection_query *query, uint32_t stream, int64_t item)
{
  const brim_philox r = brim_random4(query->seed, BRIM_STREAM_SELECT, stream, (uint64_t)item, 0);
  return ((double)(r.v[0] >> 6) * 134217728.0 + (double)(r.v[1] >> 5) + 0.5) * (1.0 / 9007199254740992.0);
}

/* A heap of the `wanted` clients with the highest scores so far; the lowest of them is the first. Of equal scores the
 * lower client number wins. It avoids sorting all clients, of which there may be millions. */
typedef struct brim_best {
  double score;
  int64_t client;
} brim_best;

/* Whether `a` has the higher score, or the same score and the lower client number. */
BRIM_ANYWHERE int brim_best_is_before(const brim_best *a, const brim_best *b)
{
  return a->score > b->score || (a->score == b->score && a->client < b->client);
}

/* Sifts element `i` of `count` down. */
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

/* Adds a client. `best` has room for `wanted` and holds *count. A NAN score counts as the lowest. */
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

/* Sorts by score, highest first. */
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

/* Zeroed memory for `count` items of `size` bytes, to be freed by the caller; NULL after
 * brim_fail(BRIM_ENOMEM_HOST). */
static inline void *brim_selection_alloc(int64_t count, size_t size)
{
  void *memory = calloc((size_t)(count > 0 ? count : 1), size);
  if (!memory) brim_fail(BRIM_ENOMEM_HOST, "no memory to select clients: %lld times %zu bytes", (long long)count, size);
  return memory;
}

/* A score for drawing without replacement in proportion to `share` > 0: the clients with the highest scores are drawn
 * (Efraimidis and Spirakis: Weighted Random Sampling with a Reservoir, 2006). */
static inline double brim_score_drawn(const brim_selection_query *query, uint32_t stream, int64_t client, double share)
{
  return log(brim_selection_draw(query, stream, client)) / share;
}

/* The score of a client that was never selected: random, at least 1e30. */
static inline double brim_score_new(const brim_selection_query *query, int64_t client)
{
  return 1e30 * (1 + brim_selection_draw(query, 0, client));
}

/* A tiny random number that breaks ties between equal scores. */
static inline double brim_score_tie(const brim_selection_query *query, int64_t client)
{
  return 1e-9 * brim_selection_draw(query, 0, client);
}

/* Returns the score of a client; NAN counts as the lowest. */
typedef double (*brim_score_fn)(const brim_selection_query *query, const void *context, int64_t client);

/* Selects the `wanted` candidates with the highest scores, highest first. */
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

/* Scores clients by a column of their last training; clients never selected come first, in random order. */
static inline double brim_score_last(const brim_selection_query *query, const void *column, int64_t client)
{
  return query->clients->last_round[client] < 0 ? brim_score_new(query, client)
                                                : (double)((const float *)column)[client];
}

/* A submodular function of a set of clients: adding a client gains less, the more clients are in the set. */
typedef struct brim_greedy {
  double (*gain)(void *context, int64_t client); /* the gain of adding this client */
  void (*take)(void *context, int64_t client);   /* adds the client */
  void *context;
} brim_greedy;

/* Adds the client with the highest gain to `out` (of equal gains the lowest number), until `out` has `until` clients or
 * all of `client`. Recomputes a gain only if it can affect the choice (Minoux: Accelerated Greedy Algorithms for
 * Maximizing Submodular Set Functions, 1978). */
static inline brim_status brim_select_greedily(const brim_greedy *f, const int64_t *client, int64_t count,
                                               int64_t until, brim_selection *out)
{
  brim_best *heap = (brim_best *)brim_selection_alloc(count, sizeof *heap);
  if (!heap) return BRIM_ENOMEM_HOST;
  for (int64_t i = 0; i < count; i++) { /* the heap has the lowest first: signs are inverted */
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

/* Returns the value of rank `rank`, from 0, of `count` finite values (quickselect; reorders them). */
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

/* The mean of the candidates' known values in a column; NAN if none is known. */
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

/* The highest last loss of the candidates; 0 if none is known. */
static inline double brim_highest_loss(const brim_selection_query *query)
{
  double highest = 0;
  for (int64_t i = 0; i < query->candidates; i++)
    if ((double)query->clients->loss[query->candidate[i]] > highest)
      highest = (double)query->clients->loss[query->candidate[i]];
  return highest;
}

/* A client's last loss as a share of the highest: 1 if it was never selected, 0 if it was selected but its loss is
 * unknown. */
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
