/* Tests memory.offload on a simulated device that works ahead of the host: its queues only record the started
 * operations and their order. If two operations use the same memory and one of them writes, their queue or marks must
 * order one after the other. Otherwise they could run at the same time on a real device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "brim/brim.h"
#include "exec/exec.h"
#include "graph/offload.h"
#include "graph/plan.h"

/* ---- the device ---- */

#define OPS_MAX 4096
#define USES_MAX 32768
#define KINDS (BRIM_QUEUES * BRIM_QUEUES) /* kinds of waits: waiting queue * number of queues + queue waited for */

/* An operation that was started. after[q]: the number of operations of queue q that are ordered before it. In its own
 * queue these are all earlier ones. */
typedef struct operation {
  uint32_t queue, after[BRIM_QUEUES];
  const brim_node *node; /* NULL: a copy, zeros, or an input */
  const void *host;      /* for a copy of a state: its host address */
} operation;

typedef struct use {
  uint32_t operation;
  uintptr_t from, to;
  bool writes;
} use;

static struct device {
  operation op[OPS_MAX];
  use use[USES_MAX];
  uint32_t count, uses, started[BRIM_QUEUES], reached[BRIM_QUEUES][BRIM_QUEUES];
  /* Per mark: operations so far by queue, and the marked queue. */
  uint32_t mark[BRIM_MARKS][BRIM_QUEUES], marked[BRIM_MARKS];
  uint32_t left_out; /* the kind of wait that the device ignores; KINDS: it ignores none */
  uint32_t waits[KINDS], races;
  char race[256]; /* the first race found */
} device;

static const char *name_of(const operation *o)
{
  return o->node                      ? o->node->name
         : o->queue == BRIM_QUEUE_IN  ? "copy in"
         : o->queue == BRIM_QUEUE_OUT ? "copy out"
                                      : "input";
}

/* True if b, which was started later, is ordered after a. */
static bool is_after(const operation *a, const operation *b)
{
  return b->after[a->queue] > a->after[a->queue];
}

static void start(uint32_t queue, const brim_node *node, const void *host)
{
  assert_true(device.count < OPS_MAX);
  operation *o = &device.op[device.count++];
  *o = (operation){.queue = queue, .node = node, .host = host};
  device.reached[queue][queue] = device.started[queue]++;
  memcpy(o->after, device.reached[queue], sizeof o->after);
  device.reached[queue][queue]++;
}

/* Notes that the last started operation uses this memory, and counts a race if another use is not ordered before it. */
static void add_use(const void *at, uint64_t bytes, bool writes)
{
  const operation *now = &device.op[device.count - 1];
  const uintptr_t from = (uintptr_t)at, to = from + bytes;
  if (bytes == 0) return;
  for (uint32_t i = 0; i < device.uses; i++) {
    const use *u = &device.use[i];
    const operation *o = &device.op[u->operation];
    if (from >= u->to || u->from >= to || (!writes && !u->writes) || o == now || is_after(o, now)) continue;
    if (device.races++ == 0)
      snprintf(device.race, sizeof device.race, "%s and %s, which was started later, can run at once", name_of(o),
               name_of(now));
  }
  assert_true(device.uses < USES_MAX);
  device.use[device.uses++] = (use){device.count - 1, from, to, writes};
}

static brim_status prepare(void *self, const brim_program_info *program, const brim_node *node, brim_kernel_need *need,
                           void **state)
{
  (void)self;
  (void)program;
  if (strncmp(node->op, "linear", 6) == 0) need->workspace_bytes = node->out[0]->bytes / 2 + 1;
  *state = (void *)(uintptr_t)need->workspace_bytes;
  return BRIM_OK;
}

static void start_node(const brim_launch *l)
{
  start(BRIM_QUEUE_COMPUTE, l->node, NULL);
  for (uint32_t i = 0; i < l->node->in_count; i++) add_use(l->in[i], l->node->in[i]->bytes, false);
  for (uint32_t i = 0; i < l->node->out_count; i++) add_use(l->out[i], l->node->out[i]->bytes, true);
  add_use(l->workspace, (uintptr_t)l->state, true);
}

