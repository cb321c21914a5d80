/* A picture of a plan. */
#ifndef BRIM_REPORT_PLAN_SVG_H
#define BRIM_REPORT_PLAN_SVG_H
#include "graph/plan.h"

typedef struct brim_plan_picture {
  const char *title;    /* "cnn on idx, micro-batch 64" */
  uint64_t limit_bytes; /* that the run has room for; 0: none known */
} brim_plan_picture;

/* A whole SVG document of one program of the plan: its buffers by operation and offset. Of a federation the program is
 * one of its lanes' plan, and every lane is drawn above what the server keeps. */
void brim_plan_svg(const brim_plan *plan, const brim_program *p, const brim_plan_picture *say, brim_text *out);
#endif
