/* Line charts as SVG: a document of charts side by side with one legend below, or parts of an HTML page. */
#ifndef BRIM_REPORT_SVG_H
#define BRIM_REPORT_SVG_H
#include <stdbool.h>

#include "base/text.h"

typedef struct brim_curve {
  size_t name; /* index in the legend, which gives its colour */
  bool faint;  /* drawn thin and pale, below the other curves */
  const double *x, *y;
  size_t count;         /* number of points; points that are not finite interrupt the line */
  double bar;           /* 0: a line; else bars of this width, from 0 to y, centred on x */
  const double *spread; /* [count] draws a pale band from y - spread to y + spread where it is finite; may be NULL */
} brim_curve;

#define BRIM_SVG_CURVES_MAX 32 /* distinguishable combinations of colours and dashes */

typedef struct brim_chart {
  const char *title, *x_label;
  const brim_curve *curve;
  size_t count;
} brim_chart;

/* Adds text without markup, for XML and HTML; replaces invalid UTF-8 by U+FFFD. */
void brim_svg_escape(brim_text *out, const char *s);
void brim_svg_escape_n(brim_text *out, const char *s, size_t bytes);
/* Writes a whole document. `note`: a line below the legend. */
void brim_svg_charts(const brim_chart *chart, size_t charts, const char *const *legend, size_t legend_count,
                     const char *note, brim_text *out);
/* For an HTML page: style rules for all charts (for a dark background only the colours, to add after the others); a
 * chart as an <svg> of class "chart", for which the page styles .grid and .axis; and the sample line of legend entry
 * `name`, as an <svg> of class "sample". */
void brim_svg_style(brim_text *out, bool dark);
void brim_svg_chart(const brim_chart *chart, brim_text *out);
void brim_svg_sample(size_t name, brim_text *out);
#endif
