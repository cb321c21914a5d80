/* Sweeps: overrides with several values become jobs, one for each combination; the last key varies fastest.
 *
 *     key=a,b,c            commas outside of brackets and quotes
 *     key=range(0,1,0.25)  from 0 in steps of 0.25, without the end; range(3) is range(0,3,1)
 *     group=glob(*)        the group's options that match; glob([a*,b*],exclude=*x) too
 *
 * The functions may be items of a list with commas. Expansion only produces words; loading a job's configuration checks
 * them. */
#ifndef BRIM_CONFIG_SWEEP_H
#define BRIM_CONFIG_SWEEP_H
#include "param/problems.h"

#define BRIM_SWEEP_JOBS_MAX 10000

/* Returns the options of a group. False if `group` is not a group. */
typedef struct brim_sweep_groups {
  bool (*options)(void *context, const char *group, const char *const **option, size_t *count);
  void *context;
} brim_sweep_groups;

/* One override and its values. */
typedef struct brim_sweep_axis {
  const char *key;           /* the key as typed, with its prefix; the whole word if it has no value */
  const char *const *choice; /* complete words, as if the user had typed each without a sweep */
  size_t count;              /* at least 1 */
} brim_sweep_axis;

typedef struct brim_sweep {
  brim_sweep_axis *axis; /* one for each word, in their order */
  size_t axis_count;
  size_t jobs; /* 1 .. BRIM_SWEEP_JOBS_MAX */
} brim_sweep;

/* Expands the words; adds errors to `problems`, in which case the result must not be used. `argument`: the number of
 * each word, for messages. `arena` owns the result. `groups` NULL: there are no groups. */
void brim_sweep_expand(brim_arena *arena, const char *const *word, const int *argument, size_t count,
                       const brim_sweep_groups *groups, brim_problems *problems, brim_sweep *out);
/* Runs every job `repeats` times, with the seeds seed, seed+1 ...: adds two words, which override earlier ones; the
 * last of them varies fastest. A sweep over `seed` or `repeats` itself is a problem. */
void brim_sweep_repeat(brim_arena *arena, int64_t seed, int64_t repeats, brim_problems *problems, brim_sweep *sweep);
/* The words of job `job`, counted from 0; `out` has room for axis_count. */
void brim_sweep_words(const brim_sweep *sweep, size_t job, const char **out);
#endif
