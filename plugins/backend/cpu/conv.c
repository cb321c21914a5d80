/* conv2d and its gradients: the micro-batch is cut into units of samples that run as parallel tasks, each through a
 * oneDNN primitive made for one thread. A unit's size follows from the shape and the grain, never from the micro-batch
 * or the thread count, so those do not change the results.
 *
 * Weights are stored plain and converted to the primitive's order at every run. Their gradient is converted to that
 * order too, accumulates the units' parts in the order of the samples, and is converted back: dw = ((dw + unit 0) +
 * unit 1) + ... A wave of units is computed in parallel; then its parts are added, every thread adding all parts of its
 * own range of elements. The parts of dbias are computed here, by planes, not by oneDNN. If such parts would be most of
 * the work, a product computes dw instead (conv_product.c). Most 3x3 convolutions use Winograd's transforms
 * (conv_winograd.c, conv_winograd_weights.c).
 *
 * A fused activation after the forward pass is applied to a unit as soon as it is computed, while it is in the cache.
 * oneDNN could do it within the primitive, but its relu would turn a NaN into 0, and its functions have other bits.
 *
 * conv_transpose2d runs as the gradient of a convolution's input; its bias is added in the same way.
 *
 * Workspace: weights in the primitive's order | a wave's parts of dw and dbias | for each thread: scratch,
 * copies of a unit of x and y where the primitive wants another order. */
#include <stdlib.h>

#include "conv.h"
#include "simd_pool.h"

enum {
  GRAIN_DEFAULT = 16,   /* samples of a unit if the program sets no grain */
  WAVE_MAX = 16,        /* units whose parts are kept at once, or one for each thread if that is more */
  ADD_PIECE = 4096,     /* elements of dw that a task adds up */
  ALONE_FLOPS = 4000000 /* a sample with this much work is a unit by itself */
};
/* Weights that are larger than this prevent it, because each unit reads the weights anew. */
#define ALONE_WEIGHT_BYTES (256 * 1024)

/* The memory objects of one thread for one primitive; pointers are set at every run. */
typedef struct memories {
  dnnl_memory_t x_outer, x_inner, y_outer, y_inner, w_outer, w_inner, bias, scratch;
  dnnl_memory_t reorder_scratch[6];
} memories;

/* The way in which a node is computed: by oneDNN, or by this backend, which needs only unit_samples of the state. */
enum way { BY_PRIMITIVE, BY_PRODUCT, BY_WINOGRAD };

typedef struct conv_state {
  enum way way;
  int64_t kind;
  cpu_epilogue epilogue; /* the forward pass */
  int64_t units;         /* whole units of unit_samples each; tail_samples, if not 0, is the size of one more unit */
  int64_t unit_samples, tail_samples;
  cpu_conv *unit, *tail;                       /* both are the same if all units have the same size */
  int64_t wave;                                /* units whose parts fit the workspace */
  uint64_t parts_at, part_bytes, part_bias_at; /* dw, then dbias */
  uint64_t threads_at, thread_bytes, x_copy_at, y_copy_at;
  int32_t threads;
  memories *mem; /* [threads][2]: of unit and tail */
} conv_state;

/* One run of a node. */
typedef struct conv_run {
  cpu_backend *backend;
  const conv_state *state;
  char *workspace;
  float *x, *y; /* x and y, or their gradients */
  float *w;     /* the weights in the primitive's order; for the gradient, the sum so far */
  float *bias;
  bool overwrites;    /* the gradient is written, not added to */
  int64_t first_unit; /* of the wave */
  int64_t wave_units;
  atomic_int failed; /* the first dnnl_status_t that reported a failure */
} conv_run;

static int64_t conv_kind(const brim_node *node)
{
  if (strcmp(node->op, "conv2d_grad_weight") == 0) return CONV_GRAD_WEIGHT;
  const bool back = strcmp(node->op, "conv2d_grad_input") == 0 || strcmp(node->op, "conv_transpose2d") == 0;
  return back ? CONV_GRAD_INPUT : CONV_FORWARD;
}

static int64_t unit_of(const cpu_conv_key *k, int64_t grain)
{
  if (grain <= 0) grain = GRAIN_DEFAULT;
  const int64_t weights = k->out_channels * (k->channels / k->groups) * k->kernel[0] * k->kernel[1];
  if (k->kind != CONV_GRAD_WEIGHT && 2 * weights * k->out_height * k->out_width >= ALONE_FLOPS &&
      weights * (int64_t)sizeof(float) <= ALONE_WEIGHT_BYTES)
    return 1;
  return grain % 2 == 0 ? grain / 2 : grain;
}

