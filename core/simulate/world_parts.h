/* What a world is made of. Internal to world.c and line.c. */
#ifndef BRIM_SIMULATE_WORLD_PARTS_H
#define BRIM_SIMULATE_WORLD_PARTS_H
#include "simulate/world.h"

/* When something comes, and comes again. */
typedef struct brim_scene_visit {
  double next, since; /* when it comes; when it came */
} brim_scene_visit;
typedef struct brim_scene_present {
  brim_scene_visit visit;
  bool is_there;
  double leaves, grows; /* when */
  uint64_t wants, has;
} brim_scene_present;
enum brim_scene_state { BRIM_RUN_AWAY, BRIM_RUN_WAITS, BRIM_RUN_PLACED };
typedef struct brim_scene_trained {
  brim_scene_visit visit;
  enum brim_scene_state state;
  double leaves;
  int device; /* that it is placed on */
  int64_t number;
} brim_scene_trained;
/* Of a job. */
typedef struct brim_scene_ticket {
  bool is_there;
  int64_t number;
  double since;
  brim_scene_wish wish;
} brim_scene_ticket;

struct brim_scene {
  const brim_scenario *scenario;
  brim_scene_tell_fn tell;
  void *context;
  double now, clock;
  brim_scene_present *program;
  brim_scene_trained *run;
  brim_scene_ticket ticket[BRIM_SCENE_JOBS_MAX];
  uint64_t arena[BRIM_SCENE_DEVICES_MAX], host; /* jobs' */
  int64_t numbers;                              /* tickets so far */
  brim_scene_others others;
};

/* Somebody in it, whether a run of the scenario or a job. */
typedef struct brim_scene_waiter {
  int64_t number, run; /* run: its index; -1: a job */
  size_t job;
  int device;
  uint64_t bytes;
  double since;
} brim_scene_waiter;

uint64_t brim_scene_free(const brim_scene *scene, int device);
/* All in line in their order; to be freed. */
brim_scene_waiter *brim_scene_waiters(const brim_scene *scene, size_t *count);
/* A device that `waiter`, one of `all`, may have now; -1: none. */
int brim_scene_find(const brim_scene *scene, const brim_scene_waiter *all, const brim_scene_waiter *waiter,
                    bool most_free);
#endif
