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
#include <stdint.h>

#include "brim/plugin.h"
#include "brim/random.h"
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
  const int32_t *last_round;     /* in which it trained last, counted from 0 */
  const int32_t *times;          /* that it has trained */
  const uint32_t *labels;        /* [count, classes] samples of each class; NULL unless needed, or without classes */
  const float *sketch; /* [count, BRIM_SKETCH] of the last update: sums of its values, each with a sign of its own and
                        * in a place of its own, so that inner products of sketches are about those of updates. NULL
                        * unless needed */
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

#ifdef __cplusplus
}
#endif
#endif
