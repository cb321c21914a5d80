/* The thread pool. `gate` holds the job's number, a bit that says whether the job is closed, and the number of workers
 * inside it. A worker enters a job by adding itself to the gate, unless the job is closed. Workers take tasks from one
 * counter. When no task is left, the caller closes the gate and waits for the workers inside, so a worker that wakes
 * too late costs no time.
 *
 * Workers poll for the next job for some microseconds before they sleep, because the operations of a step follow each
 * other faster than a thread wakes. */
#include "pool.h"
#include "brim/host.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define GATE_INSIDE 0xFFFFu /* low bits: workers inside */
#define GATE_CLOSED 0x10000u
#define GATE_JOB 0x20000u /* increment for the next job */
#define THREADS_MAX 1024
#define SPIN_NS 100000 /* how long a worker polls for the next job before it sleeps */
#define SPINS_PER_LOOK 64

typedef struct worker {
  cpu_pool *pool;
  pthread_t thread;
  int32_t number; /* 1 .. threads-1; the caller is 0 */
} worker;

struct cpu_pool {
  _Alignas(64) atomic_uint_fast64_t gate;
  _Alignas(64) atomic_int_fast64_t next; /* first task not yet taken */
  _Alignas(64) cpu_task_fn fn;           /* the job; written only while the gate is closed and empty */
  void *arg;
  int64_t tasks;
  _Alignas(64) atomic_int sleepers;
  atomic_bool stop;
  pthread_mutex_t lock;
  pthread_cond_t wake;
  int32_t threads, started;
  worker *workers;
};

/* libgomp comes with oneDNN. Without oneDNN this function does not exist, and no limit is needed. */
extern void omp_set_num_threads(int threads) __attribute__((weak));

void cpu_pool_single_openmp(void)
{
  if (omp_set_num_threads) omp_set_num_threads(1);
}

static void relax(void)
{
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb"); /* takes as long as x86's pause; yield does nothing on most processors */
#endif
}

static int64_t now_ns(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void take_tasks(cpu_pool *pool, int32_t thread)
{
  for (;;) {
    const int64_t task = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
    if (task >= pool->tasks) return;
    pool->fn(pool->arg, task, thread);
  }
}

static bool is_new(uint64_t gate, uint64_t seen)
{
  return gate / GATE_JOB != seen && !(gate & GATE_CLOSED);
}

/* Waits for a job other than `seen` and enters it; returns its number, or `seen` when the pool ends. */
static uint64_t enter_next(cpu_pool *pool, uint64_t seen)
{
  int64_t spin_until = now_ns() + SPIN_NS;
  while (!atomic_load(&pool->stop)) {
    uint64_t gate = atomic_load(&pool->gate);
    if (is_new(gate, seen)) {
      if (atomic_compare_exchange_strong(&pool->gate, &gate, gate + 1)) return gate / GATE_JOB;
      continue;
    }
    for (int i = 0; i < SPINS_PER_LOOK; i++) relax();
    if (now_ns() < spin_until) continue;
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->sleepers, 1);
    while (!atomic_load(&pool->stop) && !is_new(atomic_load(&pool->gate), seen))
      pthread_cond_wait(&pool->wake, &pool->lock);
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->lock);
    spin_until = now_ns() + SPIN_NS;
  }
  return seen;
}

static void *work(void *arg)
{
  worker *w = arg;
  cpu_pool *pool = w->pool;
  cpu_pool_single_openmp();
  for (uint64_t seen = 0;;) {
    const uint64_t job = enter_next(pool, seen);
    if (job == seen) return NULL;
    seen = job;
    take_tasks(pool, w->number);
    atomic_fetch_sub(&pool->gate, 1);
  }
}

static void wake_sleepers(cpu_pool *pool)
{
  if (atomic_load(&pool->sleepers) == 0) return;
  pthread_mutex_lock(&pool->lock);
  pthread_cond_broadcast(&pool->wake);
  pthread_mutex_unlock(&pool->lock);
}

/* Starts a worker with all signals blocked, because the main thread handles them. */
static int start_blocked(worker *w)
{
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int failed = pthread_create(&w->thread, NULL, work, w);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return failed;
}

brim_status cpu_pool_create(int32_t threads, cpu_pool **out)
{
  if (threads < 1 || threads > THREADS_MAX)
    return brim_fail(BRIM_EINVAL, "the number of threads must be in [1,%d], got %d", THREADS_MAX, threads);
  cpu_pool *pool = brim_fault_hit(BRIM_FAULT_ALLOC, NULL) ? NULL : aligned_alloc(64, sizeof *pool);
  if (!pool) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the thread pool");
  memset(pool, 0, sizeof *pool);
  pool->threads = threads;
  atomic_init(&pool->gate, GATE_CLOSED);
  pthread_mutex_init(&pool->lock, NULL);
  pthread_cond_init(&pool->wake, NULL);
  pool->workers = brim_try_calloc((size_t)threads, sizeof *pool->workers);
  if (!pool->workers) {
    cpu_pool_destroy(pool);
    return brim_fail(BRIM_ENOMEM_HOST, "no memory for %d threads", threads);
  }
  for (int32_t i = 1; i < threads; i++) {
    pool->workers[i] = (worker){.pool = pool, .number = i};
    const int failed = start_blocked(&pool->workers[i]);
    if (failed) {
      cpu_pool_destroy(pool);
      return brim_fail(BRIM_EDEVICE, "cannot start thread %d of %d: %s\nlower backend.threads", i + 1, threads,
                       strerror(failed));
    }
    pool->started++;
  }
  *out = pool;
  return BRIM_OK;
}

void cpu_pool_destroy(cpu_pool *pool)
{
  if (!pool) return;
  pthread_mutex_lock(&pool->lock);
  atomic_store(&pool->stop, true);
  pthread_cond_broadcast(&pool->wake);
  pthread_mutex_unlock(&pool->lock);
  for (int32_t i = 1; i <= pool->started; i++) pthread_join(pool->workers[i].thread, NULL);
  pthread_cond_destroy(&pool->wake);
  pthread_mutex_destroy(&pool->lock);
  free(pool->workers);
  free(pool);
}

void cpu_pool_run(cpu_pool *pool, int64_t tasks, cpu_task_fn fn, void *arg)
{
  if (pool->threads == 1 || tasks <= 1) {
    for (int64_t task = 0; task < tasks; task++) fn(arg, task, 0);
    return;
  }
  pool->fn = fn;
  pool->arg = arg;
  pool->tasks = tasks;
  atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
  const uint64_t job = atomic_load(&pool->gate) / GATE_JOB + 1;
  atomic_store(&pool->gate, job * GATE_JOB);
  wake_sleepers(pool);

  take_tasks(pool, 0);
  atomic_fetch_or(&pool->gate, GATE_CLOSED);
  for (int looks = 0; atomic_load(&pool->gate) & GATE_INSIDE; looks++) {
    if (looks < 4096)
      relax();
    else
      sched_yield(); /* gives this CPU to a worker that may still be running a task */
  }
}