static void describe(const brim_node *node, int64_t kind, cpu_conv_key *k)
{
  const brim_tensor *x = kind == CONV_GRAD_INPUT ? node->out[0] : node->in[0];
  const brim_tensor *w = kind == CONV_GRAD_WEIGHT ? node->out[0] : node->in[1];
  const brim_tensor *y = kind == CONV_FORWARD ? node->out[0] : kind == CONV_GRAD_INPUT ? node->in[0] : node->in[1];
  const brim_conv2d_attr *attr = &node->attr.conv2d;
  memset(k, 0, sizeof *k);
  k->kind = kind;
  k->channels = x->shape.dim[1];
  k->height = x->shape.dim[2];
  k->width = x->shape.dim[3];
  k->out_channels = w->shape.dim[0];
  k->out_height = y->shape.dim[2];
  k->out_width = y->shape.dim[3];
  for (int i = 0; i < 2; i++) {
    k->kernel[i] = attr->kernel[i];
    k->stride[i] = attr->stride[i];
    k->padding[i] = attr->padding[i];
    k->dilation[i] = attr->dilation[i];
  }
  k->groups = attr->groups;
  k->has_bias = kind == CONV_FORWARD && node->in_count > 2;
  k->x_block = kind == CONV_GRAD_INPUT ? 0 : x->channel_block;
  k->y_block = kind == CONV_FORWARD ? 0 : y->channel_block;
}

static uint64_t bytes_of(const dnnl_memory_desc_t *md)
{
  return cpu_aligned(dnnl_memory_desc_get_size(md));
}

static uint64_t larger(uint64_t a, uint64_t b)
{
  return a > b ? a : b;
}

static uint64_t copy_bytes(const conv_state *s, bool of_x)
{
  uint64_t bytes = 0;
  const cpu_conv *convs[] = {s->unit, s->tail};
  for (int i = 0; i < 2; i++) {
    const cpu_conv_side *side = of_x ? &convs[i]->x : &convs[i]->y;
    if (side->copied) bytes = larger(bytes, bytes_of(&side->inner));
  }
  return bytes;
}

/* Lays out the workspace and returns its size. */
static uint64_t lay_out(conv_state *s)
{
  uint64_t at = s->unit->w.copied ? bytes_of(&s->unit->w.inner) : 0;
  s->parts_at = at;
  if (s->kind == CONV_GRAD_WEIGHT) {
    s->part_bias_at = bytes_of(&s->unit->w.inner);
    s->part_bytes = s->part_bias_at + cpu_aligned((uint64_t)s->unit->key.out_channels * sizeof(float));
    s->wave = cpu_min(s->units + (s->tail_samples > 0), cpu_max(WAVE_MAX, s->threads));
    at += (uint64_t)s->wave * s->part_bytes;
  }
  s->threads_at = at;
  s->x_copy_at = cpu_aligned(larger(s->unit->scratch_bytes, s->tail->scratch_bytes));
  s->y_copy_at = s->x_copy_at + copy_bytes(s, true);
  s->thread_bytes = s->y_copy_at + copy_bytes(s, false);
  return at + (uint64_t)s->threads * s->thread_bytes;
}

/* Returns the node's number of samples, which differs from the program's if x is made from parameters alone. */
static int64_t samples_of(const brim_node *node)
{
  return node->in[0]->shape.dim[0];
}

/* The samples after the last whole unit use a primitive with the memory orders of a whole unit's; fewer samples than a
 * unit use the same one. So neither the bits nor the tensors' orders depend on the micro-batch. */
static brim_status find_primitives(cpu_backend *b, int64_t samples, cpu_conv_key *key, conv_state *s)
{
  key->samples = s->unit_samples;
  BRIM_TRY(cpu_conv_get(b, key, &s->unit));
  s->units = samples / s->unit_samples;
  s->tail_samples = samples % s->unit_samples;
  s->tail = s->unit;
  if (s->tail_samples == 0) return BRIM_OK;
  key->samples = s->tail_samples;
  key->x_block = s->unit->x_block;
  key->y_block = s->unit->y_block;
  key->like = s->unit;
  BRIM_TRY(cpu_conv_get(b, key, &s->tail));
  if (s->units > 0) return BRIM_OK;
  s->unit = s->tail;
  s->units = 1;
  s->unit_samples = samples;
  s->tail_samples = 0;
  return BRIM_OK;
}