static brim_status run_one(void *self, const brim_launch *launch)
{
  (void)self;
  start_node(launch);
  return BRIM_OK;
}

static brim_status run_all(void *self, const brim_program_run *run)
{
  (void)self;
  for (size_t i = 0; i < run->count; i++) start_node(&run->launch[i]);
  return BRIM_OK;
}

static brim_status copy_states(void *self, uint32_t queue, const brim_copy *copy, size_t count)
{
  (void)self;
  assert_true(queue == BRIM_QUEUE_IN || queue == BRIM_QUEUE_OUT);
  for (size_t i = 0; i < count; i++) {
    start(queue, NULL, queue == BRIM_QUEUE_IN ? copy[i].from : copy[i].to);
    add_use(copy[i].from, copy[i].bytes, false);
    add_use(copy[i].to, copy[i].bytes, true);
  }
  return BRIM_OK;
}

static brim_status put_mark(void *self, uint32_t queue, uint32_t mark)
{
  (void)self;
  memcpy(device.mark[mark], device.reached[queue], sizeof device.mark[mark]);
  device.marked[mark] = queue;
  return BRIM_OK;
}

static brim_status wait_for_mark(void *self, uint32_t queue, uint32_t mark)
{
  (void)self;
  const uint32_t kind = queue * BRIM_QUEUES + device.marked[mark];
  device.waits[kind]++;
  for (uint32_t q = 0; q < BRIM_QUEUES && kind != device.left_out; q++)
    if (device.mark[mark][q] > device.reached[queue][q]) device.reached[queue][q] = device.mark[mark][q];
  return BRIM_OK;
}

/* Orders later operations after all earlier ones. */
static brim_status wait_for_all(void *self)
{
  (void)self;
  device.uses = 0;
  return BRIM_OK;
}

static brim_status feed(void *self, const brim_copy *copy, size_t count)
{
  (void)self;
  start(BRIM_QUEUE_COMPUTE, NULL, NULL);
  for (size_t i = 0; i < count; i++) add_use(copy[i].to, copy[i].bytes, true);
  return BRIM_OK;
}

static brim_status zero(void *self, void *to, uint64_t bytes)
{
  (void)self;
  start(BRIM_QUEUE_COMPUTE, NULL, NULL);
  add_use(to, bytes, true);
  return BRIM_OK;
}

static brim_status place(void *self, int number, uint64_t bytes, void **base)
{
  (void)self;
  (void)number;
  return (*base = malloc(bytes)) ? BRIM_OK : BRIM_ENOMEM_DEVICE;
}

static brim_status place_host(void *self, uint64_t bytes, void **at)
{
  return place(self, 0, bytes, at);
}

static void unplace(void *self, void *base, uint64_t bytes)
{
  (void)self;
  (void)bytes;
  free(base);
}

static uint64_t reserve_bytes(void *self, uint64_t bytes)
{
  (void)self;
  (void)bytes;
  return 0; /* this device has no stages for inputs */
}

static brim_status open_feed(void *self, void *base, uint64_t bytes)
{
  (void)self;
  (void)base;
  (void)bytes;
  return BRIM_OK;
}

static brim_kernel kernels[256];
static const brim_kernel *kernel_table[256];
static brim_status describe(void *self, int number, brim_device_info *out)
{
  *out = (brim_device_info){.on_host = 1};
  return BRIM_OK;
}

static brim_backend_ops backend = {.size = sizeof(brim_backend_ops),
                                   .real = BRIM_DTYPE_F32,
                                   .kernels = kernel_table,
                                   .alignment = 64,
                                   .describe = describe,
                                   .place = place,
                                   .unplace = unplace,
                                   .zero = zero,
                                   .synchronize = wait_for_all,
                                   .reserve_bytes = reserve_bytes,
                                   .open_feed = open_feed,
                                   .run_program = run_all,
                                   .feed = feed,
                                   .place_host = place_host,
                                   .unplace_host = unplace,
                                   .copy = copy_states,
                                   .mark = put_mark,
                                   .wait = wait_for_mark};

