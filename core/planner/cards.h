/* For language models: the longest samples, and the largest micro-batch, of a run on cards of usual sizes. */
#ifndef BRIM_PLANNER_CARDS_H
#define BRIM_PLANNER_CARDS_H
#include "planner/planner.h"

#define BRIM_CARDS 6
/* The driver, the libraries and the headroom on a GPU, where they have not been measured. */
#define BRIM_CARDS_ASSUMED_BYTES ((uint64_t)1 << 30)

/* Every peak is that of an exact plan; with recompute=auto, of the plan that needs least, so the run fits if its peak
 * does. */
typedef struct brim_card {
  uint64_t card_bytes; /* of the card */
  uint64_t room_bytes; /* of them, for a plan */
  int64_t context;     /* tokens of a sample, within a 32nd of the largest; 0: nothing fits */
  uint64_t context_peak_bytes;
  int64_t micro_batch; /* of samples as configured: a power of two; 0: nothing fits */
  uint64_t batch_peak_bytes;
} brim_card;

typedef struct brim_cards {
  brim_card card[BRIM_CARDS]; /* by size */
  size_t count;               /* 0: the samples are no tokens, or the run is a federation */
  int64_t context;            /* of the run */
  bool limited;               /* the model takes no longer samples than the longest in the table */
  uint64_t besides_bytes;     /* of a card, that no plan gets: driver, libraries and headroom */
  bool is_measured;           /* besides_bytes was measured on the device of the run; else it is assumed */
  bool is_described;          /* no device is there: the libraries' scratch in the plans is assumed too */
} brim_cards;

/* [plan] `plan`: the plan of `choice`. Errors as for brim_planner_plan. */
brim_status brim_cards_find(const brim_planner *planner, const brim_choice *choice, const brim_plan *plan,
                            brim_cards *out);
#endif
