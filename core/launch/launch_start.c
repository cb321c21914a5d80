/* See launch_start.h. Each child has its own process group, so that a terminal's Ctrl-C reaches only the launcher,
 * which passes it on once. mpirun gets its settings through the environment, not through options, so the mpirun of any
 * MPI works. */
#include "launch/launch_start.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"

#define EXEC_FAILED 127

int brim_launch_listen(void)
{
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  char name[sizeof address.sun_path + 1] = "";
  socklen_t bytes = sizeof address;
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  /* bound to an empty address, the socket gets a unique name */
  if (fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address.sun_family) == 0 && listen(fd, SOMAXCONN) == 0 &&
      getsockname(fd, (struct sockaddr *)&address, &bytes) == 0) {
    memcpy(name, address.sun_path + 1, bytes - offsetof(struct sockaddr_un, sun_path) - 1);
    setenv(BRIM_LINE_ADDRESS, name, 1);
    return fd;
  }
  brim_fail(BRIM_EIO, "cannot open a socket for the ranks: %s", strerror(errno));
  if (fd >= 0) close(fd);
  return -1;
}

/* ---- mpirun ---- */

/* Sets the environment for Open MPI 4 and 5. brim itself assigns processors to ranks, there may be more ranks than
 * processors, and all must be on this machine, even in a batch job on several machines. Does not change variables that
 * the user has set. */
static void set_environment(const brim_rank_launch *launch)
{
  static const char *const names[][2] = {
      {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
      {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
      {"PRTE_ALLOW_RUN_AS_ROOT", "1"},
      {"PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
      {"OMPI_MCA_rmaps_base_oversubscribe", "1"},
      {"PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"},
      {"OMPI_MCA_hwloc_base_binding_policy", "none"},
      {"PRTE_MCA_hwloc_default_binding_policy", "none"},
      {"OMPI_MCA_plm", "isolated"},
      {"OMPI_MCA_oob_tcp_if_include", "lo"},
      {"PRTE_MCA_prte_if_include", "lo"},
      {"OMPI_MCA_ras", "^slurm,tm,lsf,gridengine,loadleveler,alps"},
      {"PRTE_MCA_plm", "^slurm,tm,lsf"},
      {"PRTE_MCA_ras", "^slurm,tm,lsf,gridengine"},
  };
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) setenv(names[i][0], names[i][1], 0);
  if (launch->ranks > sysconf(_SC_NPROCESSORS_ONLN)) setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
}

static brim_status find_self(char *out, size_t room)
{
  const ssize_t length = readlink("/proc/self/exe", out, room - 1);
  if (length < 0) return brim_fail(BRIM_EIO, "cannot find the path of the brim executable: %s", strerror(errno));
  out[length] = '\0';
  return BRIM_OK;
}

_Noreturn static void become(const char *file, const char *const *argv, const sigset_t *mask, pid_t launcher,
                             int last_wish)
{
  prctl(PR_SET_PDEATHSIG, last_wish);
  if (getppid() != launcher) _exit(EXEC_FAILED); /* the launcher ended before the death signal was set */
  setpgid(0, 0);
  sigprocmask(SIG_SETMASK, mask, NULL);
  execv(file, (char *const *)argv);
  _exit(EXEC_FAILED);
}

static void take_output(int output)
{
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null >= 0) dup2(null, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
}

brim_status brim_launch_mpirun(const brim_rank_launch *launch, const char *const *word, const sigset_t *mask,
                               pid_t *pid, int *output)
{
  char self[PATH_MAX], ranks[16];
  int ends[2];
  size_t count = 0;
  const pid_t launcher = getpid();
  BRIM_TRY(find_self(self, sizeof self));
  if (pipe2(ends, O_CLOEXEC) != 0) return brim_fail(BRIM_EIO, "cannot make a pipe for mpirun: %s", strerror(errno));
  while (word[count]) count++;
  const char **argv = brim_xcalloc(count + 4, sizeof *argv);
  snprintf(ranks, sizeof ranks, "%d", (int)launch->ranks);
  argv[0] = launch->mpirun;
  argv[1] = "-n";
  argv[2] = ranks;
  argv[3] = self;
  memcpy(argv + 4, word + 1, (count - 1) * sizeof *argv); /* word[0] is the program's name */
  set_environment(launch);
  *pid = fork();
  if (*pid == 0) {
    take_output(ends[1]);
    become(launch->mpirun, argv, mask, launcher, SIGTERM);
  }
  const int reason = errno;
  free(argv);
  close(ends[1]);
  *output = ends[0];
  if (*pid > 0) return BRIM_OK;
  return brim_fail(BRIM_EIO, "cannot start mpirun: %s", strerror(reason));
}

/* ---- ranks without mpirun ---- */

static void set_number(const char *name, int32_t number)
{
  char text[16];
  snprintf(text, sizeof text, "%d", (int)number);
  setenv(name, text, 1);
}

static brim_status start_rank(const char *const *word, const sigset_t *mask, int32_t rank, brim_seat *seat)
{
  int ends[2];
  const pid_t launcher = getpid();
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return brim_fail(BRIM_EIO, "cannot make a socket pair for rank %d: %s", (int)rank, strerror(errno));
  set_number("BRIM_RANK", rank);
  set_number(BRIM_LINE_FD, ends[1]);
  const pid_t pid = fork();
  if (pid == 0) {
    fcntl(ends[1], F_SETFD, 0);
    become("/proc/self/exe", word, mask, launcher, SIGKILL);
  }
  const int reason = errno;
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    return brim_fail(BRIM_EIO, "cannot start rank %d: %s", (int)rank, strerror(reason));
  }
  seat->fd = ends[0];
  seat->pid = pid;
  seat->is_child = true;
  return BRIM_OK;
}

brim_status brim_launch_ranks(const brim_rank_launch *launch, const char *const *word, const sigset_t *mask,
                              brim_seats *seats)
{
  brim_status status = BRIM_OK;
  seats->own_streams = true;
  set_number("BRIM_RANKS", seats->count);
  for (int32_t r = 0; r < seats->count && status == BRIM_OK; r++) {
    if (launch->isolated) brim_isolate_set(&launch->isolated[r]);
    status = start_rank(word, mask, r, &seats->seat[r]);
  }
  brim_isolate_unset();
  unsetenv("BRIM_RANKS");
  unsetenv("BRIM_RANK");
  unsetenv(BRIM_LINE_FD);
  return status;
}

/* ---- the end ---- */

void brim_launch_kill_children(void)
{
  char path[64];
  int child;
  snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
  FILE *stream = fopen(path, "r");
  if (!stream) return;
  while (fscanf(stream, "%d", &child) == 1) kill(child, SIGKILL);
  fclose(stream);
}