static brim_status plan_primitives(cpu_backend *b, const brim_node *node, cpu_conv_key *key, conv_state *s,
                                   brim_kernel_need *need)
{
  s->epilogue = cpu_epilogue_of(b, node);
  s->threads = b->threads;
  BRIM_TRY(find_primitives(b, samples_of(node), key, s));
  if (s->kind == CONV_FORWARD) cpu_layout_set(node->out[0], s->unit->y_block);
  if (s->kind == CONV_GRAD_INPUT) cpu_layout_set(node->out[0], s->unit->x_block);
  need->workspace_bytes = lay_out(s);
  need->no_inplace = 1;
  need->library = "oneDNN";
  need->host_bytes = (uint64_t)s->threads * 2 * sizeof(memories) + cpu_conv_use(s->unit, s->threads);
  if (s->tail != s->unit) need->host_bytes += cpu_conv_use(s->tail, s->threads);
  return BRIM_OK;
}

static void plan_winograd(cpu_backend *b, int64_t samples, const brim_node *node, const cpu_conv_key *key,
                          const conv_state *s, brim_kernel_need *need)
{
  if (s->kind == CONV_GRAD_WEIGHT) {
    need->workspace_bytes = cpu_conv_winograd_weights_bytes(b, key, samples, s->unit_samples);
    return;
  }
  cpu_layout_set(node->out[0], b->block);
  need->workspace_bytes = cpu_conv_winograd_bytes(b, key, samples);
  need->no_inplace = 1;
}

static brim_status plan(cpu_backend *b, const brim_program_info *program, const brim_node *node, conv_state *s,
                        brim_kernel_need *need)
{
  cpu_conv_key key;
  s->kind = conv_kind(node);
  need->overwrites = s->kind == CONV_GRAD_WEIGHT;
  describe(node, s->kind, &key);
  s->unit_samples = unit_of(&key, program->grain);
  if (s->kind == CONV_GRAD_WEIGHT && cpu_conv_is_product(&key, s->unit_samples))
    s->way = BY_PRODUCT;
  else if (cpu_conv_is_winograd(b, &key))
    s->way = BY_WINOGRAD;
  if (s->way == BY_PRIMITIVE) return plan_primitives(b, node, &key, s, need);
  if (s->way == BY_PRODUCT)
    need->workspace_bytes = cpu_conv_product_bytes(b, &key, samples_of(node));
  else
    plan_winograd(b, samples_of(node), node, &key, s, need);
  return BRIM_OK;
}

static CPU_PREPARE(conv2d_prepare)
{
  cpu_pool_single_openmp();
  conv_state *s = brim_try_calloc(1, sizeof *s);
  if (!s) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the convolution %s", node->name);
  const brim_status status = plan(self, program, node, s, need);
  if (status != BRIM_OK) {
    free(s);
    return brim_fail_add(status, "while planning %s '%s'", node->op, node->name);
  }
  *state = s;
  return BRIM_OK;
}

static brim_status make_memory(cpu_backend *b, dnnl_memory_t *memory, const dnnl_memory_desc_t *md)
{
  const dnnl_status_t status = CPU_CONV_CALL(dnnl_memory_create(memory, md, b->engine, DNNL_MEMORY_NONE));
  return status == dnnl_success ? BRIM_OK : cpu_conv_failed(status, "describing memory");
}

static brim_status make_reorder_scratch(cpu_backend *b, memories *m, const cpu_conv *c)
{
  const dnnl_primitive_desc_t pds[6] = {c->x.to_inner_pd, c->x.to_outer_pd, c->y.to_inner_pd,
                                        c->y.to_outer_pd, c->w.to_inner_pd, c->w.to_outer_pd};
  for (int i = 0; i < 6; i++)
    if (pds[i])
      BRIM_TRY(
          make_memory(b, &m->reorder_scratch[i], dnnl_primitive_desc_query_md(pds[i], dnnl_query_scratchpad_md, 0)));
  return BRIM_OK;
}