static int make_backend(void **state)
{
  for (size_t i = 0; i < brim_op_count(); i++) {
    kernels[i] = (brim_kernel){.op = brim_op_at(i)->name, .run = run_one, .prepare = prepare};
    kernel_table[i] = &kernels[i];
  }
  backend.kernels_end = kernel_table + brim_op_count();
  return 0;
}

/* ---- plans ---- */

/* Builds a model with parameters of different sizes and runs of many small ones. The layer in the middle, of width
 * `large`, is by far the largest. */
static brim_status build(const void *self, brim_graph *g)
{
  static const char *const names[] = {"fc0", "fc1", "fc2", "fc3", "fc4", "fc5", "fc6"};
  static const char *const norms[] = {"n0", "n1", "n2", "n3", "n4", "n5", "n6"};
  const int64_t large = *(const int64_t *)self;
  brim_tensor *x = brim_flatten(g, brim_input(g));
  for (int i = 0; i < 7; i++) {
    x = brim_linear(g, names[i], x, i == 3 ? large : 48 + 16 * (i % 3));
    x = brim_relu(g, brim_layer_norm(g, norms[i], x, 1e-5));
  }
  brim_output(g, brim_linear(g, "head", x, brim_classes(g)));
  return BRIM_OK;
}

enum kind { STEP, CLIPPED, FUSED, UPDATES }; /* kinds of updates; CLIPPED has nodes before the first update */

static brim_plan *plan_of(int64_t large, int64_t batch, enum kind kind)
{
  static int64_t size;
  static const brim_model_ops model = {sizeof model, build};
  size = large;
  const brim_plan_request request = {
      .graph = {.model = &model,
                .model_self = &size,
                .loss.op = "softmax_cross_entropy",
                .sample = {3, {1, 8, 8}},
                .classes = 10,
                .real = BRIM_DTYPE_F32},
      .backend = &backend,
      .update = {.op = "adamw",
                 .state_count = 2,
                 .offloaded = true,
                 .in_backward = kind == FUSED,
                 .scaled = kind == CLIPPED,
                 .max_norm = kind == CLIPPED,
                 .checked = kind == CLIPPED},
      .shape = {{BRIM_PROGRAM_TRAIN, batch}, {BRIM_PROGRAM_TRAIN, batch / 2}, {BRIM_PROGRAM_EVALUATE, batch}},
      .shape_count = 3};
  brim_plan *plan = NULL;
  if (brim_plan_create(&request, &plan) != BRIM_OK) fail_msg("%s", brim_error_text());
  return plan;
}

static const brim_program *updating(const brim_plan *plan)
{
  return &plan->program[plan->request.update.in_backward ? 0 : plan->program_count - 1];
}

/* Returns the bytes of all states of a group. */
static uint64_t group_bytes(const brim_program *p, const brim_offload_group *g, int32_t *updates)
{
  uint64_t bytes = 0;
  *updates = 0;
  for (int32_t n = g->from; n < g->to; n++) {
    bool has = false;
    for (uint32_t k = 0; k < p->graph->node[n]->out_count; k++) {
      const brim_tensor *t = p->graph->node[n]->out[k];
      if (brim_graph_offloaded(p->graph, t) < 0) continue;
      const brim_buffer *b = &p->buffer[p->tensor_buffer[t->id]];
      assert_true(b->first == g->first && b->last == g->last);
      bytes += b->bytes;
      has = true;
    }
    *updates += has;
  }
  return bytes;
}

