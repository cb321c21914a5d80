/* How long a program takes, by the device profile: the sum of its nodes. A node that was timed in this shape takes what
 * was measured; one that was timed in other micro-batches what lies between or behind those; any other what common
 * rates say, corrected by what the profile has of the same operation, or of all. */
#ifndef BRIM_EXEC_PREDICT_H
#define BRIM_EXEC_PREDICT_H
#include "exec/profile.h"
#include "graph/plan.h"

/* What a device of its kind does, before anything was timed on it. */
typedef struct brim_rates {
  double flops, bytes; /* in a second */
  double node_seconds; /* that a node takes at least */
  bool whole;          /* programs are run whole, which takes less than their nodes one by one */
} brim_rates;
brim_rates brim_rates_of(const brim_device_info *device);
/* Of a node's work, by the rates alone. */
double brim_rates_seconds(const brim_rates *rates, brim_cost cost);

typedef struct brim_prediction {
  double seconds;
  double derived_seconds, guessed_seconds; /* of it: from other micro-batches; from rates */
} brim_prediction;

/* [plan] Adds what a program takes, `times` times. */
void brim_predict_program(brim_profile *profile, const brim_rates *rates, const brim_program *program, double times,
                          brim_prediction *out);
/* [plan] Adds one thing that is not a node; `rated`: what the rates say of it. */
void brim_predict_other(brim_profile *profile, const char *what, int64_t n, double rated, double times,
                        brim_prediction *out);

/* The name of a program that is run whole: its seconds, with the sum of its nodes for "rated". */
#define BRIM_TIMED_WHOLE "whole"
void brim_predict_whole_name(const brim_program *program, brim_text *out);

/* What a step does besides its nodes, by their names in the profile; n is bytes, and 1 for the last. */
#define BRIM_TIMED_ZERO "zero"
#define BRIM_TIMED_LOAD "load"
#define BRIM_TIMED_METRICS "metrics"
#endif
