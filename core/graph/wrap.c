/* The backbone of a model, and low-rank changes to it. See wrap.h. */
#include "graph/wrap.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

#undef brim_features
#undef brim_backbone
#undef brim_backbone_output
#undef brim_lora
#undef brim_add
#undef brim_dropout
#undef brim_pad
#undef brim_scale

#define LAYERS_LISTED 64 /* listed in an error */

/* A position in a growing graph. */
typedef struct extent {
  size_t tensors, nodes, parameters, blocks;
} extent;

struct brim_wrap {
  const brim_model_ops *backbone;
  const void *self;
  const char *id;
  bool given;              /* the input already consists of features */
  bool building, built;    /* the backbone */
  brim_tensor *features;   /* the features that the backbone marks; NULL: not yet */
  brim_tensor *output;     /* the backbone's own output */
  extent end;              /* extent of the nodes up to the features */
  brim_lora_options adapt; /* r 0: no changes */
  brim_wrap_change *change;
  size_t adapted, change_room;
  const char *head;                 /* the first linear layer on the features */
  const char *layer[LAYERS_LISTED]; /* linear layers, with "*" for numbers */
  size_t layers;
};

void brim_wrap_open(brim_graph *g, const brim_graph_options *o)
{
  g->wrap = BRIM_ARENA_NEW(&g->arena, brim_wrap, 1);
  *g->wrap =
      (brim_wrap){.backbone = o->backbone, .self = o->backbone_self, .id = o->backbone_id, .given = o->given_features};
  g->frozen_type = o->frozen_type;
}

brim_tensor **brim_wrap_output(brim_graph *g)
{
  return g->wrap && g->wrap->building ? &g->wrap->output : &g->output;
}

brim_status brim_wrap_check(brim_graph *g)
{
  if (g->status != BRIM_OK || !g->wrap || g->wrap->built) return g->status;
  return brim_graph_fail(
      g, "backbone", NULL,
      "the model's table says that it wraps a model, but it does not build that model (brim_backbone)");
}

/* ---- the backbone ---- */

static extent extent_of(const brim_graph *g)
{
  return (extent){g->tensor_count, g->node_count, g->parameter_count, g->block_end_count};
}

brim_tensor *brim_features(brim_graph *g, brim_tensor *x)
{
  brim_wrap *w = g->wrap;
  if (!brim_graph_accepts(g, "features", NULL, x)) return NULL;
  if (!w || !w->building) return x;
  if (w->features) {
    brim_graph_fail(g, "features", NULL, "the model's features were named twice");
    return NULL;
  }
  w->features = x;
  w->end = extent_of(g);
  return x;
}

brim_tensor *brim_wrap_features(const brim_graph *g)
{
  return g->wrap ? g->wrap->features : NULL;
}

/* Removes the nodes after the features: the head, and its parameters. */
static void cut(brim_graph *g, const extent *end)
{
  g->tensor_count = end->tensors;
  g->node_count = end->nodes;
  brim_graph_cut_parameters(g, end->parameters);
  g->block_end_count = end->blocks;
}

static void check_targets(brim_graph *g)
{
  const brim_wrap *w = g->wrap;
  if (w->adapt.r == 0 || w->adapted > 0) return;
  brim_text names = {0}, layers = {0};
  for (size_t i = 0; i < w->adapt.targets.count; i++)
    brim_text_printf(&names, "%s%s", i ? ", " : "", w->adapt.targets.item[i]);
  for (size_t i = 0; i < w->layers; i++) brim_text_printf(&layers, "%s%s", i ? " " : "", w->layer[i]);
  if (w->layers == 0)
    brim_graph_fail(g, "backbone", w->id, "it has no linear layers before its features that could be adapted");
  else
    brim_graph_fail(g, "backbone", w->id,
                    "no linear layer's name is or ends in a target (targets: %s)\n"
                    "its linear layers: %s",
                    names.length ? brim_text_str(&names) : "none", brim_text_str(&layers));
  brim_text_release(&names);
  brim_text_release(&layers);
}

/* Copies the thread's error text to the graph's error, as for any model, with a hint that names the keys of the
 * backbone. */
static void take_reason(brim_graph *g, brim_status status)
{
  const char *id = g->wrap->id, *reason = brim_error_text();
  g->status = status;
  if (!reason[0])
    g->error = brim_arena_printf(&g->arena, "backbone '%s' could not be built", id);
  else
    g->error = brim_arena_printf(
        &g->arena, "%s\n'%s' is the backbone: backbone=OPTION chooses another, and its keys are backbone.*", reason,
        id);
}