static void check_groups(const brim_plan *plan)
{
  const brim_program *p = updating(plan);
  uint64_t largest = 0, all = 0;
  int32_t updates = 0;
  for (size_t i = 0; i < p->graph->parameter_count; i++)
    if (2 * p->graph->parameter[i].value->bytes > largest) largest = 2 * p->graph->parameter[i].value->bytes;
  for (size_t i = 0; i < p->group_count; i++) {
    int32_t count = 0;
    const uint64_t bytes = group_bytes(p, &p->group[i], &count);
    assert_true(bytes == p->group[i].bytes && bytes <= largest);
    all += bytes;
    updates += count;
    for (size_t k = i ? i - 1 : 0; k < p->group_count && k <= i + 1; k++)
      for (int32_t n = p->group[k].from; n < p->group[k].to; n++)
        assert_true(p->group[i].first <= n && n <= p->group[i].last);
  }
  assert_true(all == plan->host_bytes);
  assert_int_equal(updates, p->graph->parameter_count);
  assert_true(p->group_count >= 3 && p->group_count < p->graph->parameter_count);
  /* Checks that buffers that are live at the same node do not overlap. */
  assert_int_equal(brim_plan_check(plan), BRIM_OK);
}

static void groups_do_not_overlap_neighbours_or_live_buffers(void **unused)
{
  (void)unused;
  for (int64_t large = 16; large <= 1024; large *= 4)
    for (enum kind kind = 0; kind < UPDATES; kind++) {
      brim_plan *plan = plan_of(large, 32, kind);
      check_groups(plan);
      brim_plan_free(plan);
    }
}

static const brim_offload_group *group_of(const brim_program *p, const char *parameter)
{
  for (size_t i = 0; i < p->group_count; i++)
    for (int32_t n = p->group[i].from; n < p->group[i].to; n++)
      if (strcmp(p->graph->node[n]->name, parameter) == 0) return &p->group[i];
  fail_msg("'%s' has no group", parameter);
  return NULL;
}

/* fc3.weight [8192, 80] is the largest, with 5 MiB of states; fc4.weight [64, 8192] has 4 MiB, enough for a separate
 * group, which the small parameters after it join. The small parameters between the two, 64 KiB each, form a group of
 * their own. */
static void small_parameters_join_a_group_below_the_largest(void **unused)
{
  (void)unused;
  brim_plan *plan = plan_of(8192, 4, STEP);
  const brim_program *p = updating(plan);
  const brim_offload_group *largest = group_of(p, "fc3.weight"), *second = group_of(p, "fc4.weight");
  assert_int_equal(largest->to - largest->from, 1);
  assert_true(group_of(p, "fc3.bias") == largest + 1 && group_of(p, "n3.bias") == largest + 1);
  assert_true(second == largest + 2 && group_of(p, "fc4.bias") == second && group_of(p, "n4.weight") == second);
  assert_true(second->bytes > BRIM_OFFLOAD_GROUP_BYTES && second->bytes <= largest->bytes);
  brim_plan_free(plan);
}

/* The buffers hold the three neighbouring groups that are largest together. */
static void an_update_takes_three_buffers_at_the_end_of_the_arena(void **unused)
{
  (void)unused;
  brim_plan *plan = plan_of(1024, 32, STEP);
  const brim_program *p = updating(plan);
  uint64_t three = 0;
  for (size_t i = 0; i < p->group_count; i++) {
    uint64_t bytes = 0;
    for (size_t k = i ? i - 1 : 0; k < p->group_count && k <= i + 1; k++) bytes += p->group[k].bytes;
    if (bytes > three) three = bytes;
  }
  assert_true(p->live_bytes >= three && p->live_bytes < three + 4096); /* the rest is workspace */
  assert_true(plan->window_offset + plan->window_bytes == plan->peak_bytes);
  brim_plan_free(plan);
}

/* With updates in the backward pass the first copies begin as soon as there is room for them, so they cost no
 * memory. */
static void the_first_group_of_a_backward_pass_is_early_where_there_is_room(void **unused)
{
  (void)unused;
  brim_plan *plan = plan_of(4096, 4, FUSED);
  const brim_program *p = updating(plan);
  assert_true(p->group[0].first < p->group[0].from);
  assert_true(p->group[0].first >= (int32_t)p->graph->forward_count);
  assert_true(p->transient_bytes >= p->live_bytes);
  brim_plan_free(plan);
}

/* ---- order ---- */

