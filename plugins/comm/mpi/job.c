/* Starts and ends MPI in this process. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mpi.h"

#define ABORT_SECONDS 3 /* time in which MPI must end a job; after this time this process exits */
/* Time in which the process that started the ranks must end; after this time it is killed. */
#define STARTER_SECONDS 5

brim_status mpi_failed(int code, const char *doing)
{
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  return brim_fail(BRIM_ECOMM, "%s: %s", doing, text);
}

/* ---- joining ---- */

/* Blocks signals in the threads that MPI starts, because the main thread handles signals. Signals for errors of the
 * thread itself stay open, and SIGCHLD, which MPI needs for its helpers. */
static void block_signals(sigset_t *before)
{
  static const int open[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS, SIGCHLD};
  sigset_t all;
  sigfillset(&all);
  for (size_t i = 0; i < sizeof open / sizeof open[0]; i++) sigdelset(&all, open[i]);
  pthread_sigmask(SIG_BLOCK, &all, before);
}

/* Returns the number in an environment variable, or -1. */
static long number_of(const char *name)
{
  const char *text = getenv(name);
  char *end = NULL;
  const long number = text ? strtol(text, &end, 10) : -1;
  return text && end != text ? number : -1;
}

/* Limits the network interfaces of Open MPI, which would otherwise listen on all of them. On one host, shared memory is
 * enough. On several hosts, the ranks use mpirun's interfaces, if the user has named any. The user's own settings have
 * priority. */
static void choose_interfaces(void)
{
  const long ranks = number_of("OMPI_COMM_WORLD_SIZE");
  const char *interfaces = getenv("OMPI_MCA_oob_tcp_if_include");
  if (ranks > 0 && number_of("OMPI_COMM_WORLD_LOCAL_SIZE") == ranks)
    setenv("OMPI_MCA_btl", "^tcp,ofi", 0);
  else if (interfaces && !getenv("OMPI_MCA_btl_tcp_if_exclude"))
    setenv("OMPI_MCA_btl_tcp_if_include", interfaces, 0);
}

static brim_status start_mpi(void)
{
  int is_started = 0, is_ended = 0, threads = MPI_THREAD_SINGLE;
  sigset_t before;
  MPI_Initialized(&is_started);
  MPI_Finalized(&is_ended);
  if (is_ended) return brim_fail(BRIM_ECOMM, "MPI has ended in this process, and cannot start again");
  if (is_started) return BRIM_OK;
  choose_interfaces();
  mpi_segments_begin();
  block_signals(&before);
  const int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &threads);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (code != MPI_SUCCESS) return mpi_failed(code, "cannot start MPI");
  if (threads < MPI_THREAD_FUNNELED)
    return brim_fail(BRIM_ECOMM, "this MPI does not support threads\nuse one that supports "
                                 "MPI_THREAD_FUNNELED");
  return BRIM_OK;
}

/* Checks that the processes of srun have found each other. They do so only if MPI supports Slurm's interface. */
static brim_status check_together(int ranks)
{
  const char *text = getenv("SLURM_STEP_NUM_TASKS");
  const long tasks = text ? strtol(text, NULL, 10) : 1;
  if (ranks > 1 || tasks <= 1) return BRIM_OK;
  return brim_fail(BRIM_ECOMM,
                   "Slurm has started %ld processes, but MPI knows only this one\nuse srun --mpi=pmix (`srun "
                   "--mpi=list` lists the types of this Slurm), or mpirun",
                   tasks);
}

brim_status mpi_join(brim_world *world, MPI_Comm *talk, MPI_Comm *sums)
{
  MPI_Comm host;
  int rank, ranks, local_rank, local_ranks;
  BRIM_TRY(start_mpi());
  MPI_TRY(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI cannot return its errors");
  MPI_TRY(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "cannot get this process's rank from MPI");
  MPI_TRY(MPI_Comm_size(MPI_COMM_WORLD, &ranks), "cannot get the number of ranks from MPI");
  BRIM_TRY(check_together(ranks));
  MPI_TRY(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host),
          "cannot get the ranks of this host from MPI");
  MPI_TRY(MPI_Comm_rank(host, &local_rank), "cannot get the rank on this host from MPI");
  MPI_TRY(MPI_Comm_size(host, &local_ranks), "cannot get the number of ranks on this host from MPI");
  MPI_TRY(MPI_Comm_free(&host), "cannot free a communicator");
  MPI_TRY(MPI_Comm_dup(MPI_COMM_WORLD, talk), "cannot make a communicator");
  MPI_TRY(MPI_Comm_dup(MPI_COMM_WORLD, sums), "cannot make a communicator");
  *world = (brim_world){rank, ranks, local_rank, local_ranks};
  return BRIM_OK;
}

