/* For language models: the longest samples and the largest micro-batch with which a run fits GPUs of common sizes. */
#ifndef BRIM_PLANNER_CARDS_H
#define BRIM_PLANNER_CARDS_H
#include "planner/planner.h"

#define BRIM_CARDS 6
/* Assumed memory of the driver, the libraries and the headroom on a GPU where it has not been measured. */
#define BRIM_CARDS_ASSUMED_BYTES ((uint64_t)1 << 30)

/* Every peak is that of an exact plan; with recompute=auto, of the plan that needs least memory. So the run fits if its
 * peak does. */
typedef struct brim_card {
  uint64_t card_bytes; /* memory of the card */
  uint64_t room_bytes; /* bytes of these that a plan may use */
  int64_t context;     /* tokens of the longest sample, within a 32nd of the optimum; 0: nothing fits */
  uint64_t context_peak_bytes;
  int64_t micro_batch; /* with samples as configured; a power of two; 0: nothing fits */
  uint64_t batch_peak_bytes;
} brim_card;

typedef struct brim_cards {
  brim_card card[BRIM_CARDS]; /* sorted by size */
  size_t count;               /* 0: the samples are not tokens, or the run is a federation */
  int64_t context;            /* context of the run */
  bool limited;               /* the model does not accept longer samples than the longest in the table */
  uint64_t besides_bytes;     /* bytes of a GPU that no plan gets: driver, libraries and headroom */
  bool is_measured;           /* besides_bytes was measured on the run's device; else it is assumed */
  bool is_described;          /* the GPU is only described, so the libraries' scratch in the plans is assumed too */
} brim_cards;

/* [plan] Computes the table. `plan`: the plan of `choice`. Errors as for brim_planner_plan. */
brim_status brim_cards_find(const brim_planner *planner, const brim_choice *choice, const brim_plan *plan,
                            brim_cards *out);
#endif
