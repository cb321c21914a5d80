/* The emulated device: a block's threads, their barriers and exchanges. */
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "emulated.h"

#define STACK_BYTES (256 << 10) /* enough for copies of a kernel's arguments, 32 KiB */
#define WARPS_MAX (EMULATED_THREADS_MAX / CUDA_WARP)

emulated_thread *emulated_self;
uint3 emulated_block_index;
dim3 emulated_block_size, emulated_grid_size;

/* A stack, and the place where its thread continues. A waiting thread keeps its stack until it ends; threads that never
 * wait run one after another on the same stack. */
typedef void *jump[5];
struct emulated_fiber {
  jump at;
  char *stack;
  size_t bytes;
  bool started;
};

namespace
{
emulated_thread threads[EMULATED_THREADS_MAX];
emulated_fiber fibers[EMULATED_THREADS_MAX], scheduler, *running;
std::vector<emulated_fiber *> idle; /* fibers that run no thread */
const std::function<void()> *kernel_body;
unsigned alive, at_barrier;
alignas(16) char dynamic_shared[EMULATED_SHARED_BYTES_MAX];

/* Warps take turns, each until all of its threads are at a barrier or have ended. */
struct warp {
  unsigned order[CUDA_WARP], lanes, started; /* numbers of its threads; their count; how many have begun */
  unsigned turn;                             /* the place in the order whose thread runs, or ran last */
  unsigned waiting;                          /* a bit for each lane that waits for other lanes */
} warps[WARPS_MAX];
unsigned warp_order[WARPS_MAX], warp_count;
warp *current;

[[noreturn]] void fault(const char *what)
{
  fprintf(stderr, "emulated device: %s (block %u,%u,%u, thread %u)\n", what, blockIdx.x, blockIdx.y, blockIdx.z,
          emulated_self ? threadIdx.x : 0);
  abort();
}

/* ---- fibers ---- */

void fiber_main();

/* Jumps to another fiber, and returns when something jumps back to `from`. C's own functions make a system call
 * (swapcontext) or check for foreign stacks (longjmp); the compiler's jumps are a few instructions. */
[[gnu::noinline]] void jump_to(emulated_fiber *from, emulated_fiber *to)
{
  if (__builtin_setjmp(from->at) != 0) return;
  if (to->started) __builtin_longjmp(to->at, 1);
  ucontext_t context;
  to->started = true;
  getcontext(&context);
  context.uc_stack.ss_sp = to->stack;
  context.uc_stack.ss_size = to->bytes;
  context.uc_link = nullptr;
  makecontext(&context, fiber_main, 0);
  setcontext(&context);
}

/* Returns the fiber of the warp's next thread that has not begun, else of one that can continue, else the scheduler. */
emulated_fiber *next_fiber()
{
  warp *w = current;
  if (w->started < w->lanes) {
    emulated_fiber *f = idle.back();
    idle.pop_back();
    return f;
  }
  for (unsigned i = 0; i < w->lanes; i++) {
    w->turn = w->turn + 1 < w->lanes ? w->turn + 1 : 0;
    const emulated_thread *t = &threads[w->order[w->turn]];
    if (t->state == EMULATED_READY) return t->fiber;
  }
  return &scheduler;
}

/* Threads pass the turn directly to each other, which takes half as many jumps as through the scheduler. The processor
 * also predicts the following returns, because the threads of a warp mostly wait in the same place. */
void pass_turn()
{
  emulated_fiber *self = running;
  emulated_thread *thread = emulated_self;
  running = next_fiber();
  jump_to(self, running);
  emulated_self = thread;
}

/* A fiber runs one thread after another, as long as the warp has threads that have not begun. */
void fiber_main()
{
  emulated_fiber *self = running;
  for (;;) {
    while (current->started < current->lanes) {
      current->turn = current->started++;
      emulated_self = &threads[current->order[current->turn]];
      emulated_self->fiber = self;
      (*kernel_body)();
      emulated_self->state = EMULATED_DONE;
      alive--;
    }
    idle.push_back(self);
    pass_turn();
  }
}

/* Stacks are a little more than their size apart: with a power of two, the same depth of all stacks would compete for
 * the same few cache lines. */
void make_fibers()
{
  const size_t distance = STACK_BYTES + 9 * 64;
  if (scheduler.started) return;
  scheduler.started = true;
  char *stacks = static_cast<char *>(malloc(EMULATED_THREADS_MAX * distance));
  for (size_t i = EMULATED_THREADS_MAX; i-- > 0;) {
    fibers[i].stack = stacks + i * distance;
    fibers[i].bytes = STACK_BYTES;
    idle.push_back(&fibers[i]);
  }
}

/* ---- blocks ---- */

uint64_t order_seed, order_state; /* EMULATED_ORDER; 0: ascending */

/* A test may set another seed between launches: the same seed gives the same launches the same orders. */
void choose_order()
{
  const char *given = getenv("EMULATED_ORDER");
  const uint64_t seed = given ? strtoull(given, nullptr, 10) : 0;
  if (seed != order_seed) order_state = order_seed = seed;
}

void shuffle(unsigned *number, unsigned count)
{
  for (unsigned i = count; order_seed && i > 1; i--) {
    order_state = order_state * 6364136223846793005u + 1442695040888963407u;
    std::swap(number[i - 1], number[(order_state >> 33) % i]);
  }
}

/* The order in which warps, and threads of a warp, take turns. */
void make_order(unsigned count)
{
  warp_count = (count + CUDA_WARP - 1) / CUDA_WARP;
  for (unsigned w = 0; w < warp_count; w++) {
    const unsigned first = w * CUDA_WARP;
    warps[w] = warp{};
    warps[w].lanes = std::min<unsigned>(CUDA_WARP, count - first);
    for (unsigned i = 0; i < warps[w].lanes; i++) {
      warps[w].order[i] = first + i;
      threads[first + i].index = uint3{first + i, 0, 0};
      threads[first + i].state = EMULATED_READY;
    }
    shuffle(warps[w].order, warps[w].lanes);
    warp_order[w] = w;
  }
  shuffle(warp_order, warp_count);
}

/* Runs a warp until each of its threads waits at a barrier, waits for lanes that do not come, or has ended. */
bool run_warp(warp *w)
{
  current = w;
  w->turn = w->lanes - 1;
  running = next_fiber();
  if (running == &scheduler) return false;
  jump_to(&scheduler, running);
  return true;
}

void open_barrier()
{
  at_barrier = 0;
  for (unsigned i = 0; i < blockDim.x; i++)
    if (threads[i].state == EMULATED_AT_BARRIER) threads[i].state = EMULATED_READY;
}

void run_block(const cuda_geometry &g)
{
  make_order(g.threads);
  memset(dynamic_shared, 0xFF, g.shared_bytes);
  alive = g.threads;
  at_barrier = 0;
  while (alive > 0) {
    bool progress = false;
    for (unsigned w = 0; w < warp_count; w++) progress |= run_warp(&warps[warp_order[w]]);
    if (alive > 0 && at_barrier == alive)
      open_barrier();
    else if (!progress)
      fault("threads wait for each other: a barrier that not all reach, or lanes of a warp that do not come");
  }
}
} // namespace

