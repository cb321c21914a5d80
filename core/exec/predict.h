/* Predicts the time of a program from the device profile, as the sum of its nodes' times. For a node that was timed in
 * this shape it uses the measured time. For a node that was timed only with other micro-batches it interpolates or
 * extrapolates. For any other node it uses common rates, corrected by the profile's times of the same operation, or of
 * all operations. */
#ifndef BRIM_EXEC_PREDICT_H
#define BRIM_EXEC_PREDICT_H
#include "exec/profile.h"
#include "graph/plan.h"

/* The rates assumed for a kind of device until kernels are timed on it. */
typedef struct brim_rates {
  double flops, bytes; /* per second */
  double node_seconds; /* a node's minimum */
  bool whole;          /* the backend runs whole programs, which is faster than node by node */
} brim_rates;
brim_rates brim_rates_of(const brim_device_info *device);
/* Time of a node's work by the rates alone. */
double brim_rates_seconds(const brim_rates *rates, brim_cost cost);

typedef struct brim_prediction {
  double seconds;
  /* The parts that derive from other micro-batches, and that derive from rates. */
  double derived_seconds, guessed_seconds;
} brim_prediction;

/* [plan] Adds the time of `times` runs of a program. */
void brim_predict_program(brim_profile *profile, const brim_rates *rates, const brim_program *program, double times,
                          brim_prediction *out);
/* [plan] Adds a part of a step that is not a node; `rated`: its seconds by the rates. */
void brim_predict_other(brim_profile *profile, const char *what, int64_t n, double rated, double times,
                        brim_prediction *out);

/* The name for the time of a whole program, which the profile stores with the sum of its nodes' times as "rated". */
#define BRIM_TIMED_WHOLE "whole"
void brim_predict_whole_name(const brim_program *program, brim_text *out);

/* Names in the profile of the other parts of a step. n is the number of bytes; for the last name it is 1. */
#define BRIM_TIMED_ZERO "zero"
#define BRIM_TIMED_LOAD "load"
#define BRIM_TIMED_METRICS "metrics"
#endif
