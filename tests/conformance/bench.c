/* The test bench: numbers, building, memory, and running node by node like core/exec. */
#include "conformance/bench.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "brim/random.h"
#include "graph/fuse.h"
#include "graph/layout.h"
#include "graph/lower.h"
#include "graph/recompute_walk.h"

#define CANARY_BYTES 64
#define TENSORS_MAX 16 /* inputs or outputs of a node */
#define CANARY 0xA5
#define STREAM_DRAWS 0xFFFFFFu

/* ---- numbers ---- */

int64_t bench_pick(bench *b, int64_t low, int64_t high)
{
  const brim_philox r = brim_random4(b->o.seed, BRIM_STREAM_DATA, STREAM_DRAWS, b->draws++, 0);
  return high <= low ? low : low + (int64_t)(r.v[0] % (uint64_t)(high - low + 1));
}

int64_t bench_pick_channels(bench *b)
{
  switch (b->o.size) {
  case SIZE_SMALL:
    return bench_pick(b, 1, 3);
  case SIZE_ONE:
    return 1;
  case SIZE_ODD:
    return 2 * bench_pick(b, 0, 11) + 1;
  case SIZE_BLOCKED:
    return 8 * bench_pick(b, 1, 6);
  default:
    return bench_pick(b, 1, 40);
  }
}

int64_t bench_pick_extent(bench *b, int64_t least)
{
  switch (b->o.size) {
  case SIZE_SMALL:
    return bench_pick(b, least, least + 3);
  case SIZE_ONE:
    return least;
  case SIZE_ODD:
    return least + 2 * bench_pick(b, 0, 3) + (least % 2 == 0);
  case SIZE_BLOCKED:
    return least + bench_pick(b, 4, 8);
  default:
    return bench_pick(b, least, least + 9);
  }
}

typedef struct drawn {
  uint32_t *number; /* by element */
  uint64_t count;
} drawn;

/* Random numbers drawn for the sources of the last seeds, by seed % SEEDS_KEPT. The benches of a case, for each backend
 * and each piece of its batch, the checks of sources, and other rows' cases with that seed need the same numbers:
 * without this cache, drawing them takes most of a test's time. */
#define SEEDS_KEPT 8
typedef struct seed_numbers {
  uint64_t seed;
  uint32_t streams; /* capacity */
  drawn *of_stream;
} seed_numbers;
static seed_numbers drawn_before[SEEDS_KEPT];

static void forget_drawn(seed_numbers *d, uint64_t seed)
{
  for (uint32_t i = 0; i < d->streams; i++) {
    free(d->of_stream[i].number);
    d->of_stream[i] = (drawn){NULL, 0};
  }
  d->seed = seed;
}

/* The random numbers `stream` of the elements below `count`, valid until the next call. */
static const uint32_t *drawn_numbers(uint64_t seed, uint32_t stream, uint64_t count)
{
  seed_numbers *of = &drawn_before[seed % SEEDS_KEPT];
  if (of->seed != seed) forget_drawn(of, seed);
  if (stream >= of->streams) {
    const uint32_t streams = 2 * stream + 16;
    of->of_stream = brim_xrealloc(of->of_stream, streams * sizeof *of->of_stream);
    for (uint32_t i = of->streams; i < streams; i++) of->of_stream[i] = (drawn){NULL, 0};
    of->streams = streams;
  }
  drawn *d = &of->of_stream[stream];
  if (d->count < count) {
    d->number = brim_xrealloc(d->number, count * sizeof *d->number);
    for (; d->count < count; d->count++)
      d->number[d->count] = brim_random4(seed, BRIM_STREAM_DATA, stream, d->count, 0).v[0];
  }
  return d->number;
}

static double bound_of(const brim_graph *g, const brim_tensor *t)
{
  for (size_t i = 0; i < g->parameter_count; i++)
    if (g->parameter[i].value == t && g->parameter[i].init.value > 0) return g->parameter[i].init.value;
  return 1;
}

/* True for a running variance, which starts at 1. */
static bool is_variance(const brim_graph *g, const brim_tensor *t)
{
  for (size_t i = 0; i < g->parameter_count; i++)
    if (g->parameter[i].value == t) return g->parameter[i].is_buffer && g->parameter[i].init.value > 0;
  return false;
}

/* True if the backward pass adds to the tensor and then passes the sum on. Such a tensor must start at zero. */
static bool is_sent_on(const brim_graph *g, const brim_tensor *t)
{
  for (size_t i = 0; i < g->further_count; i++)
    if (g->further[i].gradient == t) return g->further[i].of != NULL;
  return false;
}

