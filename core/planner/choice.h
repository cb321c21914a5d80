/* The values that determine the plan of a step, in a struct that can be compared and copied. */
#ifndef BRIM_PLANNER_CHOICE_H
#define BRIM_PLANNER_CHOICE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct brim_choice {
  int64_t micro_batch;   /* samples */
  int32_t precision;     /* enum brim_precision */
  int32_t recompute;     /* enum brim_recompute_kind */
  int32_t lanes;         /* in a federation: clients that train in parallel; else 0 */
  uint64_t within_bytes; /* peak limit of recompute=auto, which the other modes ignore; 0: as configured, or within
                            brim_planner_room */
} brim_choice;
bool brim_choice_equal(const brim_choice *a, const brim_choice *b);
/* Writes "micro-batch 64 -> 16" or, for a federation, "4 -> 2 clients at a time". */
void brim_choice_print_change(const brim_choice *from, const brim_choice *to, char *out, size_t room);
/* Returns the same choice with another micro-batch. */
brim_choice brim_choice_cut(const brim_choice *choice, int64_t micro_batch);
#endif
