/* Checks the host and this process: memory, limits, environment, terminal. See doctor.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/host.h"
#include "base/install.h"
#include "base/text.h"
#include "base/utf8.h"
#include "cli/doctor/doctor.h"
#include "launch/launch.h"
#include "monitor/terminal.h"

#define HOST_BYTES_MIN (UINT64_C(1) << 30)
#define SWAP_PERCENT_MAX 50
#define FILES_MIN 256
#define PROCESSES_MIN 64
#define YEAR_MIN 2026
#define COLUMNS_MIN 80
#define ROWS_MIN 24

/* ---- memory and control groups ---- */

static bool forbids_overcommit(void)
{
  char text[16];
  return brim_file_start("/proc/sys/vm/overcommit_memory", text, sizeof text) > 0 && text[0] == '2';
}

void brim_doctor_memory(brim_doctor *d)
{
  char free[32], total[32];
  const brim_host_memory m = brim_host_memory_now();
  const brim_host_use use = brim_host_use_read("/proc", "/sys/fs/cgroup");
  const brim_cgroup group = brim_cgroup_read("/sys/fs/cgroup", "/proc/self/cgroup");
  const char *where = m.is_grouped ? "the control group" : "the host";
  brim_format_bytes(free, sizeof free, m.available_bytes);
  brim_format_bytes(total, sizeof total, m.total_bytes);
  if (m.available_bytes < HOST_BYTES_MIN)
    brim_doctor_add(d, BRIM_FINDING_WARNING, "memory",
                    m.is_grouped ? "raise the limit of the container or the job (--memory, --mem)"
                                 : "end other programs, or add memory",
                    "%s has only %s of %s left", where, free, total);
  else
    brim_doctor_add(d, BRIM_FINDING_OK, "memory", NULL, "%s of %s left in %s", free, total, where);
  if (use.swap_percent > SWAP_PERCENT_MAX)
    brim_doctor_add(d, BRIM_FINDING_WARNING, "memory", "end other programs: a run that is swapped out is very slow",
                    "%.0f %% of the swap space is in use", use.swap_percent);
  if (forbids_overcommit())
    brim_doctor_add(d, BRIM_FINDING_NOTE, "memory", NULL,
                    "vm.overcommit_memory is 2: memory counts as used when it is reserved");
  if (group.processors > 0 && group.processors < 1)
    brim_doctor_add(d, BRIM_FINDING_WARNING, "processors", "raise the quota of the container or the job (--cpus)",
                    "the control group has only %.2g of a processor", group.processors);
  else
    brim_doctor_add(d, BRIM_FINDING_OK, "processors", NULL, "%d thread%s can run at a time", (int)brim_host_threads(),
                    brim_plural(brim_host_threads()));
}

/* ---- limits of the process ---- */

static const struct limit {
  int resource;
  const char *name, *option; /* option: of the shell's ulimit */
  uint64_t least;            /* a lower limit is a warning; UINT64_MAX: any limit is one */
  const char *effect;
} limits[] = {
    {RLIMIT_NOFILE, "open files", "-n", FILES_MIN, "data in many files and jobs of several ranks may fail"},
    {RLIMIT_NPROC, "processes and threads of the user", "-u", PROCESSES_MIN, "threads may not start"},
    {RLIMIT_AS, "address space", "-v", UINT64_MAX, "an arena and the libraries of GPUs reserve much of this memory"},
    {RLIMIT_DATA, "data", "-d", UINT64_MAX, "the system may refuse to allocate an arena"},
    {RLIMIT_FSIZE, "size of a file", "-f", UINT64_MAX, "checkpoints may not be written"},
    {RLIMIT_CPU, "processor time", "-t", UINT64_MAX,
     "the run writes a checkpoint and ends when it has used up this time"},
};

void brim_doctor_limits(brim_doctor *d)
{
  bool all_good = true;
  for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
    const struct limit *l = &limits[i];
    struct rlimit found;
    if (getrlimit((__rlimit_resource_t)l->resource, &found) != 0 || found.rlim_cur == RLIM_INFINITY) continue;
    if ((uint64_t)found.rlim_cur >= l->least) continue;
    char remedy[128];
    all_good = false;
    if (found.rlim_max == RLIM_INFINITY)
      snprintf(remedy, sizeof remedy, "ulimit %s unlimited, in the shell that starts brim", l->option);
    else if (found.rlim_max > found.rlim_cur)
      snprintf(remedy, sizeof remedy, "ulimit %s %llu, in the shell that starts brim", l->option,
               (unsigned long long)found.rlim_max);
    else
      snprintf(remedy, sizeof remedy, "ask the administrator to raise it (ulimit %s, limits.conf, the batch system)",
               l->option);
    brim_doctor_add(d, BRIM_FINDING_WARNING, "limits", remedy, "%s: %llu; %s", l->name,
                    (unsigned long long)found.rlim_cur, l->effect);
  }
  if (all_good) brim_doctor_add(d, BRIM_FINDING_OK, "limits", NULL, "no limit would stop a run");
}

