/* brim compare: compares runs, as a table or as JSON, and draws their curves as SVG. */
#include <math.h>
#include <stdio.h>

#include "base/log.h"
#include "cli/cli.h"
#include "report/methods.h"
#include "report/svg.h"
#include "store/rundir.h"

#define CURVES_A_RUN 2 /* curves of a run: of training, and of the data of its score */

/* ---- tables ---- */

static void print_tables(brim_comparison *c, const brim_method *method, size_t count)
{
  brim_text out = {0};
  const brim_table figures = brim_compare_figures(c), keys = brim_compare_keys(c);
  brim_table_print(&figures, &out);
  if (keys.count > 0) brim_text_add(&out, "\n");
  brim_table_print(&keys, &out);
  if (c->count > 1) {
    const brim_table methods = brim_methods_table(c, method, count);
    if (count > 0) brim_text_add(&out, "\n");
    brim_table_print(&methods, &out);
    if (count > 1) brim_text_printf(&out, "%s\n", brim_method_score_words);
  }
  brim_cli_print(brim_text_str(&out));
  brim_text_release(&out);
}

/* ---- JSON ---- */

static void set_number(json_t *out, const char *key, double value)
{
  json_object_set_new(out, key, brim_json_figure(value));
}

static json_t *describe(brim_comparison *c, const brim_compared *run)
{
  const brim_summary *s = &run->summary;
  const enum brim_score kind = brim_summary_score(s);
  json_t *out = json_object(), *config = json_object();
  for (size_t i = 0; i < c->key_count; i++)
    json_object_set_new(config, c->key[i], json_string(brim_compare_value(c, run, c->key[i])));
  json_object_set_new(out, "run", json_string(run->dir));
  json_object_set_new(out, "name", json_string(run->name));
  json_object_set_new(out, "status", json_string(s->status));
  json_object_set_new(out, "model", json_string(brim_compare_value(c, run, "model.id")));
  json_object_set_new(out, "dataset", json_string(brim_compare_dataset(c, run)));
  json_object_set_new(out, "steps", isfinite(s->steps) ? json_integer((json_int_t)s->steps) : json_null());
  for (enum brim_part part = 0; part < BRIM_PART_COUNT; part++) {
    brim_summary_set(out, part, "loss", s->loss[part]);
    brim_summary_set(out, part, "accuracy", s->score[BRIM_SCORE_ACCURACY][part]);
  }
  for (enum brim_part part = 0; part < BRIM_PART_COUNT; part++)
    brim_summary_set(out, part, brim_score_keys[kind], s->score[kind][part]);
  set_number(out, "samples_per_second", s->samples_per_second);
  set_number(out, "device_peak_bytes", s->device_peak_bytes);
  set_number(out, "rss_peak_bytes", s->rss_peak_bytes);
  set_number(out, "epoch_seconds", brim_epochs_mean_seconds(&run->metrics));
  set_number(out, "wall_seconds", s->wall_seconds);
  json_object_set_new(out, "differing", config);
  return out;
}

static json_t *describe_method(const brim_method *m)
{
  char key[64];
  json_t *out = json_pack("{s:s, s:I}", "method", m->name, "seeds", (json_int_t)m->runs);
  for (int k = 0; k < BRIM_METHOD_FIGURES; k++) {
    set_number(out, brim_method_key(k), m->of[k].mean);
    snprintf(key, sizeof key, "%s_deviation", brim_method_key(k));
    if (k != BRIM_METHOD_SCORE) set_number(out, key, isfinite(m->of[k].mean) ? m->of[k].deviation : NAN);
  }
  return out;
}

static brim_status print_json(brim_comparison *c, const brim_method *method, size_t count)
{
  json_t *runs = json_array(), *methods = json_array();
  for (size_t i = 0; i < c->count; i++) json_array_append_new(runs, describe(c, &c->run[i]));
  for (size_t i = 0; i < count; i++) json_array_append_new(methods, describe_method(&method[i]));
  json_t *root = json_pack("{s:o}", "runs", runs);
  if (count > 0)
    json_object_set_new(root, "methods", methods);
  else
    json_decref(methods);
  return brim_cli_print_json(root);
}

/* ---- curves ---- */

static void set_curves(brim_curve *curve, size_t name, const brim_compared *run, const char *figure)
{
  const enum brim_part split[CURVES_A_RUN] = {BRIM_PART_TRAIN, brim_compare_judged(&run->metrics)};
  for (int i = 0; i < CURVES_A_RUN; i++) {
    const brim_series *series = &run->metrics.split[split[i]];
    const double *value = brim_series_values(series, figure);
    curve[i] =
        (brim_curve){.name = name, .faint = i == 0, .x = series->step, .y = value, .count = value ? series->count : 0};
  }
}

static brim_status check_curves(size_t count, const char *of)
{
  if (count <= BRIM_SVG_CURVES_MAX) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG, "curves of %zu %s cannot be distinguished; the maximum is %d", count, of,
                   BRIM_SVG_CURVES_MAX);
}

static brim_status write_picture(const brim_chart *chart, size_t charts, const char *const *legend, size_t count,
                                 const char *note, const char *path)
{
  brim_text text = {0};
  brim_svg_charts(chart, charts, legend, count, note, &text);
  const brim_status status = brim_file_write_atomic(path, brim_text_str(&text), text.length);
  brim_text_release(&text);
  return status;
}

