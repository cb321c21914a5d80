/* What convolutions and transposed convolutions share. */
#ifndef BRIM_GRAPH_OPS_CONV_H
#define BRIM_GRAPH_OPS_CONV_H
#include "graph/ops/window.h"

/* Of a layer's options; zero stands for one where nothing else makes sense. */
brim_conv2d_attr brim_conv_attr(const brim_conv2d_options *options);
brim_window brim_conv_window(const brim_conv2d_attr *attr);
/* Are these numbers possible for x, [N,C,H,W] or [N,C,L]? If not, the graph has the error. */
bool brim_conv_check(brim_graph *g, const char *op, const char *name, const brim_shape *x, int64_t out_channels,
                     const brim_conv2d_attr *attr);
/* 2 * outputs * (C/g*R*S), for each of a convolution's three directions. `y` [N,K,P,Q], `weight` [K,C/g,R,S]. */
void brim_conv_cost(const brim_tensor *y, const brim_tensor *weight, brim_cost *out);
#endif
