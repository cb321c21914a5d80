/* The configuration in a run's folder: makes it readable from any working directory, and detects edits when the run is
 * resumed. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "config/config.h"
#include "config/schema.h"
#include "param/problems.h"
#include "param/value.h"

static void build_schema(const brim_config *config, brim_arena *arena, brim_schema *schema)
{
  const brim_schema_plugins plugins = brim_schema_plugins_of(config);
  brim_schema_build(schema, arena, &plugins);
}

brim_status brim_config_anchor_paths(brim_config *config)
{
  char here[4096];
  brim_arena arena = {0};
  brim_schema schema = {0};
  if (!getcwd(here, sizeof here)) return brim_fail(BRIM_EIO, "cannot get the working directory: %s", strerror(errno));
  build_schema(config, &arena, &schema);
  for (size_t i = 0; i < schema.count; i++) {
    const brim_schema_row *row = &schema.row[i];
    brim_yaml *node = brim_yaml_get_path(config->root, row->path);
    if (!brim_schema_holds_path(row, node)) continue;
    if (node->scalar[0] == '\0' || node->scalar[0] == '/' || strcmp(row->path, "run.dir") == 0) continue;
    node->scalar = brim_arena_printf(&config->arena, "%s/%s", strcmp(here, "/") == 0 ? "" : here, node->scalar);
  }
  brim_arena_release(&arena);
  return BRIM_OK;
}

/* ---- edits ---- */

static void report_edit(brim_problems *problems, const char *path, const brim_yaml *was, const brim_yaml *now)
{
  brim_text before = {0}, after = {0};
  brim_yaml_print(was, &before, false);
  brim_yaml_print(now, &after, false);
  brim_problem_at(problems, &now->origin, "'%s' was edited: the run began with %.*s, now it is %.*s", path,
                  (int)strcspn(brim_text_str(&before), "\n"), brim_text_str(&before),
                  (int)strcspn(brim_text_str(&after), "\n"), brim_text_str(&after));
  brim_text_release(&before);
  brim_text_release(&after);
}

/* Compares lists of names; NULL counts as an empty list. */
static bool same_list(const brim_yaml *a, const brim_yaml *b)
{
  const size_t count = a ? a->count : 0;
  if (count != (b ? b->count : 0)) return false;
  for (size_t i = 0; i < count; i++)
    if (strcmp(a->item[i]->scalar, b->item[i]->scalar) != 0) return false;
  return true;
}

/* Skips keys of a plugin that was replaced, because the replacement itself is reported, and policies, which do not
 * change results. */
static bool compare_choices(const brim_config *was, const brim_config *now, brim_problems *problems)
{
  const size_t before = problems->count;
  for (size_t i = 0; i < now->choice_count; i++) {
    const brim_config_choice *b = &now->choice[i], *a = brim_config_find_choice(was, b->group);
    if (b->plugin->kind == BRIM_POLICY) break;
    if (!a || strcmp(a->plugin->id, b->plugin->id) == 0) continue;
    const char *path = brim_arena_printf(problems->arena, "%s.id", b->group);
    report_edit(problems, path, brim_yaml_get_path(was->root, path), brim_yaml_get_path(now->root, path));
  }
  const brim_yaml *a = brim_yaml_get_path(was->root, "augmentation.id");
  const brim_yaml *b = brim_yaml_get_path(now->root, "augmentation.id");
  if (!same_list(a, b)) report_edit(problems, "augmentation.id", a, b);
  return problems->count == before;
}

static void compare_values(const brim_config *was, const brim_config *now, brim_problems *problems)
{
  const bool same_batch = was->settings.training.effective_batch_size == now->settings.training.effective_batch_size;
  brim_schema schema = {0};
  build_schema(now, problems->arena, &schema);
  for (size_t i = 0; i < schema.count; i++) {
    const brim_schema_row *row = &schema.row[i];
    const brim_yaml *a = brim_yaml_get_path(was->root, row->path), *b = brim_yaml_get_path(now->root, row->path);
    if (!a || !b || row->edit == BRIM_EDIT_FREE || (same_batch && row->edit == BRIM_EDIT_CUT)) continue;
    if (row->plugin && row->plugin->kind == BRIM_POLICY) continue;
    if (!brim_value_same(row->row, a, b, problems->arena)) report_edit(problems, row->path, a, b);
  }
}

brim_status brim_config_check_edits(const brim_config *was, const brim_config *now, const char *run)
{
  brim_arena arena = {0};
  brim_problems problems = {.arena = &arena};
  if (compare_choices(was, now, &problems)) compare_values(was, now, &problems);
  if (problems.count > 0)
    brim_problem_hint(&problems,
                      "to resume, restore the old value; to train with the new one, start a new run: "
                      "brim train --from %s",
                      BRIM_QUOTED(run));
  const brim_status status = brim_problems_status(&problems);
  brim_arena_release(&arena);
  return status;
}
