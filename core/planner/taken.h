/* The memory that this process uses on a device besides plans, by class, and the memory that plans leave free for later
 * allocations.
 *
 * Contexts, library code, recorded programs and the connections of ranks take this memory. The backend measures them
 * (brim_backend_ops.takes) as they appear; the device profile keeps the measurements, so that the next process knows
 * them before it places anything:
 *
 *     context              the driver's
 *     node                 average of a program's nodes, once it is recorded
 *     libraries gpt2 bf16  of a model in a precision, after its programs have run: the largest measurement
 *     grown gpt2 bf16      of a model in a precision: growth of libraries and programs after the device was selected
 *     lane gpt2 bf16       of one of several lanes of a federation: handles and recorded programs
 *     ranks 8              connections of a job with this many ranks */
#ifndef BRIM_PLANNER_TAKEN_H
#define BRIM_PLANNER_TAKEN_H
#include <jansson.h>

#include "planner/headroom.h"

/* Bytes; BRIM_BYTES_UNKNOWN: not measured on such a device yet. */
typedef struct brim_taken {
  uint64_t context_bytes, libraries_bytes, programs_bytes;
  uint64_t node_bytes;     /* bytes per node of a recorded program */
  uint64_t comm_bytes;     /* 0: a single rank */
  uint64_t lanes_bytes;    /* in a federation that trains several clients at a time; else 0 */
  uint64_t arena_bytes;    /* exact; 0: no plan */
  uint64_t headroom_bytes; /* bytes left free in addition to the others */
  uint64_t total_bytes;    /* bytes of the process, without the headroom */
} brim_taken;

/* [init] Call after selecting a device: reads the values of its profile. ECONFIG if memory.profile belongs to another
 * device. */
brim_status brim_taken_learn(brim_planner *planner);
/* [init] Call after programs in `precision` (enum brim_precision) have run: stores the measurements in the device
 * profile. */
void brim_taken_keep(brim_planner *planner, int32_t precision);
/* [init] If the profile has no values for the model in the choice's precision: places the smallest plan, runs its
 * programs once on zeros, and keeps the measurements. No plan may be placed. Does nothing if timing is disabled; lack
 * of room is not an error. */
brim_status brim_taken_measure(brim_planner *planner, const brim_choice *choice);
/* [init] Connects the ranks of the job, if there is one, and measures the memory that their connections take. Errors as
 * for brim_dist_connect. */
brim_status brim_taken_connect(brim_planner *planner);

/* [plan] Predicts the memory that the process uses with a plan. */
void brim_taken_predict(const brim_planner *planner, const brim_plan *plan, brim_taken *out);
/* [init] Predicts the memory of a process on a device from its profile alone; the libraries' memory is that of the
 * model that needs most. */
void brim_taken_of_profile(const brim_profile *profile, brim_taken *out);
/* Appends a line for each class. */
void brim_taken_print(const brim_taken *taken, brim_text *out);
json_t *brim_taken_json(const brim_taken *taken);
#endif
