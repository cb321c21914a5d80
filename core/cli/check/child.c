/* The child of `brim check`: loads the file, and checks its plugins. See check.h. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/crash.h"
#include "base/guard.h"
#include "base/log.h"
#include "builtin/builtin.h"
#include "cli/check/check.h"
#include "plugin/loader.h"

#define CPU_SECONDS 60                  /* for one check */
#define MEMORY_BYTES ((rlim_t)16 << 30) /* limit for the child's address space */
#define FILE_BYTES ((rlim_t)64 << 20)

/* ---- limits ---- */

/* Sets a limit; ignores a failure. */
static void set_limit(int resource, rlim_t value)
{
  struct rlimit now;
  if (getrlimit(resource, &now) != 0) return;
  if (now.rlim_max != RLIM_INFINITY && value > now.rlim_max) value = now.rlim_max;
  setrlimit(resource, &(struct rlimit){value, now.rlim_max});
}

/* Sets the limits, but none for the address space under AddressSanitizer and ThreadSanitizer, which reserve terabytes
 * of it. */
static void set_limits(void)
{
  set_limit(RLIMIT_CORE, 0);
  set_limit(RLIMIT_FSIZE, FILE_BYTES);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  set_limit(RLIMIT_AS, MEMORY_BYTES);
#endif
}