static brim_status make_memories(cpu_backend *b, memories *m, const cpu_conv *c)
{
  BRIM_TRY(make_memory(b, &m->x_outer, &c->x.outer));
  BRIM_TRY(make_memory(b, &m->x_inner, &c->x.inner));
  BRIM_TRY(make_memory(b, &m->y_outer, &c->y.outer));
  BRIM_TRY(make_memory(b, &m->y_inner, &c->y.inner));
  BRIM_TRY(make_memory(b, &m->w_outer, &c->w.outer));
  BRIM_TRY(make_memory(b, &m->w_inner, &c->w.inner));
  BRIM_TRY(make_memory(b, &m->bias, &c->bias));
  BRIM_TRY(make_memory(b, &m->scratch, &c->scratch));
  return make_reorder_scratch(b, m, c);
}

static void free_memories(memories *m)
{
  dnnl_memory_t *const all[] = {&m->x_outer, &m->x_inner, &m->y_outer, &m->y_inner,
                                &m->w_outer, &m->w_inner, &m->bias,    &m->scratch};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) dnnl_memory_destroy(*all[i]);
  for (int i = 0; i < 6; i++) dnnl_memory_destroy(m->reorder_scratch[i]);
}

static void free_all_memories(conv_state *s)
{
  for (int32_t i = 0; s->mem && i < 2 * s->threads; i++) free_memories(&s->mem[i]);
  free(s->mem);
  s->mem = NULL;
}

static brim_status make_all_memories(cpu_backend *b, conv_state *s)
{
  for (int32_t t = 0; t < s->threads; t++) {
    BRIM_TRY(make_memories(b, &s->mem[2 * t], s->unit));
    if (s->tail != s->unit) BRIM_TRY(make_memories(b, &s->mem[2 * t + 1], s->tail));
  }
  return BRIM_OK;
}

/* Makes all memories, or none if one fails, because the core may then try again to place the plan. */
static brim_status conv2d_realize(void *self, const brim_node *node, void *state)
{
  cpu_backend *b = self;
  conv_state *s = state;
  if (s->way != BY_PRIMITIVE || s->mem) return BRIM_OK;
  cpu_pool_single_openmp();
  BRIM_TRY(cpu_conv_realize(s->unit));
  BRIM_TRY(cpu_conv_realize(s->tail));
  s->mem = brim_try_calloc((size_t)s->threads * 2, sizeof *s->mem);
  if (!s->mem) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the convolution %s", node->name);
  const brim_status status = make_all_memories(b, s);
  if (status != BRIM_OK) free_all_memories(s);
  return status;
}

static void conv2d_release(void *self, void *state)
{
  (void)self;
  conv_state *s = state;
  if (!s) return;
  free_all_memories(s);
  if (s->unit) s->unit->users--;
  if (s->tail != s->unit) s->tail->users--;
  free(s);
}

/* Setting a handle zeroes the padding of the memory, so it must happen before the memory is filled. */
static dnnl_status_t point(dnnl_memory_t memory, const void *to)
{
  void *now = NULL;
  const dnnl_status_t status = dnnl_memory_get_data_handle(memory, &now);
  if (status != dnnl_success || now == to) return status;
  union {
    const void *given;
    void *wanted;
  } handle = {.given = to}; /* oneDNN's inputs are not const */
  return dnnl_memory_set_data_handle(memory, handle.wanted);
}

static dnnl_status_t reorder(dnnl_primitive_t primitive, dnnl_stream_t stream, dnnl_memory_t from, dnnl_memory_t to,
                             dnnl_memory_t scratch, void *scratch_at)
{
  const dnnl_status_t status = point(scratch, scratch_at);
  if (status != dnnl_success) return status;
  const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}, {DNNL_ARG_SCRATCHPAD, scratch}};
  return CPU_CONV_CALL(dnnl_primitive_execute(primitive, stream, 3, args));
}

/* The state of one unit. */
typedef struct unit_run {
  const conv_run *run;
  const cpu_conv *conv;
  memories *m;
  dnnl_stream_t stream;
  char *scratch; /* this thread's part of the workspace */
} unit_run;

