/* What the process of a training run will take of the host's memory, told before anything is placed.
 *
 * Each term has its cause. What the process has at the time of planning (program, libraries, configuration, the plan
 * itself) is measured; everything that comes later is counted from what will ask for it. At the peak there are, besides
 * what stays, the loader of an evaluation, a copy of the parameters and the optimizer's state on its way to a
 * checkpoint, or the summary, whichever is largest: one comes after the other. Before there are loaders, frozen weights
 * come one after the other.
 *
 * Not counted: pages of libraries' code that are read only when kernels are made or run (0.4 to 1.7 MiB with oneDNN 2.6
 * on x86-64), and what the driver of a device that is not the host keeps on the host. */
#ifndef BRIM_PLANNER_FOOTPRINT_H
#define BRIM_PLANNER_FOOTPRINT_H
#include <jansson.h>

#include "planner/planner.h"

/* Bytes of the host's memory. */
typedef struct brim_footprint {
  uint64_t process_bytes; /* resident when it had planned */
  uint64_t arena_bytes;   /* 0 on a device that is not the host */
  uint64_t state_bytes;   /* the optimizer's state, where it is kept in host memory: memory.offload */
  uint64_t kernel_bytes;  /* what kernels keep besides the arena, and the launches of the programs */
  uint64_t data_bytes;    /* what the dataset keeps, if it was not opened yet */
  uint64_t mapped_bytes;  /* of that, pages of files, which the system takes back when memory is wanted */
  uint64_t score_bytes;   /* the confusion matrix of an evaluation, and of the test data the report's copy of it */
  uint64_t
      loader_bytes; /* training's micro-batches decoded ahead, the threads that do it, and what decoders take there */
  uint64_t clients_bytes;    /* what clients of a federation keep from round to round: federate/kept.h */
  uint64_t evaluation_bytes; /* the same of the largest evaluation */
  uint64_t summary_bytes;    /* the confusion matrix of the test data while the summary is written */
  uint64_t copy_bytes;       /* parameters and optimizer's state, copied for a checkpoint */
  uint64_t frozen_bytes;     /* the largest frozen weight, on its way to the arena */
  uint64_t resume_bytes;     /* the same when a run begins with one, and what is mapped of its files */
  uint64_t total_bytes;      /* at the peak */
} brim_footprint;

/* Of the confusion matrix that an evaluation makes; 0: none is counted. */
int64_t brim_footprint_cells(const brim_setup *setup);

/* [plan] Of a plan of training in micro-batches of `batch` samples, after brim_planner_measure. */
void brim_footprint_predict(const brim_planner *planner, const brim_plan *plan, int64_t batch, brim_footprint *out);
/* [init] The data has been opened: estimates, such as the sizes of pictures, are replaced by what the data have. */
void brim_footprint_follow_data(const brim_setup *setup, const brim_choice *choice, brim_footprint *footprint);
/* [init] Looks at what the process has of the host, and what the data will take. */
brim_status brim_planner_measure(brim_planner *planner);
/* [plan] Looks at what the process will take with a plan, of training or of evaluation alone, so that from here on
 * brim_planner_room leaves room for it. Nothing once the run has begun (has_begun). */
brim_status brim_planner_foresee(brim_planner *planner, const brim_plan *plan, int64_t batch);
/* The run will begin with a checkpoint, which is read before there are loaders. */
void brim_footprint_add_resume(brim_footprint *footprint);
/* "the process will take about 123.0 MiB of the host: 44.6 MiB arena, ..." */
void brim_footprint_tell(const brim_footprint *footprint, brim_text *out);
json_t *brim_footprint_json(const brim_footprint *footprint);
#endif
