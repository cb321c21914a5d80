/* A phase of a run between steps, such as an evaluation or a checkpoint. Other programs see it as the run's state
 * (memory/live.h), and traces show it as a span (base/tracing.h). */
#ifndef BRIM_TRAIN_PHASE_H
#define BRIM_TRAIN_PHASE_H
#include "base/tracing.h"
#include "memory/live.h"

typedef struct brim_phase {
  const char *name;
  enum brim_live_state before;
  int64_t began;
} brim_phase;

/* [step] `name`: a literal. */
static inline brim_phase brim_phase_begin(enum brim_live_state state, const char *name)
{
  return (brim_phase){.name = name, .before = brim_live_now(state), .began = brim_tracing_begin(name)};
}
static inline void brim_phase_end(const brim_phase *phase)
{
  brim_tracing_end(phase->began, BRIM_TRACING_PHASE, phase->name, 0);
  brim_live_now(phase->before);
}
#endif
