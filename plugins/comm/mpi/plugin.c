/* The table of comm/mpi. Only one instance in a process can join, because MPI starts only once. */
#include <stdlib.h>

#include "brim/brim.h"
#include "mpi.h"

typedef struct mpi_job {
  brim_world world;
  bool is_joined;
  mpi_talk talk;
  MPI_Comm comm; /* communicator for the collectives */
  mpi_sums *sums;
} mpi_job;

static brim_status create(const void *params, void **self)
{
  (void)params;
  *self = brim_try_calloc(1, sizeof(mpi_job));
  return *self ? BRIM_OK : brim_fail(BRIM_ENOMEM_HOST, "no memory for a communicator");
}

static void destroy(void *self)
{
  mpi_job *job = self;
  if (!job) return;
  mpi_sums_close(job->sums);
  mpi_talk_close(&job->talk);
  free(job);
}

static brim_status join(void *self, brim_world *out)
{
  mpi_job *job = self;
  MPI_Comm talk;
  BRIM_TRY(mpi_join(&job->world, &talk, &job->comm));
  BRIM_TRY(mpi_talk_open(&job->talk, talk, &job->world));
  job->is_joined = true;
  *out = job->world;
  return BRIM_OK;
}

static brim_status exchange(void *self, const void *own, uint32_t bytes, void *all, double seconds, int32_t *late)
{
  mpi_job *job = self;
  return mpi_exchange(&job->talk, own, bytes, all, seconds, late);
}

/* If some ranks do not arrive in time, the others exit without ending MPI. The process that started the job then ends
 * the missing ranks. */
static void leave(void *self)
{
  mpi_job *job = self;
  const char here = 1;
  int32_t late;
  if (!job->is_joined) return;
  const double seconds = job->talk.seconds;
  if (mpi_exchange(&job->talk, &here, sizeof here, NULL, seconds, &late) != BRIM_OK) {
    brim_log(BRIM_LOG_WARN, "not all ranks have reached the end: %s", brim_error_text());
    return;
  }
  mpi_sums_close(job->sums);
  job->sums = NULL;
  mpi_talk_close(&job->talk);
  mpi_leave(seconds);
  job->is_joined = false;
}

static void end_all(void *self, int32_t exit_status)
{
  (void)self;
  mpi_end_all(exit_status);
}

static brim_status connect(void *self, const brim_world *world, const brim_talk *talk, const brim_backend_ops *ops,
                           void *backend, int32_t device)
{
  mpi_job *job = self;
  (void)world, (void)talk, (void)ops, (void)backend, (void)device;
  if (!job->is_joined)
    return brim_fail(BRIM_ENOTSUP, "comm/mpi cannot sum over these ranks: another communicator has joined them");
  return mpi_sums_open(job->comm, &job->world, &job->sums);
}

static brim_status start(void *self, const brim_collective *what, void *queue)
{
  mpi_job *job = self;
  (void)queue;
  return mpi_sums_start(job->sums, what);
}

static brim_status poll(void *self, uint64_t *done)
{
  mpi_job *job = self;
  return mpi_sums_poll(job->sums, done);
}

static void disconnect(void *self)
{
  mpi_job *job = self;
  mpi_sums_close(job->sums);
  job->sums = NULL;
}

static const brim_comm_ops ops = {.size = sizeof ops,
                                  .join = join,
                                  .exchange = exchange,
                                  .leave = leave,
                                  .end_all = end_all,
                                  .connect = connect,
                                  .start = start,
                                  .poll = poll,
                                  .disconnect = disconnect};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_COMM,
                                   .id = "mpi",
                                   .help = "ranks started by mpirun or srun, with sums in host memory",
                                   .create = create,
                                   .destroy = destroy,
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-mpi", "1.0", plugins)
