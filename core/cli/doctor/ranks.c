/* Checks jobs of several ranks: starts a job that trains a step of a tiny model, as a user would. See doctor.h. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "brim/backend.h"
#include "cli/child.h"
#include "cli/doctor/doctor.h"
#include "launch/launch.h"

#define POLL_NANOSECONDS 5000000
#define OUTPUT_BYTES 4096 /* limit for the output of the job */
#define GRACE_SECONDS 0.3 /* time for the ranks to end after a signal */

/* The processor time that a job's processes have used. */
typedef struct activity {
  double processor; /* seconds of processor time */
  double queued;    /* seconds in which they were ready to run, but other programs had the processors */
  bool reads;       /* a process waits for a disk */
} activity;

typedef struct job {
  char folder[64]; /* temporary */
  char output[80];
  int status; /* see waitpid */
  bool has_ended;
  activity activity; /* the time that the job's processes have used, while the job has not ended */
} job;

static void prepare(void *context)
{
  const job *j = context;
  const int fd = open(j->output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) _exit(BRIM_CHILD_NOT_STARTED);
  dup2(fd, STDOUT_FILENO);
  dup2(fd, STDERR_FILENO);
}

/* Waits for the end at most this long. */
static bool wait_for(job *j, pid_t pid, double seconds)
{
  const double end = brim_now() + seconds;
  while (!j->has_ended && brim_now() < end) {
    j->has_ended = waitpid(pid, &j->status, WNOHANG) == pid;
    if (!j->has_ended) nanosleep(&(struct timespec){0, POLL_NANOSECONDS}, NULL);
  }
  return j->has_ended;
}

/* ---- a job that has not ended ---- */

static FILE *open_proc(int pid, const char *name)
{
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
  return fopen(path, "re");
}

/* Adds the activity of a process and its descendants. Counts only their main threads, which do most of the work of such
 * a small job. */
static void add_activity(int pid, activity *sum)
{
  char name[32], state = 0;
  unsigned long long ran, queued;
  int child;
  snprintf(name, sizeof name, "task/%d/children", pid);
  FILE *times = open_proc(pid, "schedstat"), *status = open_proc(pid, "stat"), *children = open_proc(pid, name);
  if (times && fscanf(times, "%llu %llu", &ran, &queued) == 2) {
    sum->processor += 1e-9 * (double)ran;
    sum->queued += 1e-9 * (double)queued;
  }
  if (status && fscanf(status, "%*[^)]) %c", &state) == 1 && state == 'D') sum->reads = true;
  while (children && fscanf(children, "%d", &child) == 1) add_activity(child, sum);
  if (times) fclose(times);
  if (status) fclose(status);
  if (children) fclose(children);
}

/* Whether other programs kept the job from running. A job that hangs looks different: if it sleeps, it uses no
 * processor, and if its two ranks poll each other, it uses two; in both cases it does not wait for a processor. */
static bool is_kept_back(const activity *a, double seconds)
{
  return a->processor < 1.5 * seconds && (a->reads || a->processor + a->queued > 0.25 * seconds);
}

/* ---- the job ---- */

static brim_status run_job(job *j, const char *const *word, double seconds)
{
  const pid_t pid = brim_child_start(word, SIGKILL, prepare, j);
  if (pid < 0) return brim_fail(BRIM_EIO, "a process cannot be started: %s", strerror(errno));
  if (wait_for(j, pid, seconds)) return BRIM_OK;
  add_activity(pid, &j->activity);
  kill(-pid, SIGTERM); /* the launcher ends its ranks */
  if (!wait_for(j, pid, GRACE_SECONDS)) {
    kill(-pid, SIGKILL);
    waitpid(pid, &j->status, 0);
  }
  j->has_ended = false;
  return BRIM_OK;
}

/* Reads the first error in the job's output, or its first line if the output has no error. */
static void read_error(const job *j, char *out, size_t room)
{
  char text[OUTPUT_BYTES];
  (void)brim_file_start(j->output, text, sizeof text);
  const char *error = strstr(text, "error: ");
  if (error) error += strlen("error: ");
  if (!error) error = text + strspn(text, "\n -");
  snprintf(out, room, "%.*s", (int)strcspn(error, "\n"), error);
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *at)
{
  (void)info;
  (void)kind;
  (void)at;
  return remove(path);
}