static brim_status write_curves_of_runs(brim_comparison *c, const char *path)
{
  BRIM_TRY(check_curves(c->count, "runs"));
  const size_t curves = CURVES_A_RUN * c->count;
  brim_curve *loss = BRIM_ARENA_NEW(&c->arena, brim_curve, curves);
  static const char *const titles[BRIM_SCORE_COUNT] = {"Accuracy", "Perplexity", "Mean absolute error"};
  const enum brim_score kind = brim_compare_score(c);
  brim_curve *score = BRIM_ARENA_NEW(&c->arena, brim_curve, curves);
  const char **name = BRIM_ARENA_NEW(&c->arena, const char *, c->count);
  for (size_t i = 0; i < c->count; i++) {
    set_curves(loss + CURVES_A_RUN * i, i, &c->run[i], "loss");
    set_curves(score + CURVES_A_RUN * i, i, &c->run[i], brim_score_keys[kind]);
    name[i] = brim_compare_legend(c, &c->run[i]);
  }
  const brim_chart chart[] = {{"Loss", "step", loss, curves}, {titles[kind], "step", score, curves}};
  return write_picture(
      chart, sizeof chart / sizeof chart[0], name, c->count,
      "strong lines: validation data, or test data if there is no validation data; faint lines: training", path);
}

static bool are_federations(const brim_comparison *c)
{
  bool all = c->count > 1;
  for (size_t i = 0; i < c->count; i++) all = all && brim_compare_is_federated(&c->run[i]);
  return all;
}

/* For several federations, draws the curves of their methods, if these have accuracies. */
static brim_status write_curves(brim_comparison *c, const brim_method *method, size_t count, const char *path)
{
  brim_chart chart[2];
  const size_t charts = are_federations(c) ? brim_methods_charts(c, method, count, chart) : 0;
  if (charts == 0) return write_curves_of_runs(c, path);
  BRIM_TRY(check_curves(count, "methods"));
  const char **name = BRIM_ARENA_NEW(&c->arena, const char *, count);
  for (size_t i = 0; i < count; i++) name[i] = method[i].name;
  return write_picture(chart, charts, name, count, "bands: one standard deviation over the seeds", path);
}

/* ---- the command ---- */

static brim_status write_methods(const brim_method *method, size_t count, const char *path)
{
  brim_text text = {0};
  if (count == 0)
    return brim_fail(BRIM_ECONFIG,
                     "-o %s: a CSV file lists methods of federations, and none of the runs is a finished federation",
                     path);
  brim_methods_csv(method, count, &text);
  const brim_status status = brim_file_write_atomic(path, brim_text_str(&text), text.length);
  brim_text_release(&text);
  return status;
}

typedef struct wishes {
  const char *path; /* file for the curves or for the table of methods; NULL: none */
  bool json, force;
} wishes;

static brim_status compare(brim_comparison *c, const char *const *dir, size_t count, const wishes *wish)
{
  if (count == 0) return brim_fail(BRIM_ECONFIG, "no run to compare: write brim compare RUN...");
  for (size_t i = 0; i < count; i++) BRIM_TRY(brim_compare_add(c, dir[i]));
  if (c->count == 0) return brim_fail(BRIM_ELOAD, "'%s' has no run that started", dir[0]);
  brim_compare_finish(c);
  brim_method *method;
  const size_t methods = brim_methods_list(c, &method);
  if (wish->json)
    BRIM_TRY(print_json(c, method, methods));
  else
    print_tables(c, method, methods);
  if (!wish->path) return BRIM_OK;
  const bool csv = brim_ends_with(wish->path, ".csv");
  BRIM_TRY(csv ? write_methods(method, methods, wish->path) : write_curves(c, method, methods, wish->path));
  brim_log(BRIM_LOG_INFO, "%s in %s", csv ? "methods" : "curves", wish->path);
  return BRIM_OK;
}

static const brim_option options[] = {
    {"-o", BRIM_CLI_STRING(wishes, path), "FILE",
     "FILE.svg: curves of loss and accuracy (or the task's other metric), for several federations accuracy by method; "
     "FILE.csv: table of federations' methods"},
    {"--json", BRIM_CLI_FLAG(wishes, json), NULL, "print JSON"},
    {"--force", BRIM_CLI_FLAG(wishes, force), NULL, BRIM_CLI_FORCE_HELP},
    {NULL}};

static int run_command(brim_cli *cli, int argc, char **argv)
{
  (void)cli;
  wishes wish = {0};
  brim_comparison c = {0};
  brim_operands operands;
  brim_status status = brim_cli_parse(argc, argv, options, &wish, &operands);
  if (status == BRIM_OK && wish.path)
    status = brim_cli_check_output(wish.path, brim_ends_with(wish.path, ".csv") ? ".csv" : ".svg", "the picture is SVG",
                                   wish.force);
  if (status == BRIM_OK) status = compare(&c, operands.word, operands.count, &wish);
  brim_compare_release(&c);
  return brim_cli_end(status, &operands);
}

const brim_command brim_command_compare = {
    "compare", "compare runs: results, differing keys, curves", run_command,
    "usage: brim compare RUN... [-o FILE.svg | -o FILE.csv] [--force] [--json]\n"
    "\n"
    "  brim compare runs/a runs/b                     results, and the keys whose values differ\n"
    "  brim compare multirun/20250101-120000          the runs of a sweep\n"
    "  brim compare runs                              all runs below a folder\n"
    "  brim compare runs/a runs/b -o curves.svg       also curves of loss and accuracy over steps, as SVG;\n"
    "                                                 perplexity for tokens, mean absolute error for real numbers\n"
    "  brim compare multirun/methods -o methods.csv   a table of federations' methods, as CSV\n"
    "  brim compare multirun/methods -o methods.svg   accuracy of the methods by round and by simulated time\n",
    options};
