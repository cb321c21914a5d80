/* See environment.h. brim executes no program for this, and reads everything from files of the system. */
#include "train/environment.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/file.h"
#include "base/host.h"
#include "base/log.h"
#include "base/text.h"
#include "store/jsonl.h"

#define TEXT_MAX 4096     /* limit for a file that is read for one line */
#define COMMAND_MAX 65536 /* limit for a command line */
#define LIBRARIES_MAX 32
#define PARENTS_MAX 64 /* limit for folders in which a repository is searched */

#ifdef __clang__
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

/* Sets a text unless it is empty; replaces bytes that are not UTF-8. */
static void set_text(json_t *o, const char *key, const char *value)
{
  brim_text shown = {0};
  brim_text_add_shown(&shown, value, "");
  if (shown.length > 0) json_object_set_new(o, key, json_string(brim_text_str(&shown)));
  brim_text_release(&shown);
}

/* Sets the rest of the first line that begins with `label`, without quotation marks and separators. */
static void set_line(json_t *o, const char *key, const char *path, const char *label)
{
  char text[TEXT_MAX];
  if (brim_file_start(path, text, sizeof text) == 0) return;
  char *at = strstr(text, label);
  if (!at) return;
  at += strlen(label);
  at += strspn(at, "\t :=\"");
  at[strcspn(at, "\"\n")] = '\0';
  set_text(o, key, at);
}

/* ---- the command ---- */

static json_t *command_words(void)
{
  json_t *words = json_array();
  char *all = calloc(1, COMMAND_MAX);
  const size_t length = all ? brim_file_start("/proc/self/cmdline", all, COMMAND_MAX) : 0;
  for (size_t at = 0; at < length; at += strlen(all + at) + 1) {
    brim_text shown = {0};
    brim_text_add_shown(&shown, all + at, "");
    json_array_append_new(words, json_string(brim_text_str(&shown)));
    brim_text_release(&shown);
  }
  free(all);
  return words;
}

/* Returns the environment variables that change how a run behaves. */
static json_t *variables(void)
{
  static const char *const names[] = {"CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "OMP_PROC_BIND", "ONEDNN_MAX_CPU_ISA",
                                      "BRIM_FAULT",           "BRIM_CLAIMS_DIR", "LD_PRELOAD",    "SLURM_JOB_ID",
                                      "NCCL_DEBUG",           "BRIM_PLUGIN_PATH"};
  json_t *o = json_object();
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (getenv(names[i])) set_text(o, names[i], getenv(names[i]));
  return o;
}

/* ---- the working folder's commit ---- */

static void cut_line(char *text)
{
  text[strcspn(text, "\r\n")] = '\0';
}

/* Finds the commit of a packed reference, in a line "<commit> <name>". */
static bool find_packed(const char *git, const char *reference, char *out, size_t room)
{
  char path[BRIM_PATH_MAX], line[TEXT_MAX];
  if (brim_path_join(path, git, "packed-refs") != BRIM_OK) return false;
  FILE *file = brim_fopen_to_read(path);
  bool found = false;
  while (file && !found && fgets(line, sizeof line, file)) {
    cut_line(line);
    char *name = strchr(line, ' ');
    if (!name || strcmp(name + 1, reference) != 0) continue;
    *name = '\0';
    snprintf(out, room, "%s", line);
    found = true;
  }
  if (file) fclose(file);
  return found;
}

static void set_commit(json_t *o, const char *git)
{
  char path[BRIM_PATH_MAX], head[TEXT_MAX], commit[TEXT_MAX];
  static const char link[] = "ref: ";
  if (brim_path_join(path, git, "HEAD") != BRIM_OK || brim_file_start(path, head, sizeof head) == 0) return;
  cut_line(head);
  if (!brim_starts_with(head, link)) {
    set_text(o, "commit", head);
    return;
  }
  const char *reference = head + strlen(link);
  set_text(o, "branch", brim_starts_with(reference, "refs/heads/") ? reference + strlen("refs/heads/") : reference);
  if (brim_path_join(path, git, reference) == BRIM_OK && brim_file_start(path, commit, sizeof commit) > 0)
    cut_line(commit);
  else if (!find_packed(git, reference, commit, sizeof commit))
    return;
  set_text(o, "commit", commit);
}

/* Searches for a repository in the working folder and above it. Does not read a linked work tree, whose .git is a
 * file. */
static void set_repository(json_t *o)
{
  char folder[BRIM_PATH_MAX], git[BRIM_PATH_MAX];
  if (!getcwd(folder, sizeof folder)) return;
  set_text(o, "folder", folder);
  for (int i = 0; i < PARENTS_MAX && folder[0]; i++) {
    if (brim_path_join(git, folder, ".git") != BRIM_OK) return;
    if (brim_is_folder(git)) {
      set_commit(o, git);
      return;
    }
    *strrchr(folder, '/') = '\0';
  }
}