/* Limits the time of the next check, without the time that earlier ones used. */
static void limit_time(void)
{
  struct rusage used;
  if (getrusage(RUSAGE_SELF, &used) != 0) return;
  set_limit(RLIMIT_CPU, (rlim_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + 1 + CPU_SECONDS);
}

/* ---- reporting ---- */

static void send_line(int fd, const char *what, const char *text)
{
  brim_text line = {0};
  brim_text_printf(&line, "%s\t%s", what, text);
  for (char *s = line.s; *s; s++)
    if (*s == '\n') *s = BRIM_CHECK_BREAK;
  brim_text_add(&line, "\n");
  for (size_t done = 0; done < line.length;) {
    const ssize_t n = write(fd, line.s + done, line.length - done);
    if (n <= 0) _exit(1); /* the parent no longer reads */
    done += (size_t)n;
  }
  brim_text_release(&line);
}

static void send_begin(int fd, long number, const brim_plugin *plugin, const char *check, long next)
{
  char text[256];
  limit_time();
  snprintf(text, sizeof text, "%ld\t%s%s%s\t%s\t%ld", number, plugin ? brim_kind_name(plugin->kind) : "",
           plugin ? "/" : "", plugin ? plugin->id : "", check, next);
  send_line(fd, "begin", text);
}

/* ---- the file ---- */

typedef struct problems {
  brim_text text;
  int count;
} problems;

static void add_problem(void *context, const char *problem)
{
  problems *p = context;
  brim_text_printf(&p->text, "%s%s", p->count++ ? "\n" : "", problem);
}

/* Searches `file` before the folders of --plugin-path, so that its plugins take precedence over others of the same
 * name. The folders provide the plugins that the checked ones need. */
static brim_status open_registry(brim_cli *cli, const char *file)
{
  const char *path[BRIM_CLI_PATHS_MAX + 1] = {file};
  for (size_t i = 0; i < cli->plugin_paths.count; i++) path[i + 1] = cli->plugin_paths.path[i];
  return brim_registry_open(brim_core_plugins, path, cli->plugin_paths.count + 1, &cli->registry);
}

/* Loads the file and reports all errors in its tables. */
static enum brim_finding load(brim_check *c, const char *file, const brim_module **module)
{
  problems p = {.count = 0};
  size_t count = 0;
  brim_registry_free(c->cli->registry);
  c->cli->registry = NULL;
  if (brim_loader_enter(file, module) != BRIM_OK) return brim_check_say(c, BRIM_FOUND_FAILED, "%s", brim_error_text());
  (void)brim_loader_check_all(*module, add_problem, &p);
  if (p.count > 0) {
    brim_check_say(c, BRIM_FOUND_FAILED, "%s", brim_text_str(&p.text));
    brim_text_release(&p.text);
    return BRIM_FOUND_FAILED;
  }
  if (open_registry(c->cli, file) != BRIM_OK) return brim_check_say(c, BRIM_FOUND_FAILED, "%s", brim_error_text());
  while ((*module)->plugins[count]) count++;
  return brim_check_say(c, BRIM_FOUND_OK, "%s %s, abi %d.%d: %zu plugin%s", (*module)->name, (*module)->version,
                        (*module)->abi_major, (*module)->abi_minor, count, brim_plural((int64_t)count));
}

static const brim_check_kind *checks_of(const brim_plugin *plugin)
{
  /* Backends and communicators need devices and networks, so only their tables are checked. */
  static const brim_check_kind none[] = {{NULL}};
  static const brim_check_kind *const checks[] = {
      [BRIM_POLICY] = brim_policy_checks,         [BRIM_MODEL] = brim_model_checks,
      [BRIM_DATASET] = brim_dataset_checks,       [BRIM_SELECTOR] = brim_selector_checks,
      [BRIM_AGGREGATOR] = brim_aggregator_checks, [BRIM_OPTIMIZER] = brim_optimizer_checks,
      [BRIM_SCHEDULE] = brim_schedule_checks,     [BRIM_LOSS] = brim_loss_checks,
      [BRIM_AUGMENT] = brim_augment_checks};
  return plugin->kind < sizeof checks / sizeof checks[0] && checks[plugin->kind] ? checks[plugin->kind] : none;
}

/* Runs one check. After a failure or an abandoned thread this process may be corrupted, so another child continues. */
static enum brim_finding run_check(brim_check *c, const brim_check_kind *kind, int fd, long number, long next)
{
  send_begin(fd, number, c->plugin, kind->name, next);
  brim_text_clear(&c->text);
  const enum brim_finding finding = c->failed && kind->needs_sound
                                        ? brim_check_say(c, BRIM_FOUND_WARNING, "not tried: an earlier check failed")
                                    : kind->run ? kind->run(c)
                                                : brim_check_parameters(c, kind);
  send_line(fd, brim_finding_names[finding].sent, brim_text_str(&c->text));
  if (finding == BRIM_FOUND_FAILED || brim_guard_any_lost()) _exit(0);
  return finding;
}

static void run_checks(brim_check *c, const brim_module *module, int fd, long first, bool failed)
{
  long number = 1;
  for (size_t i = 0; module->plugins[i]; i++) {
    c->plugin = module->plugins[i];
    const brim_check_kind *kind = checks_of(c->plugin);
    long count = 0;
    while (kind[count].name) count++;
    c->failed = failed && first > number && first < number + count;
    for (long k = first > number ? first - number : 0; k < count; k++)
      if (run_check(c, &kind[k], fd, number + k, k == 0 ? number + count : number + k + 1) >= BRIM_FOUND_UNTRIED) break;
    number += count;
  }
}

_Noreturn void brim_check_child(brim_cli *cli, const char *file, int fd, long first, bool failed,
                                const char *const *word, size_t words)
{
  const brim_module *module = NULL;
  brim_check c = {.cli = cli, .word = word, .words = words};
  set_limits();
  brim_crash_allow_exit(); /* lets exit() end this process without a report: the parent detects a plugin that calls it
                            */
  brim_log_set_level(BRIM_LOG_ERROR);
  send_begin(fd, 0, NULL, "table", 1);
  const enum brim_finding finding = load(&c, file, &module);
  send_line(fd, brim_finding_names[finding].sent, brim_text_str(&c.text));
  if (finding != BRIM_FOUND_FAILED) run_checks(&c, module, fd, first, failed);
  send_line(fd, "end", "");
  _exit(0);
}
