/* random_model: a random graph, the same for the same seed, for any samples: images, rows of numbers, tokens. Its
 * parameters are used in every possible way: tied, sliced, normalised, multiplied with each other. */
#include "brim/dataset.h"
#include "brim/model.h"
#include "brim/plugin.h"
#include "conformance/random_graph.h"

typedef struct random_model {
  int64_t seed;
} random_model;

static const brim_param params[] = {
    BRIM_PARAM(I64, random_model, seed, "1", "[0,inf)", "which graph"),
    BRIM_PARAMS_END,
};

enum { WIDTH = 6, LONGEST = 64 };

/* Embeds tokens and their positions; there are more positions than a sample has. The graph's result for a sample is
 * added at each position, and the logits use the tokens' own weights. */
static brim_tensor *answer_tokens(const random_graph *r, brim_graph *g)
{
  const brim_init init = {BRIM_INIT_NORMAL, 0.3};
  const int64_t length = brim_shape_of(brim_input(g)).dim[1], places[] = {LONGEST, WIDTH};
  const int64_t tokens[] = {brim_classes(g), WIDTH}, each[] = {brim_shape_of(brim_input(g)).dim[0], 1, WIDTH};
  brim_tensor *wte = brim_parameter_new(g, "wte", 2, tokens, init);
  brim_tensor *wpe = brim_parameter_new(g, "wpe", 2, places, init);
  brim_tensor *x = brim_embedding_with(g, brim_input(g), wte);
  x = brim_add(g, x, brim_slice(g, wpe, 0, 1, length));
  brim_tensor *more = brim_reshape(g, random_graph_grow(r, g, x, WIDTH), 3, each);
  return brim_linear_with(g, "head", brim_add(g, x, more), wte, NULL);
}

static brim_status build(const void *self, brim_graph *g)
{
  const random_model *m = self;
  const random_graph r = {.seed = (uint64_t)m->seed};
  if (brim_task_of(g) == BRIM_TASK_TOKENS)
    brim_output(g, answer_tokens(&r, g));
  else
    brim_output(g, random_graph_grow(&r, g, brim_input(g), brim_classes(g)));
  return BRIM_OK;
}

static const brim_model_ops ops = {.size = sizeof ops, .build = build};
static const brim_plugin plugin = {
    .size = sizeof plugin,
    .kind = BRIM_MODEL,
    .id = "random_model",
    .help = "a graph made by chance",
    .params_size = sizeof(random_model),
    .params = params,
    .ops = &ops,
};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("tests-random_model", "0.1", plugins)
