/* Windows that slide over x [N,C,H,W], or over x [N,C,L] as if its height were 1: shared by convolutions and
 * pooling. */
#ifndef BRIM_GRAPH_OPS_WINDOW_H
#define BRIM_GRAPH_OPS_WINDOW_H
#include "graph/graph.h"

#define BRIM_WINDOW_MAX 65536 /* limit for each number of a window */

/* A window's numbers for height and width. With one dimension the width has them; the height's are 1, 1, 0, 1. */
typedef struct brim_window {
  int64_t kernel[2], stride[2], padding[2], dilation[2];
} brim_window;

/* Whether kernel, stride and dilation are at least 1, padding is at least 0, and all are within limits. */
bool brim_window_valid(const brim_window *w);
/* Formats "3x5" for x of rank 4, "5" for rank 3, into `out`, and returns it. */
const char *brim_window_format(char *out, size_t room, const brim_shape *x, const int64_t pair[2]);
/* Computes the number of positions of a window, in height and width; sets the graph's error if the window does not
 * fit. */
brim_status brim_window_places(brim_graph *g, const char *op, const char *name, const brim_window *w,
                               const brim_shape *x, int64_t out[2]);
/* Whether x has real numbers and this rank, 4 or 3; if not, or if x is NULL, sets the graph's error. */
bool brim_window_rank(brim_graph *g, const char *op, const char *name, const brim_tensor *x, int32_t rank);
/* Reshapes [N,C,L] to [N,C,1,L], and back. NULL for NULL. */
brim_tensor *brim_window_spread(brim_graph *g, brim_tensor *x);
brim_tensor *brim_window_join(brim_graph *g, brim_tensor *y);
#endif
