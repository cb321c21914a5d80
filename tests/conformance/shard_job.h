/* The ranks of a job in one process, on the reference backend: the test plays the network. It runs the ranks' programs
 * side by side and performs their collectives on the arenas. */
#ifndef TESTS_CONFORMANCE_SHARD_JOB_H
#define TESTS_CONFORMANCE_SHARD_JOB_H
#include "config/settings.h"
#include "conformance/load.h"
#include "exec/exec.h"

#define SHARD_RANKS_MAX 4

enum { SHARD_MLP, SHARD_CNN, SHARD_TIED, SHARD_MODELS };
extern const brim_model_ops shard_models[SHARD_MODELS];

/* How a job trains. */
typedef struct shard_how {
  const brim_model_ops *model;
  const brim_plugin *optimizer;
  const char *settings;
  int32_t ranks;
  enum brim_shard shard;
  uint64_t bucket_bytes;
  double clip_norm, ema_decay;
  bool checked, offloaded;
  bool late; /* collectives run as late as possible, otherwise as early as possible */
  enum brim_recompute_kind recompute;
} shard_how;

typedef struct shard_job {
  shard_how how;
  loaded backend, optimizer;
  brim_plan *plan[SHARD_RANKS_MAX];
  brim_exec *exec[SHARD_RANKS_MAX];
} shard_job;

/* Fails the test with the error's text. */
void shard_must(brim_status status);
/* Loads the backend and the optimizer, makes and checks the plans of all ranks, and places them with the same
 * parameters. */
void shard_load(shard_job *j, const shard_how *h);
brim_plan_request shard_request(const shard_job *j, int32_t rank);
void shard_plan(shard_job *j, const shard_how *h);
void shard_place(shard_job *j, const shard_how *h);
void shard_stop(shard_job *j);
/* Returns the address of a byte of a rank's arena. */
void *shard_memory_of(const shard_job *j, int32_t rank, uint64_t offset);
/* Runs the same program of all ranks' plans, by its index. `last`: this is the step's last micro-batch. */
void shard_run_together(shard_job *j, size_t program, const brim_step step[SHARD_RANKS_MAX], bool last);
size_t shard_index_of(const shard_job *j, enum brim_program_kind kind);
void shard_train_step(shard_job *j, int number_of_step);
/* Checks that the parameters of every rank of `a` equal those of the single rank of `b` to 1e-12, that 8-bit indices
 * are equal, and that each element of a state exists once across all ranks. */
void shard_compare_parameters(const shard_job *a, const shard_job *b, size_t program);
void shard_compare_states(const shard_job *a, const shard_job *b);
#endif