/* ---- libraries ---- */

/* Splits the file name of a library of interest: "libdnnl.so.2.6" gives "dnnl" and "2.6". */
static bool split_library(const char *file, char *name, size_t room, const char **version)
{
  static const char *const known[] = {"dnnl", "cublas",  "cublasLt", "cudnn", "cudart", "cuda", "nccl",
                                      "mpi",  "jansson", "yaml",     "z",     "gomp",   "c",    "nvidia-ml"};
  const char *end = strstr(file, ".so");
  if (!brim_starts_with(file, "lib") || !end) return false;
  snprintf(name, room, "%.*s", (int)(end - file - 3), file + 3);
  *version = end[3] == '.' ? end + 4 : "";
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    if (strcmp(name, known[i]) == 0) return true;
  return false;
}

/* Lists the libraries that this process has mapped, with the versions in their files' names. */
static json_t *libraries(void)
{
  json_t *o = json_object();
  char line[BRIM_PATH_MAX + 128], name[64];
  FILE *file = brim_fopen_to_read("/proc/self/maps");
  while (file && fgets(line, sizeof line, file) && json_object_size(o) < LIBRARIES_MAX) {
    const char *slash = strrchr(line, '/'), *version;
    cut_line(line);
    if (slash && split_library(slash + 1, name, sizeof name, &version) && version[0]) set_text(o, name, version);
  }
  if (file) fclose(file);
  return o;
}

/* ---- the line ---- */

static void describe_host(json_t *o)
{
  struct utsname system;
  if (uname(&system) == 0) {
    set_text(o, "host", system.nodename);
    set_text(o, "kernel", system.release);
  }
  if (!json_object_get(o, "host")) set_text(o, "host", "unknown");
  set_line(o, "system", "/etc/os-release", "PRETTY_NAME");
  set_line(o, "processor", "/proc/cpuinfo", "model name");
  json_object_set_new(o, "processors", json_integer(sysconf(_SC_NPROCESSORS_ONLN)));
  json_object_set_new(o, "memory_bytes",
                      json_integer((json_int_t)brim_host_use_read("/proc", "/sys/fs/cgroup").ram_total_bytes));
  set_line(o, "driver", "/proc/driver/nvidia/version", "Kernel Module");
}

static brim_status append(const char *dir, const json_t *line)
{
  char path[BRIM_PATH_MAX];
  brim_jsonl log;
  char *text = json_dumps(line, JSON_COMPACT | JSON_SORT_KEYS);
  if (!text) return brim_fail(BRIM_EINTERNAL, "cannot describe the environment");
  brim_text whole = {0};
  brim_text_printf(&whole, "%s\n", text);
  brim_status status = brim_path_join(path, dir, BRIM_ENVIRONMENT_NAME);
  if (status == BRIM_OK) status = brim_jsonl_open(&log, path, BRIM_JSONL_ALL);
  if (status == BRIM_OK) {
    status = brim_jsonl_append(&log, brim_text_str(&whole), whole.length);
    brim_jsonl_close(&log);
  }
  brim_text_release(&whole);
  free(text);
  return status;
}

void brim_environment_write(const char *dir, const brim_drive *drive, const brim_plan *plan, int64_t step)
{
  json_t *o = json_object();
  json_object_set_new(o, "time", json_real(brim_wall_now()));
  json_object_set_new(o, "step", json_integer(step));
  json_object_set_new(o, "pid", json_integer(getpid()));
  describe_host(o);
  set_text(o, "version", BRIM_VERSION);
  set_text(o, "compiler", COMPILER);
  json_object_set_new(o, "command", command_words());
  json_object_set_new(o, "variables", variables());
  set_repository(o);
  json_object_set_new(o, "libraries", libraries());
  char device[80];
  snprintf(device, sizeof device, "%s:%d", brim_setup_backend_id(drive->setup), drive->planner.device);
  set_text(o, "device", device);
  set_text(o, "device_name", drive->planner.device_info.name);
  json_object_set_new(o, "ranks", json_integer(drive->setup->world.ranks > 0 ? drive->setup->world.ranks : 1));
  json_object_set_new(o, "steps", json_integer(drive->order.steps));
  json_object_set_new(o, "micro_batch", json_integer(drive->choice.micro_batch));
  json_object_set_new(o, "planned_peak_bytes", json_integer((json_int_t)plan->peak_bytes));
  if (append(dir, o) != BRIM_OK) brim_log(BRIM_LOG_WARN, "%s", brim_error_text());
  json_decref(o);
}