/* ---- environment ---- */

static const char *set(const char *name)
{
  const char *value = getenv(name);
  return value && value[0] ? value : NULL;
}

static void look_at_threads(brim_doctor *d, bool *all_good)
{
  char *end;
  const char *text = set("OMP_NUM_THREADS");
  if (!text) return;
  const long threads = strtol(text, &end, 10);
  if (threads >= 1 && (*end == '\0' || *end == ',')) return;
  *all_good = false;
  brim_doctor_add(d, BRIM_FINDING_WARNING, "environment", "unset OMP_NUM_THREADS, or set it to a number of at least 1",
                  "OMP_NUM_THREADS=%s is not a number of threads", text);
}

void brim_doctor_environment(brim_doctor *d)
{
  bool all_good = true;
  const time_t now = time(NULL);
  struct tm utc;
  const char *faults = set(BRIM_FAULT_ENVIRONMENT), *preload = set("LD_PRELOAD"),
             *hidden = getenv("CUDA_VISIBLE_DEVICES");
  if (faults) {
    all_good = false;
    brim_doctor_add(d, BRIM_FINDING_PROBLEM, "environment", "unset " BRIM_FAULT_ENVIRONMENT,
                    BRIM_FAULT_ENVIRONMENT "=%s: brim simulates failures, for tests", faults);
  }
  if (preload) {
    all_good = false;
    brim_doctor_add(d, BRIM_FINDING_WARNING, "environment", "unset LD_PRELOAD, unless you need it",
                    "LD_PRELOAD=%s replaces functions of the system", preload);
  }
  if (hidden && (!hidden[0] || hidden[0] == '-') && brim_host_has_nvidia(BRIM_PCI_BUS)) {
    all_good = false;
    brim_doctor_add(d, BRIM_FINDING_WARNING, "environment", "unset CUDA_VISIBLE_DEVICES",
                    "CUDA_VISIBLE_DEVICES='%s' hides all GPUs", hidden);
  }
  look_at_threads(d, &all_good);
  if (gmtime_r(&now, &utc) && utc.tm_year + 1900 < YEAR_MIN) {
    all_good = false;
    brim_doctor_add(d, BRIM_FINDING_WARNING, "environment", "set the clock: names and records of runs have its time",
                    "the clock of this machine shows the year %d", utc.tm_year + 1900);
  }
  if (all_good) brim_doctor_add(d, BRIM_FINDING_OK, "environment", NULL, "no variable that would disturb a run");
}

/* ---- terminal ---- */

void brim_doctor_terminal(brim_doctor *d)
{
  const char *term = set("TERM");
  char folder[BRIM_PATH_MAX], ssh[BRIM_PATH_MAX];
  struct winsize size = {0};
  if (!brim_install_dir(folder, sizeof folder, BRIM_TERMINAL_FOLDER))
    brim_doctor_add(d, BRIM_FINDING_WARNING, "terminal", "install libncurses-dev and build brim again",
                    "this brim has no ncurses, so brim monitor prints only text");
  if (!brim_launch_find_program("ssh", ssh, sizeof ssh))
    brim_doctor_add(d, BRIM_FINDING_NOTE, "terminal", "install an ssh client (Debian: openssh-client)",
                    "there is no ssh, which brim monitor needs for other hosts");
  if (!brim_utf8_is_locale())
    brim_doctor_add(d, BRIM_FINDING_NOTE, "terminal", "set LC_ALL=C.UTF-8, if the terminal shows UTF-8",
                    "the locale is not UTF-8: progress and monitor are drawn in ASCII");
  if (!term || strcmp(term, "dumb") == 0) {
    brim_doctor_add(d, BRIM_FINDING_WARNING, "terminal", "set TERM to its type, such as xterm-256color",
                    "TERM=%s: progress is printed as lines, and brim monitor as text", term ? term : "");
    return;
  }
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 &&
      (size.ws_col < COLUMNS_MIN || size.ws_row < ROWS_MIN))
    brim_doctor_add(d, BRIM_FINDING_NOTE, "terminal", "enlarge it",
                    "it has %d columns and %d rows; brim monitor needs %d and %d for its whole picture", size.ws_col,
                    size.ws_row, COLUMNS_MIN, ROWS_MIN);
  else
    brim_doctor_add(d, BRIM_FINDING_OK, "terminal", NULL, "%s%s", term,
                    set("NO_COLOR") ? ", without colour (NO_COLOR)" : "");
}
