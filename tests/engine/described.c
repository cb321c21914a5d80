/* See described.h. Each operation has a line: the function's name without brim_, and its arguments in the order of
 * brim/model.h. A number stands for a tensor: 0 is the input, and results follow in their order. */
#include "engine/described.h"

#include <stdlib.h>
#include <string.h>

#define TENSORS_MAX 128

/* ---- numbers ---- */

static uint64_t mix(uint64_t x) /* splitmix64 (Steele, Lea and Flood, OOPSLA 2014) */
{
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

static uint64_t bits(uint64_t seed, uint64_t stream, uint64_t i)
{
  return mix(mix(mix(seed) + stream) + i);
}

double described_number(uint64_t seed, uint64_t stream, uint64_t i)
{
  return (double)(bits(seed, stream, i) >> 40) / 8388608.0 - 1;
}

/* ---- networks ---- */

typedef struct builder {
  brim_graph *graph;
  brim_tensor *tensor[TENSORS_MAX];
  int count;
  const described_line *line;
  int at; /* index of the next word */
} builder;

static const char *text(builder *b)
{
  return b->at < b->line->count ? b->line->word[b->at++] : "0";
}
static double real(builder *b)
{
  return strtod(text(b), NULL);
}
static int64_t integer(builder *b)
{
  return strtoll(text(b), NULL, 10);
}
static brim_tensor *tensor(builder *b)
{
  const int64_t i = integer(b);
  return i >= 0 && i < b->count ? b->tensor[i] : NULL;
}
static void integers(builder *b, int64_t *out, int64_t count)
{
  for (int64_t i = 0; i < count && i < BRIM_DIMS_MAX; i++) out[i] = integer(b);
}

/* A compiler may evaluate the arguments of a call in any order, so functions that read several values name each
 * first. */
#define UNARY(name)                                                                                                    \
  static brim_tensor *make_##name(builder *b)                                                                          \
  {                                                                                                                    \
    return brim_##name(b->graph, tensor(b));                                                                           \
  }
UNARY(relu)
UNARY(silu)
UNARY(sigmoid)
UNARY(tanh)
UNARY(exp)
UNARY(softmax)
UNARY(log_softmax)
UNARY(flatten)
UNARY(global_avg_pool)
UNARY(block)

#define UNARY_REAL(name)                                                                                               \
  static brim_tensor *make_##name(builder *b)                                                                          \
  {                                                                                                                    \
    brim_tensor *x = tensor(b);                                                                                        \
    return brim_##name(b->graph, x, real(b));                                                                          \
  }
UNARY_REAL(leaky_relu)
UNARY_REAL(scale)
UNARY_REAL(dropout)

#define BINARY(name)                                                                                                   \
  static brim_tensor *make_##name(builder *b)                                                                          \
  {                                                                                                                    \
    brim_tensor *x = tensor(b);                                                                                        \
    return brim_##name(b->graph, x, tensor(b));                                                                        \
  }
BINARY(add)
BINARY(sub)
BINARY(mul)
BINARY(div)
BINARY(embedding_with)

static brim_tensor *make_gelu(builder *b)
{
  brim_tensor *x = tensor(b);
  return brim_gelu(b->graph, x, (int32_t)integer(b));
}

static brim_tensor *make_parameter(builder *b)
{
  const char *name = text(b);
  int64_t dim[BRIM_DIMS_MAX] = {0};
  const int32_t rank = (int32_t)integer(b);
  integers(b, dim, rank);
  return brim_parameter_new(b->graph, name, rank, dim, (brim_init){BRIM_INIT_NORMAL, 1});
}

static brim_tensor *make_linear(builder *b)
{
  const char *name = text(b);
  brim_tensor *x = tensor(b);
  return brim_linear(b->graph, name, x, integer(b));
}

static brim_tensor *make_linear_no_bias(builder *b)
{
  const char *name = text(b);
  brim_tensor *x = tensor(b);
  return brim_linear_no_bias(b->graph, name, x, integer(b));
}

static brim_tensor *make_linear_with(builder *b)
{
  const char *name = text(b);
  brim_tensor *x = tensor(b), *weight = tensor(b);
  return brim_linear_with(b->graph, name, x, weight, tensor(b)); /* tensor -1, for the bias, is NULL */
}

static brim_tensor *make_matmul(builder *b)
{
  brim_tensor *x = tensor(b), *y = tensor(b);
  const int transpose = (int)integer(b);
  return brim_matmul(b->graph, x, y, transpose, (int)integer(b));
}

static brim_tensor *make_conv2d(builder *b)
{
  const char *name = text(b);
  brim_tensor *x = tensor(b);
  const int64_t channels = integer(b);
  brim_conv2d_options o = {0};
  integers(b, o.kernel, 2);
  integers(b, o.stride, 2);
  integers(b, o.padding, 2);
  integers(b, o.dilation, 2);
  o.groups = integer(b);
  o.no_bias = (int32_t)integer(b);
  return brim_conv2d(b->graph, name, x, channels, o);
}

static brim_tensor *make_conv1d(builder *b)
{
  const char *name = text(b);
  brim_tensor *x = tensor(b);
  const int64_t channels = integer(b);
  brim_conv1d_options o = {0};
  o.kernel = integer(b);
  o.stride = integer(b);
  o.padding = integer(b);
  o.dilation = integer(b);
  o.groups = integer(b);
  o.no_bias = (int32_t)integer(b);
  return brim_conv1d(b->graph, name, x, channels, o);
}

static brim_tensor *make_conv_transpose2d(builder *b)
{
  const char *name = text(b);
  brim_tensor *x = tensor(b);
  const int64_t channels = integer(b);
  brim_conv_transpose2d_options o = {0};
  integers(b, o.kernel, 2);
  integers(b, o.stride, 2);
  integers(b, o.padding, 2);
  integers(b, o.output_padding, 2);
  integers(b, o.dilation, 2);
  o.groups = integer(b);
  o.no_bias = (int32_t)integer(b);
  return brim_conv_transpose2d(b->graph, name, x, channels, o);
}

static brim_tensor *make_conv_transpose1d(builder *b)
{
  const char *name = text(b);
  brim_tensor *x = tensor(b);
  const int64_t channels = integer(b);
  brim_conv_transpose1d_options o = {0};
  o.kernel = integer(b);
  o.stride = integer(b);
  o.padding = integer(b);
  o.output_padding = integer(b);
  o.dilation = integer(b);
  o.groups = integer(b);
  o.no_bias = (int32_t)integer(b);
  return brim_conv_transpose1d(b->graph, name, x, channels, o);
}

static brim_tensor *make_embedding(builder *b)
{
  const char *name = text(b);
  brim_tensor *x = tensor(b);
  const int64_t count = integer(b);
  return brim_embedding(b->graph, name, x, count, integer(b));
}

static brim_pool2d_options pool(builder *b)
{
  brim_pool2d_options o = {0};
  integers(b, o.kernel, 2);
  integers(b, o.stride, 2);
  integers(b, o.padding, 2);
  o.exclude_padding = (int32_t)integer(b);
  return o;
}

static brim_tensor *make_max_pool2d(builder *b)
{
  brim_tensor *x = tensor(b);
  return brim_max_pool2d(b->graph, x, pool(b));
}

static brim_tensor *make_avg_pool2d(builder *b)
{
  brim_tensor *x = tensor(b);
  return brim_avg_pool2d(b->graph, x, pool(b));
}

static brim_tensor *make_max_pool1d(builder *b)
{
  brim_tensor *x = tensor(b);
  int64_t o[3];
  integers(b, o, 3);
  return brim_max_pool1d(b->graph, x, o[0], o[1], o[2]);
}

static brim_tensor *make_adaptive_avg_pool2d(builder *b)
{
  brim_tensor *x = tensor(b);
  int64_t size[2];
  integers(b, size, 2);
  return brim_adaptive_avg_pool2d(b->graph, x, size[0], size[1]);
}

static brim_tensor *make_upsample2d(builder *b)
{
  brim_tensor *x = tensor(b);
  brim_upsample2d_options o = {0};
  integers(b, o.size, 2);
  integers(b, o.factor, 2);
  o.mode = (int32_t)integer(b);
  o.align_corners = (int32_t)integer(b);
  return brim_upsample2d(b->graph, x, o);
}

static brim_tensor *make_upsample1d(builder *b)
{
  brim_tensor *x = tensor(b);
  brim_upsample1d_options o = {0};
  o.size = integer(b);
  o.factor = integer(b);
  o.mode = (int32_t)integer(b);
  o.align_corners = (int32_t)integer(b);
  return brim_upsample1d(b->graph, x, o);
}

static brim_tensor *make_batch_norm(builder *b)
{
  const char *name = text(b);
  brim_tensor *x = tensor(b);
  const double eps = real(b);
  return brim_batch_norm(b->graph, name, x, eps, real(b));
}

static brim_tensor *make_group_norm(builder *b)
{
  const char *name = text(b);
  brim_tensor *x = tensor(b);
  const int64_t groups = integer(b);
  return brim_group_norm(b->graph, name, x, groups, real(b));
}

static brim_tensor *make_layer_norm(builder *b)
{
  const char *name = text(b);
  brim_tensor *x = tensor(b);
  return brim_layer_norm(b->graph, name, x, real(b));
}

static brim_tensor *make_rms_norm(builder *b)
{
  const char *name = text(b);
  brim_tensor *x = tensor(b);
  return brim_rms_norm(b->graph, name, x, real(b));
}

/* Reads x, keep, the number of axes, the axes. */
static int32_t axes_of(builder *b, int *keep, int32_t axes[BRIM_DIMS_MAX])
{
  int64_t axis[BRIM_DIMS_MAX] = {0};
  *keep = (int)integer(b);
  const int32_t count = (int32_t)integer(b);
  integers(b, axis, count);
  for (int d = 0; d < BRIM_DIMS_MAX; d++) axes[d] = (int32_t)axis[d];
  return count;
}

static brim_tensor *make_sum(builder *b)
{
  brim_tensor *x = tensor(b);
  int32_t axes[BRIM_DIMS_MAX];
  int keep;
  const int32_t count = axes_of(b, &keep, axes);
  return brim_sum(b->graph, x, count, axes, keep);
}

static brim_tensor *make_mean(builder *b)
{
  brim_tensor *x = tensor(b);
  int32_t axes[BRIM_DIMS_MAX];
  int keep;
  const int32_t count = axes_of(b, &keep, axes);
  return brim_mean(b->graph, x, count, axes, keep);
}

static brim_tensor *make_reshape(builder *b)
{
  brim_tensor *x = tensor(b);
  int64_t dim[BRIM_DIMS_MAX] = {0};
  const int32_t rank = (int32_t)integer(b);
  integers(b, dim, rank);
  dim[0] = brim_shape_of(x).dim[0];
  return brim_reshape(b->graph, x, rank, dim);
}

static brim_tensor *make_transpose(builder *b)
{
  brim_tensor *x = tensor(b);
  const int32_t axis = (int32_t)integer(b);
  return brim_transpose(b->graph, x, axis, (int32_t)integer(b));
}

static brim_tensor *make_permute(builder *b)
{
  brim_tensor *x = tensor(b);
  int32_t order[BRIM_DIMS_MAX];
  for (int d = 0; d < BRIM_DIMS_MAX; d++) order[d] = (int32_t)integer(b);
  return brim_permute(b->graph, x, order);
}

static brim_tensor *make_concat(builder *b)
{
  brim_tensor *x[8] = {0};
  const int32_t axis = (int32_t)integer(b), count = (int32_t)integer(b);
  for (int i = 0; i < count && i < 8; i++) x[i] = tensor(b);
  return brim_concat(b->graph, count, x, axis);
}

static brim_tensor *make_slice(builder *b)
{
  brim_tensor *x = tensor(b);
  const int32_t axis = (int32_t)integer(b);
  const int64_t start = integer(b);
  return brim_slice(b->graph, x, axis, start, integer(b));
}

/* Adds all parts to the tensors, and returns the last one. */
static brim_tensor *make_split(builder *b)
{
  brim_tensor *x = tensor(b), *part[8] = {0};
  const int32_t axis = (int32_t)integer(b), count = (int32_t)integer(b);
  brim_split(b->graph, x, axis, count < 8 ? count : 8, part);
  for (int i = 0; i < count - 1 && b->count < TENSORS_MAX; i++) b->tensor[b->count++] = part[i];
  return part[count - 1];
}

static brim_tensor *make_pad(builder *b)
{
  brim_tensor *x = tensor(b);
  const double value = real(b);
  int64_t before[BRIM_DIMS_MAX] = {0}, after[BRIM_DIMS_MAX] = {0};
  const int64_t rank = integer(b);
  integers(b, before, rank);
  integers(b, after, rank);
  return brim_pad(b->graph, x, before, after, value);
}

static brim_tensor *make_gather(builder *b)
{
  brim_tensor *x = tensor(b);
  const int32_t axis = (int32_t)integer(b);
  return brim_gather(b->graph, x, axis, tensor(b));
}

static brim_tensor *make_attention(builder *b)
{
  brim_tensor *q = tensor(b), *k = tensor(b), *v = tensor(b);
  brim_attention_options o = {0};
  o.heads = integer(b);
  o.kv_heads = integer(b);
  o.causal = (int32_t)integer(b);
  o.scale = real(b);
  o.dropout = real(b);
  return brim_attention(b->graph, q, k, v, o);
}

static brim_tensor *make_rotary(builder *b)
{
  brim_tensor *x = tensor(b);
  brim_rotary_options o = {0};
  o.heads = integer(b);
  o.dims = integer(b);
  o.base = real(b);
  o.interleaved = (int32_t)integer(b);
  return brim_rotary(b->graph, x, o);
}

static brim_tensor *make_lstm(builder *b)
{
  const char *name = text(b);
  brim_tensor *x = tensor(b);
  const int64_t hidden = integer(b);
  brim_lstm_options o = {0};
  o.layers = (int32_t)integer(b);
  o.bidirectional = (int32_t)integer(b);
  return brim_lstm(b->graph, name, x, hidden, o);
}

#define MAKER(name)                                                                                                    \
  {                                                                                                                    \
#name, make_##name                                                                                                 \
  }
static const struct {
  const char *name;
  brim_tensor *(*make)(builder *b);
} makers[] = {MAKER(relu),
              MAKER(silu),
              MAKER(sigmoid),
              MAKER(tanh),
              MAKER(exp),
              MAKER(softmax),
              MAKER(log_softmax),
              MAKER(flatten),
              MAKER(global_avg_pool),
              MAKER(block),
              MAKER(leaky_relu),
              MAKER(scale),
              MAKER(dropout),
              MAKER(add),
              MAKER(sub),
              MAKER(mul),
              MAKER(div),
              MAKER(embedding_with),
              MAKER(gelu),
              MAKER(parameter),
              MAKER(linear),
              MAKER(linear_no_bias),
              MAKER(linear_with),
              MAKER(matmul),
              MAKER(conv2d),
              MAKER(conv1d),
              MAKER(conv_transpose2d),
              MAKER(conv_transpose1d),
              MAKER(embedding),
              MAKER(max_pool2d),
              MAKER(avg_pool2d),
              MAKER(max_pool1d),
              MAKER(adaptive_avg_pool2d),
              MAKER(upsample2d),
              MAKER(upsample1d),
              MAKER(batch_norm),
              MAKER(group_norm),
              MAKER(layer_norm),
              MAKER(rms_norm),
              MAKER(sum),
              MAKER(mean),
              MAKER(reshape),
              MAKER(transpose),
              MAKER(permute),
              MAKER(concat),
              MAKER(slice),
              MAKER(split),
              MAKER(pad),
              MAKER(gather),
              MAKER(attention),
              MAKER(rotary),
              MAKER(lstm)};

static brim_status build(const void *self, brim_graph *g)
{
  const described *d = self;
  builder b = {.graph = g, .count = 1};
  b.tensor[0] = brim_input(g);
  for (int i = 0; i < d->op_count; i++) {
    const char *name = d->op[i].word[0];
    size_t at = 0;
    while (at < sizeof makers / sizeof makers[0] && strcmp(makers[at].name, name) != 0) at++;
    if (at == sizeof makers / sizeof makers[0]) return brim_fail(BRIM_EINVAL, "no operation '%s'", name);
    if (b.count == TENSORS_MAX) return brim_fail(BRIM_EINVAL, "more than %d tensors", TENSORS_MAX);
    b.line = &d->op[i];
    b.at = 1;
    brim_tensor *made = makers[at].make(&b);
    if (b.count < TENSORS_MAX) b.tensor[b.count++] = made;
  }
  brim_output(g, b.tensor[b.count - 1]);
  return BRIM_OK;
}

/* ---- files ---- */

static void wrong(const described_line *line)
{
  fprintf(stderr, "engine: cannot read the line '%s' (of %d words)\n", line->count ? line->word[0] : "", line->count);
  abort();
}

static bool next_line(FILE *file, described_line *out)
{
  char *rest = NULL;
  out->count = 0;
  while (out->count == 0) {
    if (!fgets(out->text, sizeof out->text, file)) return false;
    if (out->text[0] == '#') continue;
    for (char *word = strtok_r(out->text, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest)) {
      if (out->count == DESCRIBED_WORDS_MAX) wrong(out);
      out->word[out->count++] = word;
    }
  }
  out->word[out->count] = NULL;
  return true;
}

/* A line is copied together with its words. */
static void copy_line(const described_line *from, described_line *to)
{
  *to = *from;
  for (int i = 0; i < from->count; i++) to->word[i] = to->text + (from->word[i] - from->text);
}

static double number_at(const described_line *line, int i)
{
  if (i >= line->count) wrong(line);
  return strtod(line->word[i], NULL);
}

/* name, task, sample, classes, batch, micro-batch, grain, recompute, activations, answers, steps, share of ignored
 * labels, the ignored label, seed; the sample's dimensions come last. */
static void read_case(described *d, const described_line *line)
{
  brim_network *n = &d->network;
  const described_line *l = line;
  *d = (described){.network = {.size = sizeof *n, .build = build, .self = d}};
  if (l->count < 15) wrong(l);
  snprintf(d->name, sizeof d->name, "%s", l->word[1]);
  n->task = (int32_t)number_at(l, 2);
  n->classes = (int64_t)number_at(l, 3);
  n->batch = (int64_t)number_at(l, 4);
  n->micro_batch = (int64_t)number_at(l, 5);
  n->grain = (int64_t)number_at(l, 6);
  n->recompute = (int32_t)number_at(l, 7);
  n->activations = number_at(l, 8) != 0 ? BRIM_DTYPE_BF16 : 0;
  n->answers = (int32_t)number_at(l, 9);
  d->steps = (int32_t)number_at(l, 10);
  d->ignored = number_at(l, 11);
  d->no_label = (int32_t)number_at(l, 12);
  d->seed = (uint64_t)number_at(l, 13);
  n->sample.rank = l->count - 14;
  for (int i = 0; i < n->sample.rank; i++) n->sample.dim[i] = (int64_t)number_at(l, 14 + i);
  if (d->steps > DESCRIBED_STEPS_MAX || n->sample.rank >= BRIM_DIMS_MAX) wrong(l);
}

static void read_parameter(described *d, const described_line *l)
{
  if (d->parameter_count == DESCRIBED_PARAMETERS_MAX) wrong(l);
  described_parameter *p = &d->parameter[d->parameter_count++];
  snprintf(p->name, sizeof p->name, "%s", l->word[1]);
  p->count = (uint64_t)number_at(l, 2);
  p->offset = number_at(l, 3);
  p->scale = number_at(l, 4);
  p->sum = number_at(l, 5);
  p->tolerance = number_at(l, 6);
}

bool described_read(FILE *file, described *d)
{
  described_line line;
  if (!next_line(file, &line)) return false;
  if (strcmp(line.word[0], "case") != 0) wrong(&line);
  read_case(d, &line);
  while (next_line(file, &line) && strcmp(line.word[0], "end") != 0) {
    const char *kind = line.word[0];
    if (strcmp(kind, "loss") == 0) {
      copy_line(&line, &d->loss);
      d->network.loss = d->loss.word[1];
      d->network.loss_settings = d->loss.word + 2;
    } else if (strcmp(kind, "optimizer") == 0) {
      copy_line(&line, &d->optimizer);
      d->network.optimizer = d->optimizer.word[1];
      d->network.optimizer_settings = d->optimizer.word + 2;
    } else if (strcmp(kind, "value") == 0) {
      read_parameter(d, &line);
    } else if (strcmp(kind, "losses") == 0) {
      for (int i = 0; i < d->steps; i++) d->expected_loss[i] = number_at(&line, 2 + i);
      d->loss_tolerance = number_at(&line, 1);
    } else if (strcmp(kind, "answers") == 0) {
      d->answers_sum = number_at(&line, 1);
      d->answers_tolerance = number_at(&line, 2);
    } else {
      if (d->op_count == DESCRIBED_OPS_MAX) wrong(&line);
      copy_line(&line, &d->op[d->op_count++]);
    }
  }
  return true;
}

/* ---- training ---- */

/* Draws the values and labels of a step from separate streams of numbers. The streams of parameters begin at 1. */
static void make_batch(const described *d, int step, void *values, int64_t value_count, void *labels,
                       int64_t label_count)
{
  const uint64_t stream = 1000 + 10 * (uint64_t)step;
  const brim_network *n = &d->network;
  for (int64_t i = 0; i < value_count; i++) {
    const uint64_t at = (uint64_t)i;
    if (n->task == BRIM_TASK_TOKENS)
      ((int32_t *)values)[i] = (int32_t)(bits(d->seed, stream, at) % (uint64_t)n->classes);
    else
      ((float *)values)[i] = (float)described_number(d->seed, stream, at);
  }
  for (int64_t i = 0; i < label_count; i++) {
    const uint64_t at = (uint64_t)i;
    const bool is_ignored = (described_number(d->seed, stream + 2, at) + 1) / 2 < d->ignored;
    if (n->task == BRIM_TASK_VALUES)
      ((float *)labels)[i] = (float)described_number(d->seed, stream + 1, at);
    else
      ((int32_t *)labels)[i] =
          is_ignored ? d->no_label : (int32_t)(bits(d->seed, stream + 1, at) % (uint64_t)n->classes);
  }
}

static brim_status write_parameters(const described *d, brim_training *t, described_result *out)
{
  for (int p = 0; p < d->parameter_count; p++) {
    const described_parameter *parameter = &d->parameter[p];
    float *value = out->parameter[p] = malloc(parameter->count * sizeof *value);
    for (uint64_t i = 0; i < parameter->count; i++)
      value[i] =
          (float)parameter->offset + (float)parameter->scale * (float)described_number(d->seed, 1 + (uint64_t)p, i);
    const brim_status status = brim_engine_write(t, parameter->name, value, parameter->count);
    if (status != BRIM_OK) return status;
  }
  return BRIM_OK;
}

static brim_status train(const described *d, brim_training *t, described_result *out)
{
  const brim_network *n = &d->network;
  int64_t each = 1, labels_each = 1;
  for (int i = 0; i < n->sample.rank; i++) each *= n->sample.dim[i];
  if (n->task == BRIM_TASK_TOKENS) labels_each = each;
  if (n->task == BRIM_TASK_VALUES) labels_each = n->classes;
  float *values = malloc((size_t)(n->batch * each) * sizeof *values);
  float *labels = malloc((size_t)(n->batch * labels_each) * sizeof *labels); /* or int32_t, which has the same size */
  brim_status status = write_parameters(d, t, out);
  for (int step = 0; step < d->steps && status == BRIM_OK; step++) {
    make_batch(d, step, values, n->batch * each, labels, n->batch * labels_each);
    for (int64_t i = 0; i < n->batch && status == BRIM_OK; i += n->micro_batch)
      status = brim_engine_feed(t, values + i * each, labels + i * labels_each);
    if (status == BRIM_OK) status = brim_engine_step(t, &out->loss[step]);
  }
  for (int p = 0; p < d->parameter_count && status == BRIM_OK; p++)
    status = brim_engine_fetch(t, d->parameter[p].name, out->parameter[p], d->parameter[p].count);
  if (status == BRIM_OK && n->answers) {
    const int64_t tokens = n->task == BRIM_TASK_TOKENS ? each : 1;
    out->answer_count = (uint64_t)(n->micro_batch * tokens * n->classes);
    out->answers = malloc(out->answer_count * sizeof *out->answers);
    status = brim_engine_answer(t, values + (n->batch - n->micro_batch) * each, out->answers);
  }
  free(values);
  free(labels);
  return status;
}

brim_status described_train(const described *d, brim_engine *engine, described_result *out)
{
  brim_training_plan *plan = NULL;
  brim_training *training = NULL;
  *out = (described_result){0};
  brim_status status = brim_engine_plan(engine, &d->network, &plan);
  if (status == BRIM_OK) status = brim_engine_place(plan, d->seed, &training);
  if (status == BRIM_OK) status = train(d, training, out);
  brim_engine_unplace(training);
  brim_engine_plan_free(plan);
  return status;
}

void described_result_free(described_result *result)
{
  for (int p = 0; p < DESCRIBED_PARAMETERS_MAX; p++) free(result->parameter[p]);
  free(result->answers);
}