/* The properties of a source's numbers, determined once for all of them. */
typedef struct source {
  const brim_tensor *tensor;
  bool is_variance;
  bool is_zero; /* a gradient that starts at zero */
  double bound;
  const uint32_t *drawn; /* by element */
} source;

/* True for a code that an optimizer stores instead of a number. */
static bool is_code(const brim_tensor *t)
{
  return t->dtype == BRIM_DTYPE_U8 && t->role == BRIM_ROLE_OPTIMIZER;
}

/* Describes a source whose elements below `end` are needed. Indices and codes are not drawn. */
static source source_of(const bench *b, const brim_tensor *t, uint64_t end)
{
  source s = {.tensor = t, .bound = 1};
  if (t->dtype != BRIM_DTYPE_I32 && !is_code(t)) s.drawn = drawn_numbers(b->o.seed, b->stream[t->id], end);
  s.is_zero = t->role == BRIM_ROLE_GRADIENT && (b->o.gradients_at_zero || is_sent_on(b->g, t));
  if (t->role != BRIM_ROLE_PARAMETER) return s;
  s.is_variance = is_variance(b->g, t);
  s.bound = bound_of(b->g, t);
  return s;
}

/* ---- rows ---- */

/* True if the row's name begins with one of the prefixes, or if `prefixes` is NULL. */
static bool is_wanted(const bench_row *row, const char *prefixes)
{
  for (const char *prefix = prefixes; prefix && *prefix; prefix += strspn(prefix, ",")) {
    const size_t length = strcspn(prefix, ",");
    if (length && strncmp(row->name, prefix, length) == 0) return true;
    prefix += length;
  }
  return !prefixes;
}

/* True for one row in every `count`, the one at `place`; false if the shard is malformed. */
static bool is_in_shard(const bench_row *const *at, const char *shard)
{
  if (!shard) return true;
  char *slash = NULL;
  const long place = strtol(shard, &slash, 10), count = *slash == '/' ? strtol(slash + 1, NULL, 10) : 0;
  return count > 0 && (at - __start_bench_rows) % count == place;
}

const bench_row *const *bench_row_from(const bench_row *const *at)
{
  const char *prefixes = getenv("BENCH_ROWS"), *shard = getenv("BENCH_SHARD");
  while (at < __stop_bench_rows && !(is_wanted(*at, prefixes) && is_in_shard(at, shard))) at++;
  return at;
}

/* ---- building ---- */

brim_tensor *bench_input(bench *b, const brim_shape *shape, const char *name)
{
  brim_tensor *x = brim_graph_tensor(b->g, BRIM_ROLE_DATA, b->g->real, shape, name);
  brim_autodiff_want(b->g, x);
  return x;
}

brim_tensor *bench_input4(bench *b, int64_t c, int64_t h, int64_t w)
{
  char name[32];
  if (!(b->o.context & AFTER_CONV)) return bench_input(b, &(brim_shape){4, {b->o.batch, c, h, w}}, "x");
  snprintf(name, sizeof name, "before%u", b->convs_before++);
  brim_tensor *x = bench_input(b, &(brim_shape){4, {b->o.batch, bench_pick_channels(b), h, w}}, "x");
  return brim_conv2d(b->g, name, x, c, (brim_conv2d_options){.kernel = {1, 1}});
}

brim_tensor *bench_input2(bench *b, int64_t f)
{
  char name[32];
  if (!(b->o.context & AFTER_CONV)) return bench_input(b, &(brim_shape){2, {b->o.batch, f}}, "x");
  snprintf(name, sizeof name, "before%u", b->convs_before++);
  brim_tensor *x = bench_input(b, &(brim_shape){2, {b->o.batch, bench_pick_channels(b)}}, "x");
  return brim_linear(b->g, name, x, f);
}

brim_tensor *bench_indices(bench *b, const brim_shape *shape, int64_t below, const char *name)
{
  brim_tensor *t = brim_graph_tensor(b->g, BRIM_ROLE_DATA, BRIM_DTYPE_I32, shape, name);
  if (t && t->id >= INDEX_TENSORS_MAX) fail_msg("%s: indices come too late in the graph", name);
  if (t) b->below[t->id] = below;
  return t;
}

brim_tensor *bench_places(bench *b, int64_t length, int64_t mean, int64_t below)
{
  brim_tensor *t = bench_indices(b, &(brim_shape){2, {b->o.batch, length}}, below, "places");
  if (t) b->mean[t->id] = mean;
  return b->g->places = t;
}

brim_tensor *bench_parameter(bench *b, const char *name, const brim_shape *shape, double bound)
{
  return brim_graph_parameter(b->g, name, shape, (brim_init){BRIM_INIT_UNIFORM, bound});
}