static void run_step(brim_exec *exec, const brim_plan *plan, size_t program)
{
  const brim_program *p = &plan->program[program], *update = &plan->program[plan->program_count - 1];
  static char values[1 << 17];
  static int32_t labels[256];
  const brim_step step = {.loss_scale = 1};
  if (brim_exec_zero_metrics(exec) || brim_exec_load(exec, p, values, labels) || brim_exec_run(exec, p, &step, NULL))
    fail_msg("%s", brim_error_text());
  if (p->kind != BRIM_PROGRAM_TRAIN) return;
  if (update[-1].kind == BRIM_PROGRAM_CHECK) assert_int_equal(brim_exec_run(exec, update - 1, &step, NULL), BRIM_OK);
  assert_int_equal(brim_exec_run(exec, update, &step, NULL), BRIM_OK);
}

/* Runs steps of both sizes, some in a row and some with an evaluation in between, several updates in a row, and single
 * nodes. */
static void run_everything(const brim_plan *plan, uint32_t left_out)
{
  static const size_t program[] = {0, 0, 1, 2, 0, 1, 2, 2};
  const brim_step step = {.loss_scale = 1};
  const brim_program *update = &plan->program[plan->program_count - 1];
  brim_exec *exec = NULL;
  memset(&device, 0, sizeof device);
  device.left_out = left_out;
  assert_int_equal(brim_exec_open(plan, 0, &exec), BRIM_OK);
  for (size_t i = 0; i < sizeof program / sizeof program[0]; i++) run_step(exec, plan, program[i]);
  assert_int_equal(brim_exec_run(exec, update, &step, NULL), BRIM_OK);
  assert_int_equal(brim_exec_run(exec, update, &step, NULL), BRIM_OK);
  for (size_t i = 0; i < updating(plan)->graph->node_count; i++)
    assert_int_equal(brim_exec_run_node(exec, updating(plan), i, &step), BRIM_OK);
  run_step(exec, plan, 0);
  brim_exec_close(exec);
}

static void nothing_uses_memory_that_may_still_be_in_use(void **unused)
{
  (void)unused;
  for (int64_t large = 16; large <= 1024; large *= 4)
    for (int64_t batch = 2; batch <= 128; batch *= 8)
      for (enum kind kind = 0; kind < UPDATES; kind++) {
        brim_plan *plan = plan_of(large, batch, kind);
        run_everything(plan, KINDS);
        if (device.races > 0)
          fail_msg("large %d, batch %d, kind %d: %u races: %s", (int)large, (int)batch, (int)kind, device.races,
                   device.race);
        brim_plan_free(plan);
      }
}

/* Every kind of wait is necessary: without it some plan has a race, so the test above would detect its absence. */
static void every_kind_of_wait_is_needed(void **unused)
{
  (void)unused;
  static const int64_t large[] = {16, 256, 1024};
  uint32_t waits[KINDS] = {0}, races[KINDS] = {0}, kinds = 0;
  for (size_t i = 0; i < 3 * UPDATES; i++) {
    brim_plan *plan = plan_of(large[i / UPDATES], 32, (enum kind)(i % UPDATES));
    run_everything(plan, KINDS);
    for (uint32_t kind = 0; kind < KINDS; kind++) waits[kind] += device.waits[kind];
    for (uint32_t kind = 0; kind < KINDS; kind++) {
      if (waits[kind] == 0 || races[kind] > 0) continue;
      run_everything(plan, kind);
      races[kind] += device.races;
    }
    brim_plan_free(plan);
  }
  for (uint32_t kind = 0; kind < KINDS; kind++) {
    if (waits[kind] > 0 && races[kind] == 0)
      fail_msg("queue %u need not wait for queue %u", kind / BRIM_QUEUES, kind % BRIM_QUEUES);
    kinds += waits[kind] > 0;
  }
  /* Kernels wait for both kinds of copies, these wait for kernels, and copies in wait for copies out. */
  assert_int_equal(kinds, 5);
}

/* ---- concurrency ---- */

static bool can_run_at_once(const operation *a, const operation *b)
{
  return a < b ? !is_after(a, b) : !is_after(b, a);
}

/* Returns the first operation from `from` on that belongs to the node, or that copies the node's first state in a
 * queue. */
