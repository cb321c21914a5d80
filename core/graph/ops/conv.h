/* Shared by convolutions and transposed convolutions. */
#ifndef BRIM_GRAPH_OPS_CONV_H
#define BRIM_GRAPH_OPS_CONV_H
#include "graph/ops/window.h"

/* The attributes for a layer's options. A zero stands for 1 where zero is not allowed. */
brim_conv2d_attr brim_conv_attr(const brim_conv2d_options *options);
/* Checks these attributes for x, [N,C,H,W] or [N,C,L]; on failure sets the graph's error. */
bool brim_conv_check(brim_graph *g, const char *op, const char *name, const brim_shape *x, int64_t out_channels,
                     const brim_conv2d_attr *attr);
/* The cost of a convolution, and of each of its two gradients: 2 * outputs * (C/g*R*S). `y` [N,K,P,Q], `weight`
 * [K,C/g,R,S]. */
void brim_conv_cost(const brim_tensor *y, const brim_tensor *weight, brim_cost *out);
#endif
