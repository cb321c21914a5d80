/* brim federate --list-runs: lists the federations below a folder, one per line. */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "cli/run_folder.h"
#include "report/runs.h"

static bool is_of_runs(const char *dir)
{
  static const char *const marks[] = {"config.yaml", "sweep.json"};
  char path[BRIM_PATH_MAX];
  bool is = false;
  for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
    is = is || (brim_path_join(path, dir, marks[i]) == BRIM_OK && access(path, R_OK) == 0);
  return is;
}

/* A run that cannot be read causes a warning; the others are still listed. */
static void add_folder(brim_comparison *c, const char *dir)
{
  if (is_of_runs(dir) && brim_compare_add(c, dir) != BRIM_OK) brim_log(BRIM_LOG_WARN, "%s", brim_error_text());
}

static void add_row(brim_comparison *c, brim_table *table, const brim_compared *run)
{
  const brim_series *judged = brim_compare_judged_series(&run->metrics);
  const char *rounds = brim_compare_value(c, run, "rounds");
  brim_table_add(table, run->dir);
  brim_table_add(table, brim_compare_value(c, run, "method.id"));
  brim_table_add(table, brim_compare_value(c, run, "seed"));
  brim_table_add(table, brim_arena_printf(&c->arena, "%.0f of %s", fmax(0, run->summary.steps), rounds));
  brim_table_number(table, 100 * brim_series_last(judged, "accuracy"), 2);
  brim_table_add(table, run->summary.status);
}

static void print(brim_comparison *c, const char *folder)
{
  static const char *const head[] = {"run", "method", "seed", "rounds", "accuracy, %", "status"};
  brim_table table = {.arena = &c->arena, .columns = sizeof head / sizeof head[0]};
  brim_text out = {0};
  for (size_t i = 0; i < table.columns; i++) brim_table_add(&table, head[i]);
  for (size_t i = 0; i < c->count; i++)
    if (brim_compare_is_federated(&c->run[i])) add_row(c, &table, &c->run[i]);
  if (table.count > table.columns)
    brim_table_print(&table, &out);
  else
    brim_text_printf(&out, "no federation in %s\n", folder);
  brim_cli_print(brim_text_str(&out));
  brim_text_release(&out);
}

brim_status brim_cli_list_runs(const char *folder)
{
  brim_comparison c = {0};
  const char **name;
  size_t count;
  if (!brim_folder_names(&c.arena, folder, &name, &count)) {
    const brim_status status = brim_fail(BRIM_ELOAD, "'%s' cannot be listed: %s", folder, strerror(errno));
    brim_compare_release(&c);
    return status;
  }
  if (is_of_runs(folder)) count = 0; /* a sweep lists its own runs */
  add_folder(&c, folder);
  for (size_t i = 0; i < count; i++) add_folder(&c, brim_arena_printf(&c.arena, "%s/%s", folder, name[i]));
  print(&c, folder);
  brim_compare_release(&c);
  return BRIM_OK;
}