static void report(brim_doctor *d, const job *j, const char *what, double seconds)
{
  char error[512];
  read_error(j, error, sizeof error);
  if (!j->has_ended && is_kept_back(&j->activity, seconds))
    brim_doctor_add(
        d, BRIM_FINDING_NOTE, "ranks", "`brim doctor --job-seconds 30` waits longer",
        "a job of two ranks (%s) has not ended after %.3g s, in which it had %.2g s of processor time: this "
        "machine is busy",
        what, seconds, j->activity.processor);
  else if (!j->has_ended)
    brim_doctor_add(d, BRIM_FINDING_WARNING, "ranks",
                    "`brim doctor --job-seconds 30` waits longer; if that does not help, look at the host's name and "
                    "network (mpirun resolves it) and try `mpirun -n 2 hostname`",
                    "a job of two ranks (%s) has not ended after %.3g s", what, seconds);
  else if (WIFEXITED(j->status) && WEXITSTATUS(j->status) == 0)
    brim_doctor_add(d, BRIM_FINDING_OK, "ranks", NULL, "two ranks have trained a step (%s)", what);
  else
    brim_doctor_add(d, BRIM_FINDING_WARNING, "ranks", "try `mpirun -n 2 hostname`; jobs of one rank do not need MPI",
                    "a job of two ranks (%s) failed: %s", what, error);
}

static void try_job(brim_doctor *d, const char *what, const char *backend)
{
  char dir[128], choice[64];
  job j = {.folder = "/tmp/brim-doctor-XXXXXX"};
  if (!mkdtemp(j.folder)) {
    brim_doctor_add(d, BRIM_FINDING_PROBLEM, "ranks", "make /tmp writable for all users (mode 1777)",
                    "cannot make a folder in /tmp: %s", strerror(errno));
    return;
  }
  snprintf(j.output, sizeof j.output, "%s/output", j.folder);
  snprintf(dir, sizeof dir, "run.dir=%s/run", j.folder);
  snprintf(choice, sizeof choice, "backend=%s", backend);
  const char *const word[] = {"brim",
                              "train",
                              choice,
                              dir,
                              "dist.ranks=2",
                              "model=mlp",
                              "model.hidden=[8]",
                              "dataset=synthetic",
                              "dataset.shape=[1,4,4]",
                              "dataset.train_count=32",
                              "dataset.test_count=8",
                              "training.batch_size=16",
                              "training.steps=1",
                              "memory.timing=false",
                              "observe.report=false",
                              "observe.live=off",
                              "--quiet",
                              NULL};
  if (run_job(&j, word, d->job_seconds) == BRIM_OK)
    report(d, &j, what, d->job_seconds);
  else
    brim_doctor_add_error(d, BRIM_FINDING_WARNING, "ranks", "see the limits below");
  nftw(j.folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

/* Counts the GPUs that a job could use; 0 without the backend. */
static int count_gpus(const brim_doctor *d)
{
  const brim_registry_entry *entry = brim_registry_find(d->cli->registry, BRIM_BACKEND, "cuda");
  return entry && d->config && brim_config_choice_of(d->config, "backend")->plugin == entry->plugin
             ? brim_launch_devices(d->config)
             : 0;
}

void brim_doctor_ranks(brim_doctor *d)
{
  char path[BRIM_PATH_MAX];
  const brim_registry *r = d->cli->registry;
  const bool has_cpu = brim_registry_find(r, BRIM_BACKEND, "cpu") != NULL;
  if (!brim_registry_find(r, BRIM_COMM, "mpi")) {
    brim_doctor_add(d, BRIM_FINDING_NOTE, "ranks",
                    "only for several processes: build brim with Open MPI "
                    "(libopenmpi-dev)",
                    "communicator 'mpi' is missing or cannot be loaded");
  } else if (!brim_launch_find_program("mpirun", path, sizeof path)) {
    brim_doctor_add(d, BRIM_FINDING_NOTE, "ranks", "only for several processes: install Open MPI (Debian: openmpi-bin)",
                    "there is no mpirun on the PATH");
  } else if (d->job_seconds > 0) {
    try_job(d, "MPI", has_cpu ? "cpu" : "reference");
  }
  if (count_gpus(d) > 1 && brim_registry_find(r, BRIM_COMM, "nccl") && d->job_seconds > 0) try_job(d, "NCCL", "cuda");
}