/* Points a side at its unit, converts an input to the primitive's order, and returns the memory object. */
static dnnl_status_t bind_side(const unit_run *u, bool is_x, bool is_input, const float *values, dnnl_memory_t *out)
{
  const cpu_conv_side *side = is_x ? &u->conv->x : &u->conv->y;
  const conv_state *s = u->run->state;
  const dnnl_memory_t outer = is_x ? u->m->x_outer : u->m->y_outer, inner = is_x ? u->m->x_inner : u->m->y_inner;
  dnnl_status_t status = point(outer, values);
  *out = outer;
  if (status != dnnl_success || !side->copied) return status;
  *out = inner;
  status = point(inner, u->scratch + (is_x ? s->x_copy_at : s->y_copy_at));
  if (status != dnnl_success || !is_input) return status;
  return reorder(side->to_inner, u->stream, outer, inner, u->m->reorder_scratch[is_x ? 0 : 2], u->scratch);
}

static dnnl_status_t execute(const unit_run *u, const float *x, const float *y, const float *w, const float *bias)
{
  const int64_t kind = u->run->state->kind;
  dnnl_memory_t mx = NULL, my = NULL;
  dnnl_status_t status = point(u->m->w_inner, w);
  if (status == dnnl_success) status = point(u->m->bias, bias);
  if (status == dnnl_success) status = bind_side(u, true, kind != CONV_GRAD_INPUT, x, &mx);
  if (status == dnnl_success) status = bind_side(u, false, kind != CONV_FORWARD, y, &my);
  if (status == dnnl_success) status = point(u->m->scratch, u->scratch);
  if (status != dnnl_success) return status;

  const dnnl_exec_arg_t args[3][5] = {[CONV_FORWARD] = {{DNNL_ARG_SRC, mx},
                                                        {DNNL_ARG_DST, my},
                                                        {DNNL_ARG_WEIGHTS, u->m->w_inner},
                                                        {DNNL_ARG_SCRATCHPAD, u->m->scratch},
                                                        {DNNL_ARG_BIAS, u->m->bias}},
                                      [CONV_GRAD_INPUT] = {{DNNL_ARG_DIFF_SRC, mx},
                                                           {DNNL_ARG_DIFF_DST, my},
                                                           {DNNL_ARG_WEIGHTS, u->m->w_inner},
                                                           {DNNL_ARG_SCRATCHPAD, u->m->scratch}},
                                      [CONV_GRAD_WEIGHT] = {{DNNL_ARG_SRC, mx},
                                                            {DNNL_ARG_DIFF_DST, my},
                                                            {DNNL_ARG_DIFF_WEIGHTS, u->m->w_inner},
                                                            {DNNL_ARG_SCRATCHPAD, u->m->scratch}}};
  status =
      CPU_CONV_CALL(dnnl_primitive_execute(u->conv->primitive, u->stream, u->conv->key.has_bias ? 5 : 4, args[kind]));
  if (status == dnnl_success && kind == CONV_FORWARD && u->conv->y.copied)
    status = reorder(u->conv->y.to_outer, u->stream, my, u->m->y_outer, u->m->reorder_scratch[3], u->scratch);
  if (status == dnnl_success && kind == CONV_GRAD_INPUT && u->conv->x.copied)
    status = reorder(u->conv->x.to_outer, u->stream, mx, u->m->x_outer, u->m->reorder_scratch[1], u->scratch);
  return status;
}

/* Computes a unit's part of dbias from each sample's planes, in the order of the samples. oneDNN would add up all
 * pixels of all samples one after another, which loses two digits if they are equal, as after a mean over all pixels.
 */
static void sum_bias(const unit_run *u, const float *dy, float *sum)
{
  const cpu_conv_key *k = &u->conv->key;
  const int64_t block = u->conv->y_block, pixels = k->out_height * k->out_width;
  const cpu_pooling *simd = cpu_pooling_of_isa[u->run->backend->isa];
  memset(sum, 0, (size_t)k->out_channels * sizeof *sum);
  for (int64_t n = 0; n < k->samples; n++)
    for (int64_t c = 0; c < k->out_channels; c += block, dy += pixels * block)
      simd->sum_pixels(dy, pixels, block, sum + c);
}

/* Adds a transposed convolution's bias to a unit's result. */
static void add_bias(const unit_run *u, float *x, const float *bias)
{
  const cpu_conv_key *k = &u->conv->key;
  const int64_t block = u->conv->x_block, pixels = k->height * k->width;
  const cpu_pooling *simd = cpu_pooling_of_isa[u->run->backend->isa];
  for (int64_t n = 0; n < k->samples; n++)
    for (int64_t c = 0; c < k->channels; c += block, x += pixels * block)
      simd->add_to_pixels(x, pixels, block, bias + c);
}

