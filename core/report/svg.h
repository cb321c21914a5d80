/* Line charts as SVG: a document of charts side by side and one legend below, or the parts of an HTML page. */
#ifndef BRIM_REPORT_SVG_H
#define BRIM_REPORT_SVG_H
#include <stdbool.h>

#include "base/text.h"

typedef struct brim_curve {
  size_t name; /* index in the legend, which gives its colour */
  bool faint;  /* thin and pale, below the others */
  const double *x, *y;
  size_t count;         /* points that are not finite interrupt the line */
  double bar;           /* 0: a line; else bars from 0 to y, so wide, with x in their middle */
  const double *spread; /* [count] a pale band from y - spread to y + spread, where it is finite; NULL: none */
} brim_curve;

#define BRIM_SVG_CURVES_MAX 32 /* colours and dashes that can be told apart */

typedef struct brim_chart {
  const char *title, *x_label;
  const brim_curve *curve;
  size_t count;
} brim_chart;

/* Adds text that is no markup, for XML and HTML: what is no UTF-8 becomes U+FFFD. */
void brim_svg_escape(brim_text *out, const char *s);
void brim_svg_escape_n(brim_text *out, const char *s, size_t bytes);
/* A whole document. `note`: a line below the legend. */
void brim_svg_charts(const brim_chart *chart, size_t charts, const char *const *legend, size_t legend_count,
                     const char *note, brim_text *out);
/* For an HTML page: rules of style for all its charts (those of a dark ground: only the colours, to follow the others),
 * a chart as an <svg> of class "chart", whose page says what .grid and .axis look like, and the line of the legend's
 * entry `name`, as an <svg> of class "sample". */
void brim_svg_style(brim_text *out, bool dark);
void brim_svg_chart(const brim_chart *chart, brim_text *out);
void brim_svg_sample(size_t name, brim_text *out);
#endif
