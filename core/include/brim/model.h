/* For authors of models: a model plugin builds a forward graph and nothing else; brim derives the
 * backward pass, the memory plan and everything after it.
 *
 *     static brim_status build(const void *self, brim_graph *g)
 *     {
 *       brim_tensor *x = brim_input(g);
 *       x = brim_relu(g, brim_linear(g, "fc1", brim_flatten(g, x), 128));
 *       brim_output(g, brim_linear(g, "fc2", x, brim_classes(g)));
 *       return BRIM_OK;
 *     }
 *
 * The graph keeps its first error and every later call returns NULL quietly, so calls need no checks,
 * and NULL that came from a failed call may be passed on. Errors name the operation, the shapes, and the
 * file and line of the call. All functions: [init], the thread that called build. Tensors belong to
 * the graph. Parameters are named as PyTorch's state_dict names them ("fc1.weight", "fc1.bias") and
 * initialised as PyTorch's modules of the same name are. */
#ifndef BRIM_MODEL_H
#define BRIM_MODEL_H
#include "brim/ops.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_graph brim_graph;

typedef struct brim_model_ops {
  uint32_t size;
  /* [init] Called once per batch shape, on any thread; must build the same graph each time, but for N.
   * `self` is the instance, or the parameters where create is NULL. */
  brim_status (*build)(const void *self, brim_graph *g);
} brim_model_ops;

/* The samples: [N, ...] as the dataset describes them, real numbers. */
BRIM_EXPORT brim_tensor *brim_input(brim_graph *g);
/* How many classes the dataset has. */
BRIM_EXPORT int64_t brim_classes(const brim_graph *g);
/* Names the result: logits [N, classes]. Exactly once. */
BRIM_EXPORT void brim_output(brim_graph *g, brim_tensor *logits);
/* A tensor's shape; a shape of rank 0 for NULL. */
BRIM_EXPORT brim_shape brim_shape_of(const brim_tensor *x);

/* x [N, F] -> [N, out_features], with bias. */
BRIM_EXPORT brim_tensor *brim_linear(brim_graph *g, const char *name, brim_tensor *x, int64_t out_features);
/* x [N,C,H,W] -> [N, out_channels, (H+2p-k)/s+1, (W+2p-k)/s+1], with bias; square kernel, stride, padding. */
BRIM_EXPORT brim_tensor *brim_conv2d(brim_graph *g, const char *name, brim_tensor *x, int64_t out_channels,
                                     int64_t kernel, int64_t stride, int64_t padding);
/* x [N,C,H,W] -> [N, C, (H-k)/s+1, (W-k)/s+1]. */
BRIM_EXPORT brim_tensor *brim_max_pool2d(brim_graph *g, brim_tensor *x, int64_t kernel, int64_t stride);
BRIM_EXPORT brim_tensor *brim_relu(brim_graph *g, brim_tensor *x);
/* Drops elements with probability p in [0, 1) while training and scales the others by 1/(1-p);
 * x itself in evaluation. */
BRIM_EXPORT brim_tensor *brim_dropout(brim_graph *g, brim_tensor *x, double p);
/* a and b of the same shape. */
BRIM_EXPORT brim_tensor *brim_add(brim_graph *g, brim_tensor *a, brim_tensor *b);
/* The same elements in another shape; one dimension may be -1. dim[0] must be N. */
BRIM_EXPORT brim_tensor *brim_reshape(brim_graph *g, brim_tensor *x, int32_t rank, const int64_t *dim);
/* [N, ...] -> [N, product of the rest]. */
BRIM_EXPORT brim_tensor *brim_flatten(brim_graph *g, brim_tensor *x);

/* Remembers where in the author's file the next operation stands; the macros below call it. */
BRIM_EXPORT brim_graph *brim_at(brim_graph *g, const char *file, int line);
#define brim_linear(g, ...) brim_linear(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_conv2d(g, ...) brim_conv2d(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_max_pool2d(g, ...) brim_max_pool2d(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_relu(g, ...) brim_relu(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_dropout(g, ...) brim_dropout(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_add(g, ...) brim_add(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_reshape(g, ...) brim_reshape(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_flatten(g, ...) brim_flatten(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)
#define brim_output(g, ...) brim_output(brim_at((g), __FILE__, __LINE__), __VA_ARGS__)

#ifdef __cplusplus
}
#endif
#endif
