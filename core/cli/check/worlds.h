/* Synthetic devices, plans and memory with which `brim check` asks policies. A world is a function of its number. */
#ifndef BRIM_CLI_CHECK_WORLDS_H
#define BRIM_CLI_CHECK_WORLDS_H
#include "base/text.h"
#include "memory/policies.h"

#define BRIM_WORLD_EDGES 9    /* worlds 0 to 8 are edge cases; the others are random */
#define BRIM_WORLD_DEVICES 64 /* the most devices that policies ever see */
#define BRIM_WORLD_BATCHES 512

typedef struct brim_made_world {
  brim_demands demands;
  brim_device_view device[BRIM_WORLD_DEVICES];
  int64_t batch[BRIM_WORLD_BATCHES];
  uint64_t base_bytes, sample_bytes; /* a plan's peak is base_bytes + sample_bytes * micro-batch */
  uint64_t random;
  brim_policy_host host;
  brim_device_query devices;
  brim_plan_query plan; /* on the first device */
  brim_step_view step;
  int64_t now;    /* questions between steps */
  double seconds; /* since the world began */
} brim_made_world;

/* Makes a world. It points into itself, so it must not be moved. From now on the policies' clock (brim_policy_clock) is
 * that of the last world set; worlds begin at different hours. */
void brim_made_world_set(brim_made_world *world, uint64_t number);
/* Makes an out-of-memory event on a device, with a plan of this micro-batch. */
brim_oom brim_made_oom(brim_made_world *world, int32_t device, int64_t micro_batch, int64_t retries);
brim_memory_view brim_made_memory(brim_made_world *world, int64_t round);
/* Makes the next step, tenths of seconds to hours later; waiting runs come and go. */
const brim_step_view *brim_made_step(brim_made_world *world);
/* Makes the next second, in which nothing has changed. */
const brim_step_view *brim_made_same_step(brim_made_world *world);
/* Makes the run continue with another plan. */
void brim_made_follow(brim_made_world *world, const brim_step_plan *plan);
/* Adds "3 devices, cpu:0 with 1.0 GiB of 8.0 GiB free, micro-batches from 512 down to 1". */
void brim_made_world_print(const brim_made_world *world, brim_text *out);
#endif
