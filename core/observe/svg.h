/* Line charts as SVG: charts side by side, and one legend below. */
#ifndef BRIM_OBSERVE_SVG_H
#define BRIM_OBSERVE_SVG_H
#include <stdbool.h>

#include "base/text.h"

typedef struct brim_curve {
  size_t name; /* index in the legend, which gives its colour */
  bool faint;  /* thin and pale, below the others */
  const double *x, *y;
  size_t count; /* points that are not finite interrupt the line */
} brim_curve;

typedef struct brim_chart {
  const char *title, *x_label;
  const brim_curve *curve;
  size_t count;
} brim_chart;

/* Adds text that is no markup. */
void brim_svg_escape(brim_text *out, const char *s);
/* A whole document. `note`: a line below the legend. */
void brim_svg_charts(const brim_chart *chart, size_t charts, const char *const *legend, size_t legend_count,
                     const char *note, brim_text *out);
#endif
