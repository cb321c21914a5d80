/* The environment of a simulation's jobs: devices and the host's memory, their users, and the queue. It does not depend
 * on policies. Not thread-safe: only the job whose turn it is (turns.c) calls it. */
#ifndef BRIM_SIMULATE_WORLD_H
#define BRIM_SIMULATE_WORLD_H
#include "brim/backend.h"
#include "memory/claims.h"
#include "simulate/scenario.h"

#define BRIM_SCENE_HOST (-1) /* stands for the host in place of a device number */

typedef struct brim_scene brim_scene;
/* Receives an event that no job caused. */
typedef void (*brim_scene_report_fn)(void *context, const char *name, const char *what);

/* Seconds that other users of the scenario's devices lost. */
typedef struct brim_scene_others {
  double waited; /* runs in line */
  double lacked; /* total of the programs that did not get all the memory they wanted */
} brim_scene_others;

/* [init] The scenario must outlive the result. */
brim_scene *brim_scene_open(const brim_scenario *scenario, brim_scene_report_fn report, void *context);
void brim_scene_close(brim_scene *scene);
/* Advances the clock to `to` seconds since the scenario's beginning. Does nothing if the clock is already later. */
void brim_scene_advance(brim_scene *scene, double to);
const double *brim_scene_clock(const brim_scene *scene); /* since 1970 */
double brim_scene_now(const brim_scene *scene);
double brim_scene_next(const brim_scene *scene); /* time of the next event of the world; infinite: none */
brim_scene_others brim_scene_others_of(const brim_scene *scene);

/* The factor by which other users slow steps on a device; BRIM_SCENE_HOST: on the host's processors. */
double brim_scene_slowness(const brim_scene *scene, int device);
void brim_scene_describe(const brim_scene *scene, int device, brim_device_info *out);
brim_host_memory brim_scene_host_memory(const brim_scene *scene);
uint64_t brim_scene_host_over(const brim_scene *scene); /* bytes of host memory that were requested but do not exist */

/* Takes or releases a job's memory; on the host, a job may take more than exists. */
void brim_scene_take(brim_scene *scene, int device, uint64_t bytes);
void brim_scene_give(brim_scene *scene, int device, uint64_t bytes);

/* Serves the queue: call it when a job has released memory, or has taken all that it will take. */
void brim_scene_settle(brim_scene *scene);

/* A job's entry in the queue, `job` below BRIM_SCENE_JOBS_MAX, from joining to leaving. */
typedef struct brim_scene_wish {
  int device; /* -1: any */
  bool most_free;
  uint64_t bytes;
} brim_scene_wish;
typedef struct brim_scene_turn {
  int device; /* the assigned device; -1: none */
  int best;   /* the acceptable device with the most free memory */
  bool large; /* an acceptable device has enough memory in total */
  size_t ahead;
} brim_scene_turn;
void brim_scene_join(brim_scene *scene, size_t job, const brim_scene_wish *wish);
brim_scene_turn brim_scene_try(const brim_scene *scene, size_t job);
void brim_scene_leave(brim_scene *scene, size_t job);
/* Lists the tickets of the waiting jobs, in order. The second function counts the tickets that accept the device with
 * this key, without the ticket of `job`. */
void brim_scene_tickets(const brim_scene *scene, size_t job, brim_arena *arena, brim_ticket **out, size_t *count);
void brim_scene_waiting(const brim_scene *scene, size_t job, uint64_t key, size_t *count, uint64_t *first_bytes);
/* The key that identifies a device in tickets. */
uint64_t brim_scene_key(const brim_scene *scene, int device);
#endif
