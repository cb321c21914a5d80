/* Predicts the host memory of a training process before anything is placed.
 *
 * brim measures the memory of the process when it plans (program, libraries, configuration, the plan itself), and
 * computes all later allocations from their causes. The peak consists of the memory that stays allocated, and of the
 * largest of these, which follow one another: the loader of an evaluation, a copy of parameters and optimizer state for
 * a checkpoint, the summary. Frozen weights are copied one at a time, before there are loaders.
 *
 * The prediction does not count pages of library code that are read only when kernels are made or run (0.4 to 1.7 MiB
 * with oneDNN 2.6 on x86-64), nor the host memory of a GPU's driver. */
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
  uint64_t mapped_bytes;      /* the part of it in file pages, which the system reclaims when memory is short */
  uint64_t score_bytes;       /* the confusion matrix of an evaluation, and the copy for the test data in the report */
  uint64_t insight_bytes;     /* observe.histograms, observe.samples */
  uint64_t loader_bytes;  /* micro-batches that training decodes ahead, the threads that decode them, and the decoders'
                             memory */
  uint64_t clients_bytes; /* for client states of a federation: federate/kept.h */
  uint64_t updates_bytes; /* clients' updates that the host reads, including all updates of a round for an aggregator */
  uint64_t versions_bytes;   /* versions of a federation's global model: federate/versions.h */
  uint64_t noise_bytes;      /* the largest tensor of a federation's sum, while noise is added */
  uint64_t evaluation_bytes; /* loader_bytes of the largest evaluation */
  uint64_t summary_bytes;    /* the test data's confusion matrix, while the summary is written */
  uint64_t piece_bytes;      /* values that pass from the device to a checkpoint, or back */
  uint64_t frozen_bytes;     /* the largest frozen weight, while it is copied to the arena */
  uint64_t resume_bytes;     /* frozen_bytes for a run that resumes, with the mapped piece of the checkpoint's files */
  uint64_t total_bytes;      /* sum at the peak */
} brim_footprint;

/* The number of cells in an evaluation's confusion matrix; 0: there is none. */
int64_t brim_footprint_cells(const brim_setup *setup);

/* [plan] Predicts the memory of a training plan with micro-batches of `batch` samples; call it after
 * brim_planner_measure. */
void brim_footprint_predict(const brim_planner *planner, const brim_plan *plan, int64_t batch, brim_footprint *out);
/* [init] Call when the data is open: replaces estimates, such as the sizes of pictures, by the data's values. */
void brim_footprint_follow_data(const brim_setup *setup, const brim_choice *choice, brim_footprint *footprint);
/* [init] Measures the process's host memory, and estimates that of the data. */
brim_status brim_planner_measure(brim_planner *planner);
/* [plan] Predicts the host memory of the process with a plan, for training or evaluation, and from here on
 * brim_planner_room leaves room for it. Does nothing once the run has begun (has_begun). */
brim_status brim_planner_foresee(brim_planner *planner, const brim_plan *plan, int64_t batch);
/* Adds the memory with which a run reads a checkpoint when it resumes, before there are loaders. */
void brim_footprint_add_resume(brim_footprint *footprint);
/* Prints "the process will take about 123.0 MiB of host memory: 44.6 MiB arena, ...". */
void brim_footprint_print(const brim_footprint *footprint, brim_text *out);
json_t *brim_footprint_json(const brim_footprint *footprint);
#endif
