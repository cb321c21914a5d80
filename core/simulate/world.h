/* The world that a simulation's jobs are in: devices and the host's memory, who has how much of it, and the line of
 * those who wait. It knows nothing of policies. Not thread-safe: the job that has the turn (turns.c) calls it. */
#ifndef BRIM_SIMULATE_WORLD_H
#define BRIM_SIMULATE_WORLD_H
#include "brim/backend.h"
#include "memory/claims.h"
#include "simulate/scenario.h"

#define BRIM_SCENE_HOST (-1) /* in the place of a device's number */

typedef struct brim_scene brim_scene;
/* Something has happened that is none of a job's doing. */
typedef void (*brim_scene_tell_fn)(void *context, const char *who, const char *what);

/* What others have suffered, in seconds. */
typedef struct brim_scene_others {
  double waited; /* runs in line */
  double lacked; /* programs that did not get all that they wanted */
} brim_scene_others;

/* [init] The scenario must outlive it. */
brim_scene *brim_scene_open(const brim_scenario *scenario, brim_scene_tell_fn tell, void *context);
void brim_scene_close(brim_scene *scene);
/* Seconds since the scenario's beginning; never back. */
void brim_scene_advance(brim_scene *scene, double to);
const double *brim_scene_clock(const brim_scene *scene); /* since 1970 */
double brim_scene_now(const brim_scene *scene);
double brim_scene_next(const brim_scene *scene); /* when something happens by itself next; infinite: never */
brim_scene_others brim_scene_others_of(const brim_scene *scene);

/* How many times as long steps on a device take for its neighbours there; BRIM_SCENE_HOST: the host's processors. */
double brim_scene_slowness(const brim_scene *scene, int device);
void brim_scene_describe(const brim_scene *scene, int device, brim_device_info *out);
brim_host_memory brim_scene_host_memory(const brim_scene *scene);
uint64_t brim_scene_host_over(const brim_scene *scene); /* bytes that are wanted of the host and not there */

/* A job's memory; of the host more than there is may be taken. */
void brim_scene_take(brim_scene *scene, int device, uint64_t bytes);
void brim_scene_give(brim_scene *scene, int device, uint64_t bytes);

/* After a job has given memory back, or taken what it will: those in line are served. */
void brim_scene_settle(brim_scene *scene);

/* A job's place in line: `job` below BRIM_SCENE_JOBS_MAX. It is in line until it leaves. */
typedef struct brim_scene_wish {
  int device; /* -1: any */
  bool most_free;
  uint64_t bytes;
} brim_scene_wish;
typedef struct brim_scene_turn {
  int device; /* that it may have; -1: none */
  int best;   /* of those it would take, the one with the most free memory */
  bool large; /* one of them has so much in all */
  size_t ahead;
} brim_scene_turn;
void brim_scene_join(brim_scene *scene, size_t job, const brim_scene_wish *wish);
brim_scene_turn brim_scene_try(const brim_scene *scene, size_t job);
void brim_scene_leave(brim_scene *scene, size_t job);
/* Those in line, in their order; and how many would take the device of a key, but for `job`. */
void brim_scene_tickets(const brim_scene *scene, size_t job, brim_arena *arena, brim_ticket **out, size_t *count);
void brim_scene_waiting(const brim_scene *scene, size_t job, uint64_t key, size_t *count, uint64_t *first_bytes);
/* The key of a device in tickets. */
uint64_t brim_scene_key(const brim_scene *scene, int device);
#endif
