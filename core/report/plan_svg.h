/* Draws a plan. */
#ifndef BRIM_REPORT_PLAN_SVG_H
#define BRIM_REPORT_PLAN_SVG_H
#include "base/text.h"
#include "graph/pieces.h"

typedef struct brim_plan_picture {
  const char *title;    /* "cnn on idx, micro-batch 64" */
  uint64_t limit_bytes; /* the run's limit; 0: unknown */
} brim_plan_picture;

/* Writes an SVG document of one program of the plan: its buffers by operation and offset. In a federation the program
 * belongs to the plan of a lane, and every lane is drawn above the server's part. */
void brim_plan_svg(const struct brim_plan *plan, const struct brim_program *p, const brim_plan_picture *say,
                   brim_text *out);
/* The same as an <svg> of class "plan" for a page, with at most `drawn_max` buffers; and the style rules for it, for
 * light or dark backgrounds. */
void brim_plan_svg_embedded(const brim_pieces *pieces, size_t drawn_max, brim_text *out);
void brim_plan_svg_style(brim_text *out, bool dark);
#endif