/* ---- ending ---- */

static volatile sig_atomic_t late_status;

static void end_late(int signal)
{
  (void)signal;
  _exit(late_status);
}

/* Sets an alarm that ends this process with `status` after `seconds`, even if it hangs. Returns the seconds that an
 * earlier alarm has left (0 if there is none), and its handler in `before`. */
static unsigned watch(unsigned seconds, int status, struct sigaction *before)
{
  const struct sigaction action = {.sa_handler = end_late};
  sigset_t mine;
  late_status = status;
  sigemptyset(&mine);
  sigaddset(&mine, SIGALRM);
  const unsigned left = alarm(0);
  sigaction(SIGALRM, &action, before);
  pthread_sigmask(SIG_UNBLOCK, &mine, NULL);
  alarm(seconds);
  return left;
}

/* The process that started the ranks of this host: that of Open MPI before version 5, of Open MPI since version 5, or
 * of MPICH. With several hosts, each host has a daemon, which cleans up on SIGTERM. mpirun gets no SIGTERM: MPI_Abort
 * has already asked it to end, and Open MPI's mpirun crashes if it is asked again. */
typedef struct starter {
  const char *name;
  bool is_daemon;
} starter;

static const starter *find_starter(pid_t process)
{
  static const starter starters[] = {{"orted", true},    {"prted", true},    {"hydra_pmi_proxy", true},
                                     {"mpirun", false},  {"mpiexec", false}, {"mpiexec.hydra", false},
                                     {"orterun", false}, {"prterun", false}};
  char file[64], name[64] = "";
  snprintf(file, sizeof file, "/proc/%d/comm", (int)process);
  FILE *stream = fopen(file, "r");
  if (!stream) return NULL;
  if (fgets(name, sizeof name, stream)) name[strcspn(name, "\n")] = 0;
  fclose(stream);
  for (size_t i = 0; i < sizeof starters / sizeof starters[0]; i++)
    if (strcmp(name, starters[i].name) == 0) return &starters[i];
  return NULL;
}

/* Waits for the starter to end, and ends it if it does not. Runs in its own process group, which receives no signals
 * for the ranks. */
static void watch_starter(int process, const starter *kind)
{
  struct pollfd end = {.fd = process, .events = POLLIN};
  setsid();
  for (int fd = 0; fd < 3; fd++) close(fd); /* other programs wait until these descriptors are closed */
  if (poll(&end, 1, STARTER_SECONDS * 1000) > 0) _exit(0);
  if (kind->is_daemon) syscall(SYS_pidfd_send_signal, process, SIGTERM, NULL, 0);
  if (!kind->is_daemon || poll(&end, 1, STARTER_SECONDS * 1000) == 0)
    syscall(SYS_pidfd_send_signal, process, SIGKILL, NULL, 0);
  _exit(0);
}

/* Also ends the process that started the ranks, even if that process cannot reach the other hosts. Without this, Open
 * MPI's starter would try to reach them for a quarter of an hour or more. */
static void end_starter_too(void)
{
  const pid_t parent = getppid();
  const int process = (int)syscall(SYS_pidfd_open, parent, 0);
  const starter *kind = find_starter(parent);
  if (process < 0) return; /* Linux before 5.3 */
  const pid_t child = kind ? fork() : -1;
  if (child == 0) watch_starter(process, kind);
  if (child > 0) setpgid(child, child); /* must happen before MPI ends this process group */
  close(process);
}

void mpi_leave(double seconds)
{
  struct sigaction before;
  const unsigned left = watch((unsigned)seconds + 1, brim_status_exit(BRIM_ECOMM), &before);
  MPI_Finalize();
  mpi_segments_end();
  alarm(0);
  sigaction(SIGALRM, &before, NULL);
  alarm(left); /* restores the alarm that is set if a plugin's thread was abandoned */
}

void mpi_end_all(int32_t exit_status)
{
  int is_started = 0, is_ended = 0;
  watch(ABORT_SECONDS, exit_status, NULL);
  MPI_Initialized(&is_started);
  MPI_Finalized(&is_ended);
  end_starter_too();
  mpi_segments_end();
  if (is_started && !is_ended) MPI_Abort(MPI_COMM_WORLD, exit_status);
  _exit(exit_status);
}
