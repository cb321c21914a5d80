/* Predicts the host memory of a training process before anything is placed.
 *
 * brim measures the memory of the process when it plans (program, libraries, configuration, the plan itself), and
 * computes all later allocations from their causes. At the peak there is, besides the memory that stays allocated, the
 * largest of: the loader of an evaluation, a copy of parameters and optimizer state for a checkpoint, the summary; they
 * follow one another. Before loaders exist, frozen weights are placed one at a time.
 *
 * Not counted: pages of library code that are read only when kernels are made or run (0.4 to 1.7 MiB with oneDNN 2.6
 * on x86-64), and host memory of the driver of a device other than the host. */
#ifndef BRIM_PLANNER_FOOTPRINT_H
#define BRIM_PLANNER_FOOTPRINT_H
#include <jansson.h>

#include "planner/planner.h"

/* Bytes of host memory. */
typedef struct brim_footprint {
  uint64_t process_bytes;     /* resident after planning */
  uint64_t arena_bytes;       /* 0 on a device other than the host */
  uint64_t state_bytes;       /* the optimizer's state if it is in host memory: memory.offload */
  uint64_t kernel_bytes;      /* kernels' memory outside the arena, and the launches of the programs */
  uint64_t compressing_bytes; /* room for the largest parameter in each lane of a federation: federate/compress.h */
  uint64_t data_bytes;        /* the dataset's memory, if it is not open yet */
  uint64_t mapped_bytes;      /* part of it: file pages, which the system reclaims when memory is short */
  uint64_t score_bytes;       /* the confusion matrix of an evaluation, and the report's copy for the test data */
  uint64_t insight_bytes;     /* observe.histograms, observe.samples */
  uint64_t loader_bytes; /* training's micro-batches decoded ahead, the threads that decode, and the decoders' memory */
  uint64_t clients_bytes;    /* in a federation, for client states: federate/kept.h */
  uint64_t updates_bytes;    /* clients' updates that the host reads, and all of a round for an aggregator */
  uint64_t versions_bytes;   /* versions of a federation's global model: federate/versions.h */
  uint64_t noise_bytes;      /* the largest tensor of a federation's sum, while noise is added */
  uint64_t evaluation_bytes; /* loader_bytes of the largest evaluation */
  uint64_t summary_bytes;    /* the test data's confusion matrix, while the summary is written */
  uint64_t piece_bytes;      /* values on their way from the device to a checkpoint, or back */
  uint64_t frozen_bytes;     /* the largest frozen weight, while it is copied to the arena */
  uint64_t resume_bytes;     /* the same when a run resumes, and the mapped piece of the checkpoint's files */
  uint64_t total_bytes;      /* at the peak */
} brim_footprint;

/* The cells of an evaluation's confusion matrix; 0: not counted. */
int64_t brim_footprint_cells(const brim_setup *setup);

/* [plan] Predicts the memory of a training plan with micro-batches of `batch` samples; call it after
 * brim_planner_measure. */
void brim_footprint_predict(const brim_planner *planner, const brim_plan *plan, int64_t batch, brim_footprint *out);
/* [init] Called once the data is open: replaces estimates, such as the sizes of pictures, by the data's values. */
void brim_footprint_follow_data(const brim_setup *setup, const brim_choice *choice, brim_footprint *footprint);
/* [init] Measures the process's host memory, and estimates that of the data. */
brim_status brim_planner_measure(brim_planner *planner);
/* [plan] Predicts the host memory of the process with a plan, for training or evaluation, so that brim_planner_room
 * leaves room for it from here on. Does nothing once the run has begun (has_begun). */
brim_status brim_planner_foresee(brim_planner *planner, const brim_plan *plan, int64_t batch);
/* Adds the memory for a run that begins by reading a checkpoint, before there are loaders. */
void brim_footprint_add_resume(brim_footprint *footprint);
/* Prints "the process will take about 123.0 MiB of host memory: 44.6 MiB arena, ...". */
void brim_footprint_print(const brim_footprint *footprint, brim_text *out);
json_t *brim_footprint_json(const brim_footprint *footprint);
#endif
