/* What this process takes of a device that is not the host, by class, and what plans leave free for what it takes
 * later.
 *
 * A context, libraries' code, recorded programs and the connections of ranks take memory that no plan counts. The
 * backend measures them (brim_backend_ops.takes) as they come; the device profile keeps what was measured, so that the
 * next process knows it before it places anything:
 *
 *     context              the driver's
 *     node                 of a program, on average, once that is recorded
 *     libraries gpt2 bf16  of a model in a precision, when its programs had run: the most that was measured
 *     grown gpt2 bf16      likewise, of the libraries and programs: what came after the device was selected
 *     ranks 8              connections of a job of so many ranks
 */
#ifndef BRIM_PLANNER_TAKEN_H
#define BRIM_PLANNER_TAKEN_H
#include <jansson.h>

#include "planner/headroom.h"

/* Bytes; BRIM_BYTES_UNKNOWN: not measured yet on such a device. */
typedef struct brim_taken {
  uint64_t context_bytes, libraries_bytes, programs_bytes;
  uint64_t node_bytes;     /* of a program's node, when it is recorded */
  uint64_t comm_bytes;     /* 0: there is one rank */
  uint64_t arena_bytes;    /* exact; 0: no plan */
  uint64_t headroom_bytes; /* left free beside all that */
  uint64_t total_bytes;    /* of the process, without the headroom */
} brim_taken;

/* [init] After a device was selected: reads what its profile has. ECONFIG if memory.profile is another device's. */
brim_status brim_taken_learn(brim_planner *planner);
/* [init] After programs in `precision` (enum brim_precision) have run: keeps what was measured in the device profile.
 */
void brim_taken_keep(brim_planner *planner, int32_t precision);
/* [init] If the profile has nothing of the model in the choice's precision: places the smallest plan, runs its programs
 * once on zeros, and keeps what that took. No plan may be placed. Nothing where nothing may be timed; no failure where
 * there is no room. */
brim_status brim_taken_measure(brim_planner *planner, const brim_choice *choice);
/* [init] Connects the ranks of the job, if there is one, and counts what that takes. What brim_dist_connect returns. */
brim_status brim_taken_connect(brim_planner *planner);

/* [plan] Of the process with a plan. */
void brim_taken_predict(const brim_planner *planner, const brim_plan *plan, brim_taken *out);
/* [init] Of a process on a device, by its profile alone; the libraries' are those of the model that takes most. */
void brim_taken_of_profile(const brim_profile *profile, brim_taken *out);
/* A line a class. */
void brim_taken_tell(const brim_taken *taken, brim_text *out);
json_t *brim_taken_json(const brim_taken *taken);
#endif