static void build(brim_graph *g)
{
  brim_wrap *w = g->wrap;
  w->built = true;
  const char *file = g->file;
  const int line = g->line;
  w->building = g->freezing = true;
  const brim_status status = w->backbone->build(w->self, g);
  w->building = g->freezing = false;
  if (g->status == BRIM_OK && status != BRIM_OK) take_reason(g, status);
  g->file = file;
  g->line = line;
  if (g->status != BRIM_OK) return;
  if (!w->features)
    brim_graph_fail(g, "backbone", w->id, "it does not name its features (brim_features), so no head can use them");
  else
    check_targets(g);
}

static bool can_build(brim_graph *g)
{
  const brim_wrap *w = g->wrap;
  if (g->status != BRIM_OK) return false;
  if (w && !w->building && !w->built) return true;
  brim_graph_fail(g, "backbone", NULL, "%s",
                  !w            ? "the model's table does not say that it wraps a model (brim_model_ops.wraps)"
                  : w->building ? "a backbone cannot wrap another model"
                                : "it is already built");
  return false;
}

brim_tensor *brim_backbone(brim_graph *g)
{
  brim_wrap *w = g->wrap;
  if (!can_build(g)) return NULL;
  if (w->given) {
    w->built = true;
    return g->input;
  }
  build(g);
  if (g->status != BRIM_OK) return NULL;
  cut(g, &w->end);
  return w->features;
}

brim_tensor *brim_backbone_output(brim_graph *g)
{
  brim_wrap *w = g->wrap;
  if (!can_build(g)) return NULL;
  if (w->given) {
    brim_graph_fail(g, "backbone", w->id, "only its features are available, as the model's table asks for these");
    return NULL;
  }
  build(g);
  if (g->status != BRIM_OK) return NULL;
  if (!w->output) brim_graph_fail(g, "backbone", w->id, "it does not name its output (brim_output)");
  return w->output;
}

/* ---- low-rank changes ---- */

void brim_lora(brim_graph *g, const brim_lora_options *options)
{
  if (g->status != BRIM_OK) return;
  if (!g->wrap || g->wrap->built || g->wrap->building)
    brim_graph_fail(
        g, "lora", NULL,
        "it must be called before the backbone is built, in a model whose table says that it wraps a model");
  else if (options->r < 1)
    brim_graph_fail(g, "lora", NULL, "r must be at least 1, got %lld", (long long)options->r);
  else if (!(options->dropout >= 0 && options->dropout < 1))
    brim_graph_fail(g, "lora", NULL, "dropout must be in [0,1), got %g", options->dropout);
  else if (!isfinite(options->alpha))
    brim_graph_fail(g, "lora", NULL, "alpha must be a finite number, got %g", options->alpha);
  else
    g->wrap->adapt = *options;
}

/* Records "blocks.3.attn.qkv" as "blocks.*.attn.qkv", once. */
static void note_layer(brim_graph *g, const char *name)
{
  brim_wrap *w = g->wrap;
  char *pattern = brim_arena_string(&g->arena, name), *to = pattern;
  bool start = true;
  for (const char *from = name; *from;) {
    const size_t digits = start ? strspn(from, "0123456789") : 0;
    const bool number = digits > 0 && (from[digits] == '.' || from[digits] == '\0');
    start = *from == '.';
    *to++ = number ? '*' : *from;
    from += number ? digits : 1;
  }
  *to = '\0';
  for (size_t i = 0; i < w->layers; i++)
    if (strcmp(w->layer[i], pattern) == 0) return;
  if (w->layers < LAYERS_LISTED) w->layer[w->layers++] = pattern;
}

/* The part of a layer that a target names: 0 for none, 'a' for all of it, 'q', 'k' or 'v' for a third. */
static char part_of(const char *target, const char *name)
{
  const size_t length = strlen(target), whole = strlen(name);
  const bool third = length > 2 && target[length - 2] == ':' && strchr("qkv", target[length - 1]);
  const size_t plain = third ? length - 2 : length;
  if (whole < plain || strncmp(name + whole - plain, target, plain) != 0) return 0;
  if (whole > plain && name[whole - plain - 1] != '.') return 0;
  return third ? target[length - 1] : 'a';
}

static void note_change(brim_graph *g, brim_wrap_change change)
{
  brim_wrap *w = g->wrap;
  if (w->adapted == w->change_room) {
    const brim_wrap_change *before = w->change;
    w->change_room = 2 * w->change_room + 16;
    w->change = BRIM_ARENA_NEW(&g->arena, brim_wrap_change, w->change_room);
    if (before) memcpy(w->change, before, w->adapted * sizeof *before);
  }
  w->change[w->adapted++] = change;
}

/* Adds a second layer, of `low`, to the columns of y from `first` on. If the backend has no fused operation for this,
 * computes the summand, with zeros in the other columns. */