brim_tensor *bench_labels(bench *b, int64_t classes)
{
  b->g->classes = classes;
  b->g->label = bench_indices(b, &(brim_shape){1, {b->o.batch}}, classes, "label");
  return b->g->label;
}

/* Adds the context's operation after the tested one. */
static brim_tensor *put_context(bench *b, brim_tensor *y)
{
  const int32_t rank = brim_shape_of(y).rank;
  if (!(b->o.context & BEFORE_CONV) || b->o.row->is_loss || (rank != 2 && rank != 4)) return y;
  const int64_t channels = bench_pick_channels(b);
  return rank == 4 ? brim_conv2d(b->g, "after", y, channels, (brim_conv2d_options){.kernel = {1, 1}})
                   : brim_linear(b->g, "after", y, channels);
}

static void build_model(bench *b)
{
  brim_graph_options o = *b->o.model;
  o.batch = b->o.batch;
  o.real = b->o.backend->ops->real;
  o.training = !b->o.evaluate;
  o.norm_group = b->o.row->norm_group;
  o.activations = b->o.activations;
  if (brim_graph_build(&o, &b->g) != BRIM_OK) fail_msg("%s: %s", b->o.row->name, brim_error_text());
  b->result = b->g->loss;
}

static void build(bench *b)
{
  if (b->o.model) {
    build_model(b);
    return;
  }
  brim_graph *g = b->g = brim_graph_create(b->o.backend->ops->real, b->o.batch, !b->o.evaluate);
  if (b->o.row->norm_group > 0) g->norm_group = b->o.row->norm_group;
  brim_tensor *y = b->result = put_context(b, b->o.row->make(b));
  if (b->o.activations) brim_graph_lower(g, b->o.activations);
  if (y && !b->o.evaluate) {
    if (!b->o.row->is_loss) b->seed = brim_graph_tensor(g, BRIM_ROLE_DATA, y->dtype, &y->shape, "seed");
    brim_autodiff_run(g, y, b->seed);
    if (b->o.row->keeps_logits) brim_graph_fuse_loss(g);
  } else {
    g->forward_count = g->node_count;
  }
  if (g->status != BRIM_OK) fail_msg("%s: %s", b->o.row->name, g->error);
}

/* ---- memory ---- */

bool bench_accumulates(const bench *b, const brim_tensor *t)
{
  return t->role == BRIM_ROLE_GRADIENT || t == b->g->metrics;
}

static bool is_persistent(const bench *b, const brim_tensor *t)
{
  return bench_accumulates(b, t) || t->role == BRIM_ROLE_PARAMETER || t->role == BRIM_ROLE_OPTIMIZER ||
         t->role == BRIM_ROLE_CACHE;
}

static bool is_source(const bench *b, const brim_tensor *t)
{
  return is_persistent(b, t) || t->producer < 0;
}

static bool is_written(const bench *b, const brim_tensor *t)
{
  for (size_t i = 0; i < b->g->node_count; i++)
    for (uint32_t k = 0; k < b->g->node[i]->out_count; k++)
      if (b->g->node[i]->out[k] == t) return true;
  return false;
}

/* True if the elements are in memory in the order of the shape. */
static bool is_plain(const brim_tensor *t)
{
  return t->shape.rank != 4 || t->channel_block == 1;
}

/* Bytes of 0xFF are NaN in every real type, so values that no kernel writes are detected. */
static void *allocate(const bench *b, uint64_t bytes)
{
  void *p = NULL;
  const size_t alignment = b->o.backend->ops->alignment < 64 ? 64 : (size_t)b->o.backend->ops->alignment;
  if (posix_memalign(&p, alignment, (size_t)bytes + CANARY_BYTES) != 0) fail_msg("out of memory");
  memset(p, 0xFF, (size_t)bytes);
  memset((char *)p + bytes, CANARY, CANARY_BYTES);
  return p;
}

/* Returns memory that kernels can access, with room for the canary: new memory on the device, or `host` itself. */
static void *allocate_twin(const bench *b, void *host, uint64_t bytes)
{
  const backend *on = b->o.backend;
  void *device = host;
  if (b->on_device && on->ops->place(on->self, 0, bytes + CANARY_BYTES, &device) != BRIM_OK)
    fail_msg("%s", brim_error_text());
  return device;
}

static void free_twin(const bench *b, void *host, void *device, uint64_t bytes)
{
  if (b->on_device) b->o.backend->ops->unplace(b->o.backend->self, device, bytes + CANARY_BYTES);
  free(host);
}

static void check_canary(const bench *b, const void *memory, uint64_t bytes, const char *what)
{
  for (size_t i = 0; i < CANARY_BYTES; i++)
    if (((const unsigned char *)memory)[bytes + i] != CANARY)
      fail_msg("%s on %s: wrote past the end of %s", b->o.row->name, b->o.backend->name, what);
}