void emulated_run_grid(const cuda_geometry &g, const std::function<void()> &body)
{
  const unsigned X = g.blocks[0], Y = g.blocks[1];
  std::vector<unsigned> order((size_t)X * Y * g.blocks[2]);
  make_fibers();
  choose_order();
  kernel_body = &body;
  emulated_block_size = dim3(g.threads);
  emulated_grid_size = dim3(X, Y, g.blocks[2]);
  std::iota(order.begin(), order.end(), 0u);
  shuffle(order.data(), (unsigned)order.size());
  for (const unsigned i : order) {
    emulated_block_index = uint3{i % X, i / X % Y, i / X / Y};
    run_block(g);
  }
  emulated_self = nullptr;
}

/* ---- operations of several threads ---- */

void *cuda_dynamic_shared()
{
  return dynamic_shared;
}

void __syncthreads()
{
  emulated_self->state = EMULATED_AT_BARRIER;
  at_barrier++;
  pass_turn();
}

/* True if all lanes of the mask have arrived at the same exchange. */
static bool is_complete(const emulated_thread *lane, unsigned waiting, unsigned mask)
{
  if ((waiting & mask) != mask) return false;
  for (unsigned rest = mask; rest; rest &= rest - 1)
    if (lane[__builtin_ctz(rest)].mask != mask) return false;
  return true;
}

static void exchange(emulated_thread *lane, unsigned mask)
{
  unsigned votes = 0;
  for (unsigned rest = mask; rest; rest &= rest - 1) {
    const int i = __builtin_ctz(rest);
    votes |= (unsigned)(lane[i].given & 1) << i;
  }
  for (unsigned rest = mask; rest; rest &= rest - 1) {
    emulated_thread *t = &lane[__builtin_ctz(rest)];
    if (t->source >= 0 && !(mask >> t->source & 1)) fault("a lane takes from one that is not in the mask");
    t->taken = t->source < 0 ? votes : lane[t->source].given;
    t->state = EMULATED_READY;
  }
}

uint64_t emulated_exchange(unsigned mask, uint64_t given, int source)
{
  const unsigned first = threadIdx.x / CUDA_WARP * CUDA_WARP, lanes = std::min<unsigned>(CUDA_WARP, blockDim.x - first);
  warp *w = &warps[threadIdx.x / CUDA_WARP];
  if (!(mask >> emulated_lane() & 1)) fault("a lane exchanges under a mask without itself");
  if (lanes < CUDA_WARP && mask >> lanes) fault("a lane of an exchange's mask does not exist");
  emulated_self->mask = mask;
  emulated_self->given = given;
  emulated_self->source = source;
  emulated_self->state = EMULATED_AT_WARP;
  w->waiting |= 1u << emulated_lane();
  if (is_complete(&threads[first], w->waiting, mask)) {
    w->waiting &= ~mask;
    exchange(&threads[first], mask);
  } else {
    pass_turn();
  }
  return emulated_self->taken;
}