static void run_unit(void *arg, int64_t task, int32_t thread)
{
  conv_run *r = arg;
  const conv_state *s = r->state;
  const int64_t number = r->first_unit + task;
  const bool is_tail = number >= s->units;
  const unit_run u = {.run = r,
                      .conv = is_tail ? s->tail : s->unit,
                      .m = &s->mem[2 * thread + is_tail],
                      .stream = r->backend->streams[thread],
                      .scratch = r->workspace + s->threads_at + (uint64_t)thread * s->thread_bytes};
  const cpu_conv_key *k = &u.conv->key;
  const int64_t sample = number * s->unit_samples;
  float *x = r->x + sample * k->channels * k->height * k->width;
  float *y = r->y + sample * k->out_channels * k->out_height * k->out_width;
  char *part = r->workspace + s->parts_at + (uint64_t)task * s->part_bytes;
  const bool own = s->kind == CONV_GRAD_WEIGHT;
  if (own && r->bias) sum_bias(&u, y, (float *)(void *)(part + s->part_bias_at));
  const bool forward = s->kind == CONV_FORWARD;
  const dnnl_status_t status =
      execute(&u, x, y, own ? (const float *)(const void *)part : r->w, forward ? r->bias : NULL);
  if (s->kind == CONV_GRAD_INPUT && r->bias) add_bias(&u, x, r->bias);
  const int64_t count = k->samples * k->out_channels * k->out_height * k->out_width;
  if (s->epilogue.relu) r->backend->simd->relu(y, y, count);
  if (s->epilogue.function) s->epilogue.function(y, y, count, s->epilogue.factor);
  int none = dnnl_success;
  if (status != dnnl_success) atomic_compare_exchange_strong(&r->failed, &none, (int)status);
}

/* Converts the weights between the plain order and the primitive's, which is in the workspace. */
static brim_status reorder_weights(const conv_run *r, bool inward, const float *plain)
{
  const cpu_conv *c = r->state->unit;
  memories *m = r->state->mem;
  char *scratch = r->workspace + r->state->threads_at;
  dnnl_status_t status = point(m->w_outer, plain);
  if (status == dnnl_success) status = point(m->w_inner, r->w);
  if (status == dnnl_success)
    status =
        inward ? reorder(c->w.to_inner, r->backend->streams[0], m->w_outer, m->w_inner, m->reorder_scratch[4], scratch)
               : reorder(c->w.to_outer, r->backend->streams[0], m->w_inner, m->w_outer, m->reorder_scratch[5], scratch);
  return status == dnnl_success ? BRIM_OK : cpu_conv_failed(status, "reordering weights");
}

static brim_status outcome(conv_run *r)
{
  const int failed = atomic_load(&r->failed);
  return failed == dnnl_success ? BRIM_OK : cpu_conv_failed((dnnl_status_t)failed, "running a convolution");
}

static CPU_RUN(conv2d_run)
{
  const conv_state *s = launch->state;
  if (s->way == BY_WINOGRAD) {
    cpu_conv_key key;
    describe(launch->node, s->kind, &key);
    cpu_conv_winograd_run(self, &key, launch);
    return BRIM_OK;
  }
  const bool forward = s->kind == CONV_FORWARD;
  conv_run r = {.backend = self, .state = s, .workspace = launch->workspace};
  r.x = forward ? launch->in[0] : launch->out[0];
  r.y = forward ? launch->out[0] : launch->in[0];
  r.bias = launch->node->in_count > 2 ? launch->in[2] : NULL;
  r.w = launch->in[1];
  cpu_pool_single_openmp();
  if (s->unit->w.copied) {
    r.w = launch->workspace;
    BRIM_TRY(reorder_weights(&r, true, launch->in[1]));
  }
  cpu_pool_run(r.backend->pool, s->units + (s->tail_samples > 0), run_unit, &r);
  return outcome(&r);
}