/* Returns the upper half of a float, rounded to nearest even. */
static uint16_t to_bf16(double value)
{
  const float rounded = (float)value;
  uint32_t bits;
  memcpy(&bits, &rounded, sizeof bits);
  if (isnan(value)) return 0x7FC0;
  return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static float from_bf16(uint16_t half)
{
  const uint32_t bits = (uint32_t)half << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Converts to IEEE 754's binary16: the upper 10 digits of a double, rounded to nearest even, and its exponent with
 * another bias. Numbers below the least exponent are multiples of 2^-24. */
static uint16_t to_f16(double value)
{
  const uint16_t sign = signbit(value) ? 0x8000 : 0;
  const double size = fabs(value);
  uint64_t bits;
  if (isnan(value)) return 0x7E00;
  if (size >= 65520) return sign | 0x7C00;
  if (size < 0x1p-14) return (uint16_t)(sign | (int)nearbyint(size * 0x1p24));
  memcpy(&bits, &size, sizeof bits);
  bits += ((uint64_t)1 << 41) - 1 + (bits >> 42 & 1);
  return (uint16_t)(sign | ((bits >> 42) - (1023 - 15) * 1024));
}

static double from_f16(uint16_t half)
{
  const uint64_t exponent = half >> 10 & 31, digits = half & 1023, bits = (exponent + 1023 - 15) << 52 | digits << 42;
  double size = (double)digits * 0x1p-24;
  if (exponent) memcpy(&size, &bits, sizeof size);
  if (exponent == 31) size = digits ? NAN : INFINITY;
  return half & 0x8000 ? -size : size;
}

static double rounded_to(uint32_t dtype, double value)
{
  if (dtype == BRIM_DTYPE_BF16) return from_bf16(to_bf16(value));
  return dtype == BRIM_DTYPE_F16 ? from_f16(to_f16((float)value)) : value;
}

#define STORE(type, convert)                                                                                           \
  for (uint64_t i = 0; i < count; i++) ((type *)memory)[i] = (type)convert(values[i])
static void store(void *memory, uint32_t dtype, const double *values, uint64_t count)
{
  switch (dtype) {
  case BRIM_DTYPE_BF16:
    STORE(uint16_t, to_bf16);
    break;
  case BRIM_DTYPE_F16:
    STORE(uint16_t, to_f16);
    break;
  case BRIM_DTYPE_F32:
    STORE(float, );
    break;
  case BRIM_DTYPE_F64:
    STORE(double, );
    break;
  case BRIM_DTYPE_I32:
    STORE(int32_t, );
    break;
  default:
    STORE(uint8_t, );
    break;
  }
}

/* Reads `count` elements, each `step` after the one before. */
#define FETCH(type, convert)                                                                                           \
  for (uint64_t i = 0; i < count; i++) values[i] = convert(((const type *)memory)[first + i * step])
static void fetch(double *values, const void *memory, uint32_t dtype, uint64_t first, uint64_t step, uint64_t count)
{
  switch (dtype) {
  case BRIM_DTYPE_BF16:
    FETCH(uint16_t, from_bf16);
    break;
  case BRIM_DTYPE_F16:
    FETCH(uint16_t, from_f16);
    break;
  case BRIM_DTYPE_F32:
    FETCH(float, );
    break;
  case BRIM_DTYPE_F64:
    FETCH(double, );
    break;
  case BRIM_DTYPE_I32:
    FETCH(int32_t, );
    break;
  default:
    FETCH(uint8_t, );
    break;
  }
}

static uint64_t below_of(const bench *b, const brim_tensor *t)
{
  if (!b->o.model) return (uint64_t)b->below[t->id];
  return (uint64_t)(t == b->g->label ? b->g->classes : b->o.below);
}

static int64_t place_at(const bench *b, const brim_tensor *t, uint64_t index)
{
  const int64_t length = t->shape.dim[1], sample = (int64_t)index / length;
  int64_t at = (int64_t)index % length, place = 0;
  for (; at > 0; at--, place++)
    if (brim_random4(b->o.seed, BRIM_STREAM_DATA, t->id, (uint64_t)sample, (uint64_t)at).v[0] % b->mean[t->id] == 0)
      return place;
  return place + sample * 7919 % b->below[t->id];
}

/* Draws elements of a source, from `first` on. All of them are floats. */
static void draw_values(const bench *b, const source *s, uint64_t first, uint64_t count, enum bench_values values,
                        double *out)
{
  const uint32_t *number = s->drawn + first, stream = b->stream[s->tensor->id];
  switch (values) {
  case VALUES_DISTINCT:
    for (uint64_t i = 0; i < count; i++)
      out[i] = (float)(((double)(((first + i) * 7919 + stream * 31) % 10007) - 5003.5) * 2e-4);
    break;
  case VALUES_TIES:
    for (uint64_t i = 0; i < count; i++) out[i] = ((double)(number[i] % 5) - 2) / 2;
    break;
  default:
    for (uint64_t i = 0; i < count; i++) out[i] = (float)(2 * brim_uniform(number[i]) - 1);
    break;
  }
}

static void draw_real(const bench *b, const brim_tensor *t, uint64_t first, uint64_t count, double *out)
{
  const source s = source_of(b, t, first + count);
  const bool given = t->role != BRIM_ROLE_PARAMETER && t->role != BRIM_ROLE_GRADIENT && t->role != BRIM_ROLE_OPTIMIZER;
  draw_values(b, &s, first, count, given ? b->o.values : VALUES_UNIFORM, out);
  for (uint64_t i = 0; s.is_variance && i < count; i++) out[i] = (float)(1.25 + out[i]);
  for (uint64_t i = 0; s.bound != 1 && i < count; i++) out[i] = (float)(out[i] * s.bound);
  for (uint64_t i = 0; s.is_zero && i < count; i++) out[i] = 0;
  for (uint64_t i = 0; t->role == BRIM_ROLE_OPTIMIZER && i < count; i++) out[i] = fabs(out[i]);
  for (uint64_t i = 0; t == b->g->metrics && i < count; i++)
    out[i] = b->o.gradients_at_zero ? 0 : (double)((first + i) % 5);
  for (uint64_t i = 0; t == b->seed && b->o.activations && i < count; i++) /* no cast precedes it */
    out[i] = rounded_to(b->o.activations, out[i]);
}

/* Indices are spread over their range; numbers of samples continue where the previous micro-batch ended. */
static void fill_source(const bench *b, const brim_tensor *t, void *memory)
{
  const uint64_t count = (uint64_t)brim_shape_count(&t->shape);
  uint64_t first = 0;
  if (!is_persistent(b, t)) first = (uint64_t)b->o.first_sample * (count / (uint64_t)t->shape.dim[0]);
  double *values = brim_xmalloc(count * sizeof *values);
  if (t->dtype == BRIM_DTYPE_I32 && !b->o.model && b->mean[t->id] > 0)
    for (uint64_t i = 0; i < count; i++) values[i] = (double)place_at(b, t, first + i);
  else if (t->dtype == BRIM_DTYPE_I32)
    for (uint64_t i = 0; i < count; i++) values[i] = (double)((first + i) * 7919 % below_of(b, t));
  else if (is_code(t))
    for (uint64_t i = 0; i < count; i++) values[i] = (double)(i * 7919 % 256);
  else
    draw_real(b, t, first, count, values);
  store(memory, t->dtype, values, count);
  free(values);
}

/* Assigns each tensor the number of its stream of random values: the tensor's id, or in a model its place among the
 * sources, which fusion does not change. */
static void number_streams(bench *b)
{
  uint32_t sources = 0;
  b->stream = brim_xcalloc(b->g->tensor_count, sizeof *b->stream);
  for (uint32_t i = 0; i < b->g->tensor_count; i++) {
    b->stream[i] = b->o.model ? sources : i;
    sources += b->g->tensor[i]->producer < 0 && b->g->tensor[i]->role != BRIM_ROLE_GRADIENT;
  }
}

static void make_memory(bench *b)
{
  brim_graph *g = b->g;
  number_streams(b);
  b->memory = brim_xcalloc(g->tensor_count, sizeof *b->memory);
  b->workspace = brim_xcalloc(g->node_count + 1, sizeof *b->workspace);
  b->device_memory = brim_xcalloc(g->tensor_count, sizeof *b->memory);
  b->device_workspace = brim_xcalloc(g->node_count + 1, sizeof *b->workspace);
  if (b->o.shared_memory) {
    brim_layout_find(&b->program, b->o.backend->ops->alignment);
    brim_layout_place(&b->program);
    b->arena = allocate(b, b->program.transient_bytes);
    b->device_arena = allocate_twin(b, b->arena, b->program.transient_bytes);
  }
  for (size_t i = 0; i < g->tensor_count; i++) {
    const int32_t buffer = b->arena ? b->program.tensor_buffer[i] : -1;
    const uint64_t bytes = g->tensor[i]->bytes;
    b->memory[i] = buffer >= 0 ? b->arena + b->program.buffer[buffer].offset : allocate(b, bytes);
    b->device_memory[i] =
        buffer >= 0 ? b->device_arena + b->program.buffer[buffer].offset : allocate_twin(b, b->memory[i], bytes);
  }
  for (size_t i = 0; i < g->node_count; i++) {
    const int32_t buffer = b->arena ? b->program.workspace_buffer[i] : -1;
    const uint64_t bytes = b->program.need[i].workspace_bytes;
    b->workspace[i] = buffer >= 0 ? b->arena + b->program.buffer[buffer].offset : allocate(b, bytes);
    b->device_workspace[i] =
        buffer >= 0 ? b->device_arena + b->program.buffer[buffer].offset : allocate_twin(b, b->workspace[i], bytes);
  }
  for (size_t i = 0; i < g->tensor_count; i++)
    if (is_source(b, g->tensor[i])) fill_source(b, g->tensor[i], b->memory[i]);
}

/* ---- life ---- */

static const brim_kernel *kernel_of(const backend *on, const char *op)
{
  for (const brim_kernel *const *k = on->ops->kernels; k < on->ops->kernels_end; k++)
    if (strcmp((*k)->op, op) == 0) return *k;
  return NULL;
}

bool bench_offers(const backend *on, const char *op)
{
  return kernel_of(on, op) != NULL;
}

static const brim_kernel *find_kernel(const bench *b, const char *op)
{
  const brim_kernel *k = kernel_of(b->o.backend, op);
  if (!k) fail_msg("backend %s has no kernel for %s", b->o.backend->name, op);
  return k;
}

static void prepare(bench *b)
{
  brim_program *p = &b->program;
  brim_graph *g = b->g;
  p->kind = b->o.evaluate ? BRIM_PROGRAM_EVALUATE : BRIM_PROGRAM_TRAIN;
  p->info = (brim_program_info){b->o.batch, b->o.grain, !b->o.evaluate};
  p->graph = g;
  p->kernel = BRIM_ARENA_NEW(&g->arena, const brim_kernel *, g->node_count + 1);
  p->state = BRIM_ARENA_NEW(&g->arena, void *, g->node_count + 1);
  p->need = BRIM_ARENA_NEW(&g->arena, brim_kernel_need, g->node_count + 1);
  for (size_t i = 0; i < g->node_count; i++) {
    const brim_kernel *k = p->kernel[i] = find_kernel(b, g->node[i]->op);
    if (k->prepare && k->prepare(b->o.backend->self, &p->info, g->node[i], &p->need[i], &p->state[i]) != BRIM_OK)
      fail_msg("%s on %s: %s", g->node[i]->op, b->o.backend->name, brim_error_text());
  }
  for (size_t i = 0; i < g->node_count; i++)
    if (p->kernel[i]->realize && p->kernel[i]->realize(b->o.backend->self, g->node[i], p->state[i]) != BRIM_OK)
      fail_msg("%s on %s: %s", g->node[i]->op, b->o.backend->name, brim_error_text());
}

static void release(bench *b)
{
  brim_program *p = &b->program;
  for (size_t i = 0; i < b->g->node_count; i++)
    if (p->state[i] && p->kernel[i]->release) p->kernel[i]->release(b->o.backend->self, p->state[i]);
}

/* Drops half of the nodes that may be dropped. */
static void drop_any(bench *b, brim_arena *arena, brim_recompute *out)
{
  uint32_t *of;
  const brim_graph *g = brim_walk_halve(b->g, arena, &of);
  bool *dropped = BRIM_ARENA_NEW(arena, bool, g->forward_count);
  for (uint32_t i = 0; i < g->forward_count; i++)
    dropped[i] = brim_random4(b->o.seed, BRIM_STREAM_DATA, STREAM_DRAWS, i, b->o.drop_seed).v[1] % 2 &&
                 brim_walk_repeats(g, g->node[i]);
  *out = (brim_recompute){.levels = 1, .dropped = {NULL, dropped}};
}

/* Works as in a plan: chooses the nodes to drop in the whole graph, then builds another graph and rewrites it. */
static void recompute(bench *b)
{
  brim_arena arena = {0};
  brim_recompute r;
  if (b->o.drop_any)
    drop_any(b, &arena, &r);
  else
    brim_recompute_choose(&b->program, b->o.recompute, &arena, &r);
  release(b);
  brim_graph_free(b->g);
  build(b);
  if (r.levels > 0 && brim_recompute_apply(b->g, &r, r.levels) != BRIM_OK) fail_msg("%s", b->g->error);
  prepare(b);
  brim_arena_release(&arena);
}

bench *bench_create(const bench_options *options)
{
  bench *b = brim_xcalloc(1, sizeof *b);
  b->o = *options;
  b->step = (brim_step){.seed = 42,
                        .step = 7,
                        .first_sample = options->first_sample,
                        .loss_scale = 0.75,
                        .norm_groups = 3,
                        .gradient_scale = 0.625,
                        .federated = 0.3125,
                        .control = 0.6875,
                        .lr = 0.05,
                        .weight_decay = 0.125,
                        .beta1 = 0.9,
                        .beta2 = 0.999,
                        .eps = 1e-8,
                        .momentum = 0.9,
                        .bias_correction1 = 1 - pow(0.9, 8),
                        .bias_correction2 = 1 - pow(0.999, 8),
                        .initial_accumulator = 0.25,
                        .scalar = {0.9, 0.75, 0.05, 0.125}};
  brim_device_info info;
  if (b->o.backend->ops->describe(b->o.backend->self, 0, &info) != BRIM_OK) fail_msg("%s", brim_error_text());
  b->on_device = !info.on_host;
  build(b);
  prepare(b);
  if (!b->o.evaluate && (b->o.drop_any || b->o.recompute != BRIM_RECOMPUTE_NONE)) recompute(b);
  make_memory(b);
  return b;
}

void bench_free(bench *b)
{
  brim_program *p = &b->program;
  release(b);
  for (size_t i = 0; i < b->g->node_count; i++) {
    if (!b->arena || p->workspace_buffer[i] < 0)
      free_twin(b, b->workspace[i], b->device_workspace[i], p->need[i].workspace_bytes);
  }
  for (size_t i = 0; i < b->g->tensor_count; i++)
    if (!b->arena || p->tensor_buffer[i] < 0) free_twin(b, b->memory[i], b->device_memory[i], b->g->tensor[i]->bytes);
  if (b->arena) free_twin(b, b->arena, b->device_arena, p->transient_bytes);
  free(b->memory);
  free(b->workspace);
  free(b->device_memory);
  free(b->device_workspace);
  free(b->stream);
  brim_graph_free(b->g);
  free(b);
}

void bench_check_sources(const bench *b)
{
  for (size_t i = 0; i < b->g->tensor_count; i++) {
    const brim_tensor *t = b->g->tensor[i];
    if (!is_source(b, t) || is_written(b, t)) continue;
    void *expected = allocate(b, t->bytes);
    fill_source(b, t, expected);
    if (memcmp(expected, b->memory[i], t->bytes) != 0)
      fail_msg("%s on %s: an operation changed its input '%s'", b->o.row->name, b->o.backend->name, t->name);
    free(expected);
  }
}

/* Copies everything with its canary, to the device or back. */
static void copy_twins(const bench *b, bool to_device)
{
  const brim_backend_ops *ops = b->o.backend->ops;
  const brim_program *p = &b->program;
  const size_t tensors = b->g->tensor_count, nodes = b->g->node_count;
  if (!b->on_device) return;
  for (size_t i = 0; i < tensors + nodes + 1; i++) {
    const bool tensor = i < tensors, node = !tensor && i < tensors + nodes;
    const size_t k = tensor ? i : i - tensors;
    if (node ? b->arena && p->workspace_buffer[k] >= 0 : tensor ? b->arena && p->tensor_buffer[k] >= 0 : !b->arena)
      continue;
    void *host = tensor ? b->memory[k] : node ? b->workspace[k] : b->arena;
    void *device = tensor ? b->device_memory[k] : node ? b->device_workspace[k] : b->device_arena;
    const uint64_t bytes = CANARY_BYTES + (tensor ? b->g->tensor[k]->bytes
                                           : node ? p->need[k].workspace_bytes
                                                  : p->transient_bytes);
    const brim_status status = to_device ? ops->upload(b->o.backend->self, device, host, bytes)
                                         : ops->download(b->o.backend->self, host, device, bytes);
    if (status != BRIM_OK) fail_msg("%s on %s: %s", b->o.row->name, b->o.backend->name, brim_error_text());
  }
}

/* Replaces the node's activations by copies of those that it had in b->o.follows; the caller frees the copies. This
 * bench's own results stay, because the test still compares them. */
static void take_inputs(const bench *b, const brim_node *n, void *in[TENSORS_MAX], double *taken[TENSORS_MAX])
{
  for (uint32_t k = 0; k < n->in_count; k++) {
    const brim_tensor *t = n->in[k];
    taken[k] = NULL;
    if (t->role != BRIM_ROLE_ACTIVATION || t->dtype != BRIM_DTYPE_F64) continue;
    in[k] = taken[k] = bench_values_of(b->o.follows, b->o.follows->g->tensor[t->id]);
  }
  /* In a fused sum and norm the sum is stored, and so rounded, before the norm is computed from it. So the reference
   * gets that sum as one operand, and zero as the other. */
  if (strncmp(n->op, "add+", 4) != 0 || !taken[0] || !taken[1]) return;
  free(taken[0]);
  in[0] = taken[0] = bench_values_of(b->o.follows, b->o.follows->g->tensor[n->out[0]->id]);
  memset(taken[1], 0, n->in[1]->bytes);
}

static void round_results(const bench *b, const brim_node *n)
{
  for (uint32_t k = 0; k < n->out_count; k++) {
    const brim_tensor *t = n->out[k];
    double *values = b->memory[t->id];
    const uint32_t dtype = b->o.follows->g->tensor[t->id]->dtype;
    if (t->dtype != BRIM_DTYPE_F64) continue;
    for (int64_t i = 0; i < brim_shape_count(&t->shape); i++) values[i] = rounded_to(dtype, values[i]);
  }
}

void bench_begin_step(const bench *b)
{
  for (size_t i = 0; i < b->g->further_count; i++) {
    const brim_tensor *t = b->g->further[i].gradient;
    if (b->g->further[i].of) memset(b->memory[t->id], 0, t->bytes);
  }
}

void bench_run(bench *b, size_t from, size_t to)
{
  copy_twins(b, true);
  for (size_t i = from; i < to; i++) {
    const brim_node *n = b->g->node[i];
    void *in[TENSORS_MAX], *out[TENSORS_MAX];
    if (n->in_count > TENSORS_MAX || n->out_count > TENSORS_MAX) fail_msg("%s: too many inputs or outputs", n->op);
    for (uint32_t k = 0; k < n->in_count; k++) in[k] = b->device_memory[n->in[k]->id];
    for (uint32_t k = 0; k < n->out_count; k++) out[k] = b->device_memory[n->out[k]->id];
    double *taken[TENSORS_MAX] = {NULL};
    if (b->o.follows) take_inputs(b, n, in, taken);
    const brim_launch launch = {n, b->program.state[i], in, out, b->device_workspace[i], &b->step};
    if (b->program.kernel[i]->run(b->o.backend->self, &launch) != BRIM_OK)
      fail_msg("%s on %s: %s", n->op, b->o.backend->name, brim_error_text());
    if (b->o.follows) round_results(b, n);
    for (uint32_t k = 0; k < n->in_count; k++) free(taken[k]);
  }
  if (b->o.backend->ops->synchronize(b->o.backend->self) != BRIM_OK) fail_msg("%s", brim_error_text());
  copy_twins(b, false);
  if (b->arena) {
    check_canary(b, b->arena, b->program.transient_bytes, "the arena");
    return;
  }
  for (size_t i = 0; i < b->g->tensor_count; i++)
    check_canary(b, b->memory[i], b->g->tensor[i]->bytes, b->g->tensor[i]->name);
  for (size_t i = 0; i < b->g->node_count; i++)
    check_canary(b, b->workspace[i], b->program.need[i].workspace_bytes, "a workspace");
}

/* A tensor's layout gives the place of an element (brim/tensor.h). */
double *bench_values_of(const bench *b, const brim_tensor *t)
{
  const void *memory = b->memory[t->id];
  const uint64_t count = (uint64_t)brim_shape_count(&t->shape), block = (uint64_t)t->channel_block;
  double *values = brim_xmalloc(count * sizeof *values), *at = values;
  if (is_plain(t)) {
    fetch(values, memory, t->dtype, 0, 1, count);
    return values;
  }
  const uint64_t C = (uint64_t)t->shape.dim[1], plane = (uint64_t)(t->shape.dim[2] * t->shape.dim[3]);
  for (uint64_t n = 0; n < (uint64_t)t->shape.dim[0]; n++)
    for (uint64_t c = 0; c < C; c++, at += plane)
      fetch(at, memory, t->dtype, (n * (C / block) + c / block) * plane * block + c % block, block, plane);
  return values;
}

bool bench_same(const bench *a, const brim_tensor *t, const bench *b, const brim_tensor *u, int64_t skip)
{
  const size_t count = (size_t)brim_shape_count(&t->shape), element = brim_dtype_bytes(t->dtype);
  if (t->dtype == u->dtype && ((is_plain(t) && is_plain(u)) || t->channel_block == u->channel_block))
    return memcmp(a->memory[t->id], (const char *)b->memory[u->id] + (size_t)skip * element, count * element) == 0;
  double *x = bench_values_of(a, t), *y = bench_values_of(b, u);
  const bool same = memcmp(x, y + skip, count * sizeof *x) == 0;
  free(x);
  free(y);
  return same;
}

void bench_hand_over(const bench *from, bench *to)
{
  for (size_t i = 0; i < from->g->tensor_count; i++)
    if (bench_accumulates(from, from->g->tensor[i])) memcpy(to->memory[i], from->memory[i], from->g->tensor[i]->bytes);
}