static brim_tensor *add_layer(brim_graph *g, const char *name, brim_tensor *y, brim_tensor *low, brim_tensor *weight,
                              int64_t first)
{
  const int32_t last = y->shape.rank - 1;
  brim_tensor *const both[] = {y, low, weight};
  if (brim_graph_offers(g, "linear+add"))
    return brim_graph_apply(g, "linear+add", name, both, 3, &(brim_attr){.linear = {.first = first}});
  brim_tensor *high = brim_graph_apply(g, "linear", name, both + 1, 2, NULL);
  int64_t before[BRIM_DIMS_MAX] = {0}, after[BRIM_DIMS_MAX] = {0};
  before[last] = first;
  after[last] = y->shape.dim[last] - weight->shape.dim[0] - first;
  if (high && before[last] + after[last] > 0) high = brim_pad(g, high, before, after, 0);
  return high ? brim_add(g, y, high) : NULL;
}

/* Returns y + B A dropout(x) * alpha / r, in `out` of y's columns. The factor multiplies the r results of A, which are
 * fewer. NULL on error. */
static brim_tensor *add_change(brim_graph *g, const char *name, brim_tensor *x, brim_tensor *y, int64_t out,
                               brim_wrap_change *change)
{
  const brim_lora_options *o = &g->wrap->adapt;
  const int64_t in = x->shape.dim[x->shape.rank - 1];
  const brim_shape down = {2, {o->r, in}}, up = {2, {out, o->r}};
  const char *a = brim_arena_printf(&g->arena, "%s.lora_A", name);
  const char *b = brim_arena_printf(&g->arena, "%s.lora_B", name);
  brim_tensor *weight_a = brim_graph_weight(g, a, "weight", &down, 1 / sqrt((double)in));
  brim_tensor *weight_b =
      brim_graph_parameter(g, brim_arena_printf(&g->arena, "%s.weight", b), &up, (brim_init){BRIM_INIT_CONSTANT, 0});
  if (!weight_a || !weight_b) return NULL;
  change->down = weight_a;
  change->up = weight_b;
  change->scale = o->alpha / (double)o->r;
  brim_tensor *to_a[] = {brim_dropout(g, x, o->dropout), weight_a};
  brim_tensor *low = to_a[0] ? brim_graph_apply(g, "linear", a, to_a, 2, NULL) : NULL;
  low = low ? brim_scale(g, low, change->scale) : NULL;
  return low ? add_layer(g, b, y, low, weight_b, change->first_row) : NULL;
}

/* Adds the change of one third of a layer's results. */
static brim_tensor *add_third(brim_graph *g, const char *name, brim_tensor *x, brim_tensor *y, char part,
                              brim_wrap_change *change)
{
  const int64_t all = y->shape.dim[y->shape.rank - 1], third = all / 3;
  if (all % 3 != 0) {
    brim_graph_fail(g, "linear", name,
                    "it is the target ':%c', but the number of its results, %lld, is not a multiple of 3", part,
                    (long long)all);
    return NULL;
  }
  change->first_row = part == 'q' ? 0 : part == 'k' ? third : 2 * third;
  return add_change(g, brim_arena_printf(&g->arena, "%s.%c", name, part), x, y, third, change);
}

const brim_wrap_change *brim_wrap_changes(const brim_graph *g, size_t *count)
{
  *count = g->wrap ? g->wrap->adapted : 0;
  return g->wrap ? g->wrap->change : NULL;
}

const brim_lora_options *brim_wrap_lora(const brim_graph *g)
{
  return &g->wrap->adapt;
}

const char *brim_wrap_head(const brim_graph *g)
{
  return g->wrap ? g->wrap->head : NULL;
}

brim_tensor *brim_wrap_adapt(brim_graph *g, const char *name, brim_tensor *x, const brim_tensor *weight, brim_tensor *y)
{
  brim_wrap *w = g->wrap;
  if (w && w->features && w->building && !w->head) w->head = brim_arena_string(&g->arena, name);
  if (!w || !w->building || w->features) return y;
  note_layer(g, name);
  const brim_names *targets = &w->adapt.targets;
  char parts[4] = ""; /* each part once, even if several targets name it */
  for (size_t i = 0; i < targets->count && w->adapt.r > 0; i++) {
    const char part = part_of(targets->item[i], name);
    if (part == 'a') parts[0] = 'a', parts[1] = '\0';
    if (part && parts[0] != 'a' && !strchr(parts, part)) parts[strlen(parts)] = part;
  }
  g->freezing = false;
  for (const char *part = parts; *part && y; part++) {
    brim_wrap_change change = {.layer = brim_arena_string(&g->arena, name), .weight = weight};
    y = *part == 'a' ? add_change(g, name, x, y, y->shape.dim[y->shape.rank - 1], &change)
                     : add_third(g, name, x, y, *part, &change);
    note_change(g, change);
  }
  g->freezing = true;
  return y;
}