/* Adds all parts of the wave, in order, to one piece of dw; the task after the last piece adds to dbias. */
static void add_parts(void *arg, int64_t task, int32_t thread)
{
  (void)thread;
  const conv_run *r = arg;
  const conv_state *s = r->state;
  const cpu_simd *simd = r->backend->simd;
  const int64_t count = (int64_t)(dnnl_memory_desc_get_size(&s->unit->w.inner) / sizeof(float));
  const int64_t at = task * ADD_PIECE;
  const bool is_bias = at >= count;
  float *sum = is_bias ? r->bias : r->w + at;
  const int64_t length = is_bias ? s->unit->key.out_channels : cpu_min(ADD_PIECE, count - at);
  if (r->overwrites && !is_bias && r->first_unit == 0) memset(sum, 0, (size_t)length * sizeof *sum);
  for (int64_t i = 0; i < r->wave_units; i++) {
    const char *part = r->workspace + s->parts_at + (uint64_t)i * s->part_bytes;
    const char *from = is_bias ? part + s->part_bias_at : part + (uint64_t)at * sizeof(float);
    simd->add(sum, (const float *)(const void *)from, sum, length);
  }
}

static CPU_RUN(conv2d_grad_weight_run)
{
  const conv_state *s = launch->state;
  if (launch->node->out_count > 1) cpu_begin_sum(launch, 1);
  if (s->way != BY_PRIMITIVE) {
    cpu_conv_key key;
    describe(launch->node, CONV_GRAD_WEIGHT, &key);
    if (s->way == BY_PRODUCT)
      cpu_conv_product_run(self, &key, launch);
    else
      cpu_conv_winograd_weights_run(self, &key, s->unit_samples, launch);
    return BRIM_OK;
  }
  conv_run r = {.backend = self,
                .state = s,
                .workspace = launch->workspace,
                .x = launch->in[0],
                .y = launch->in[1],
                .w = launch->out[0],
                .bias = launch->node->out_count > 1 ? launch->out[1] : NULL,
                .overwrites = !cpu_adds(launch, 0)};
  const int64_t units = s->units + (s->tail_samples > 0);
  const int64_t count = (int64_t)(dnnl_memory_desc_get_size(&s->unit->w.inner) / sizeof(float));
  cpu_pool_single_openmp();
  if (s->unit->w.copied) {
    r.w = launch->workspace;
    if (!r.overwrites) BRIM_TRY(reorder_weights(&r, true, launch->out[0]));
  }
  for (r.first_unit = 0; r.first_unit < units; r.first_unit += r.wave_units) {
    r.wave_units = cpu_min(s->wave, units - r.first_unit);
    cpu_pool_run(r.backend->pool, r.wave_units, run_unit, &r);
    BRIM_TRY(outcome(&r));
    cpu_pool_run(r.backend->pool, cpu_divide_up(count, ADD_PIECE) + (r.bias != NULL), add_parts, &r);
  }
  return s->unit->w.copied ? reorder_weights(&r, false, launch->out[0]) : BRIM_OK;
}

#define KERNEL(id, its_op, its_run)                                                                                    \
  CPU_KERNEL(id) = {                                                                                                   \
      .op = its_op, .prepare = conv2d_prepare, .realize = conv2d_realize, .run = its_run, .release = conv2d_release}
KERNEL(conv2d, "conv2d", conv2d_run);
KERNEL(conv2d_relu, "conv2d+relu", conv2d_run);
KERNEL(conv2d_leaky_relu, "conv2d+leaky_relu", conv2d_run);
KERNEL(conv2d_sigmoid, "conv2d+sigmoid", conv2d_run);
KERNEL(conv2d_tanh, "conv2d+tanh", conv2d_run);
KERNEL(conv2d_grad_input, "conv2d_grad_input", conv2d_run);
KERNEL(conv_transpose2d, "conv_transpose2d", conv2d_run);
CPU_KERNEL(conv2d_grad_weight) = {.op = "conv2d_grad_weight",
                                  .prepare = conv2d_prepare,
                                  .realize = conv2d_realize,
                                  .run = conv2d_grad_weight_run,
                                  .release = conv2d_release};

/* Adds up planes, sample after sample, which gives the same bits for any micro-batch. */
static CPU_RUN(conv_transpose2d_grad_bias_run)
{
  const brim_tensor *dy = launch->node->in[0];
  const cpu_conv_key k = {.out_channels = dy->shape.dim[1],
                          .out_height = dy->shape.dim[2],
                          .out_width = dy->shape.dim[3],
                          .y_block = dy->channel_block};
  cpu_conv_add_bias(self, &k, launch->in[0], dy->shape.dim[0], launch->out[0]);
  return BRIM_OK;
}
CPU_KERNEL(conv_transpose2d_grad_bias) = {.op = "conv_transpose2d_grad_bias", .run = conv_transpose2d_grad_bias_run};