static const operation *find(const brim_plan *plan, const brim_program *p, const brim_node *n, uint32_t queue,
                             const uint8_t *host, uint32_t from)
{
  const int64_t state = queue == BRIM_QUEUE_COMPUTE ? -1 : brim_graph_offloaded(p->graph, n->out[1]);
  for (uint32_t i = from; i < device.count; i++) {
    const operation *o = &device.op[i];
    if (queue == BRIM_QUEUE_COMPUTE ? o->node == n : o->queue == queue && o->host == host + plan->host_offset[state])
      return o;
  }
  fail_msg("'%s' was not started", n->name);
  return device.op;
}

/* Returns the lowest host address of the states, which the copies show. */
static const uint8_t *find_host(void)
{
  const uint8_t *host = NULL;
  for (uint32_t i = 0; i < device.count; i++)
    if (device.op[i].host && (!host || (const uint8_t *)device.op[i].host < host)) host = device.op[i].host;
  return host;
}

static void check_side_by_side(enum kind kind)
{
  brim_plan *plan = plan_of(64, 256, kind);
  const brim_program *p = updating(plan);
  brim_exec *exec = NULL;
  memset(&device, 0, sizeof device);
  device.left_out = KINDS;
  assert_int_equal(brim_exec_open(plan, 0, &exec), BRIM_OK);
  run_step(exec, plan, 0);
  const uint32_t from = device.count;
  run_step(exec, plan, 0);
  const uint32_t next = device.count;
  run_step(exec, plan, 0);
  const uint8_t *host = find_host();
  for (size_t i = 0; i + 1 < p->group_count; i++) {
    const brim_node *n = p->graph->node[p->group[i].from], *following = p->graph->node[p->group[i + 1].from];
    const operation *kernel = find(plan, p, n, BRIM_QUEUE_COMPUTE, host, from);
    const operation *in = find(plan, p, following, BRIM_QUEUE_IN, host, from);
    assert_true(can_run_at_once(kernel, in));
    if (i == 0) continue;
    const brim_node *before = p->graph->node[p->group[i - 1].from];
    const operation *out = find(plan, p, before, BRIM_QUEUE_OUT, host, from);
    assert_true(can_run_at_once(kernel, out) && can_run_at_once(in, out));
  }
  const operation *first = find(plan, p, p->graph->node[p->group[0].from], BRIM_QUEUE_IN, host, from);
  const operation *last = find(plan, p, p->graph->node[p->group[p->group_count - 1].from], BRIM_QUEUE_OUT, host, from);
  const brim_program *train = &plan->program[0];
  const brim_node *backward =
      train->graph->node[kind == FUSED ? p->group[0].from - 1 : (int32_t)train->graph->node_count - 1];
  assert_true(can_run_at_once(first, find(plan, train, backward, BRIM_QUEUE_COMPUTE, host, from)));
  if (kind != FUSED)
    assert_true(can_run_at_once(last, find(plan, train, train->graph->node[0], BRIM_QUEUE_COMPUTE, host, next)));
  brim_exec_close(exec);
  brim_plan_free(plan);
}

static void copies_in_kernels_and_copies_out_run_concurrently(void **unused)
{
  (void)unused;
  for (enum kind kind = 0; kind < UPDATES; kind++) check_side_by_side(kind);
}

int main(void)
{
  const struct CMUnitTest tests[] = {cmocka_unit_test(groups_do_not_overlap_neighbours_or_live_buffers),
                                     cmocka_unit_test(small_parameters_join_a_group_below_the_largest),
                                     cmocka_unit_test(an_update_takes_three_buffers_at_the_end_of_the_arena),
                                     cmocka_unit_test(the_first_group_of_a_backward_pass_is_early_where_there_is_room),
                                     cmocka_unit_test(nothing_uses_memory_that_may_still_be_in_use),
                                     cmocka_unit_test(every_kind_of_wait_is_needed),
                                     cmocka_unit_test(copies_in_kernels_and_copies_out_run_concurrently)};
  return cmocka_run_group_tests(tests, make_backend, NULL);
}
