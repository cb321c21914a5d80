/* Decides how many ranks to start, and how. See launch.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "brim/comm.h"
#include "dist/dist.h"
#include "dist/line.h"
#include "dist/started.h"
#include "launch/launch.h"

static bool is_on_device(const brim_config *config)
{
  const brim_backend_ops *ops = brim_config_choice_of(config, "backend")->plugin->ops;
  return BRIM_HAS(brim_backend_ops, ops, run_program);
}

/* Returns the communicator for this half: the chosen one if it has this half, else the one that "auto" selects; NULL if
 * none is available. */
static const brim_plugin *communicator(const brim_config *config, bool host)
{
  const brim_plugin *chosen = brim_config_choice_of(config, "comm")->plugin;
  const brim_comm_ops *ops = chosen->ops;
  if (host ? BRIM_HAS(brim_comm_ops, ops, join) : BRIM_HAS(brim_comm_ops, ops, connect)) return chosen;
  const brim_registry_entry *entry = brim_registry_find(config->registry, BRIM_COMM, host ? "mpi" : "nccl");
  return entry ? entry->plugin : NULL;
}

static const char *why_not(const brim_config *config, const char *id)
{
  const brim_registry_failure *failure = brim_registry_failure_of(config->registry, BRIM_COMM, id);
  return failure ? failure->reason : "this build does not include it";
}

/* Returns the number of ranks to start: one for each GPU, unless the user names a device, the run queues for devices
 * with others, or its updates need a single rank. */
static int32_t count_ranks(const brim_config *config)
{
  const brim_settings *s = &config->settings;
  const char *named = getenv("GPU_DEVICE_ID");
  if (s->dist.ranks > 0) return (int32_t)s->dist.ranks;
  if (!is_on_device(config) || strcmp(s->device, "auto") != 0 || s->wait_for_gpu || (named && named[0])) return 1;
  const int32_t devices = brim_launch_devices(config);
  if (devices <= 1) return 1;
  if (s->optimizer.update == BRIM_UPDATE_FUSED_BACKWARD && s->total_clients == 0) {
    brim_log(BRIM_LOG_INFO, "using one of %d GPUs: optimizer.update=fused_backward needs a single rank", devices);
    return 1;
  }
  if (!communicator(config, false)) {
    brim_log(BRIM_LOG_INFO, "using one of %d GPUs: several ranks need communicator 'nccl': %s", devices,
             why_not(config, "nccl"));
    return 1;
  }
  const int64_t samples = s->training.effective_batch_size;
  return samples > 0 && samples < devices ? (int32_t)samples : devices;
}

bool brim_launch_find_program(const char *name, char *out, size_t room)
{
  const char *path = getenv("PATH");
  struct stat info;
  while (path && *path) {
    const size_t length = strcspn(path, ":");
    const int n = snprintf(out, room, "%.*s/%s", length ? (int)length : 1, length ? path : ".", name);
    if (n > 0 && (size_t)n < room && access(out, X_OK) == 0 && stat(out, &info) == 0 && S_ISREG(info.st_mode))
      return true;
    path += length + (path[length] == ':');
  }
  out[0] = '\0';
  return false;
}

/* Isolated clients exchange messages through this process, which sets the environment of each, so they need no MPI. */
static brim_status choose_starter(const brim_config *config, brim_rank_launch *out)
{
  if (out->isolated) return BRIM_OK;
  const bool has_mpi = communicator(config, true) != NULL;
  if (has_mpi && brim_launch_find_program("mpirun", out->mpirun, sizeof out->mpirun)) return BRIM_OK;
  if (is_on_device(config)) return BRIM_OK;
  brim_fail(BRIM_ELOAD, "dist.ranks=%d needs MPI: %s%s", (int)out->ranks,
            has_mpi ? "there is no mpirun on the PATH" : "communicator 'mpi' cannot be loaded: ",
            has_mpi ? "" : why_not(config, "mpi"));
  return brim_fail_add(
      BRIM_ELOAD, "install Open MPI (Debian: openmpi-bin, and libopenmpi-dev to build with), or remove dist.ranks");
}

brim_status brim_launch_plan(const brim_config *config, const char *resume, brim_rank_launch *out)
{
  *out = (brim_rank_launch){.ranks = 1, .end_seconds = config->settings.dist.timeout_seconds};
  if (brim_dist_started() > 1 || brim_line_is_open()) return BRIM_OK;
  out->ranks = count_ranks(config);
  if (out->ranks == 1) return BRIM_OK;
  if (brim_isolate_is_wanted(config)) {
    out->isolated = brim_xcalloc((size_t)out->ranks, sizeof *out->isolated);
    BRIM_TRY(brim_isolate_plan(config, out->ranks, out->isolated));
  }
  if (resume) snprintf(out->folder, sizeof out->folder, "%s", resume);
  BRIM_TRY(choose_starter(config, out));
  brim_log(BRIM_LOG_DEBUG, "%d ranks are started by %s", (int)out->ranks, out->mpirun[0] ? out->mpirun : "brim itself");
  return BRIM_OK;
}
