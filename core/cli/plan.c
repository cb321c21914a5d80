/* brim plan: the memory of a run, and of runs with other micro-batches or on other devices, before anything is
 * allocated. */
#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "cli/cli.h"
#include "cli/fits.h"
#include "graph/plan_json.h"
#include "train/footprint.h"
#include "train/placement.h"
#include "train/session.h"

#define TABLE_ROWS_MAX 24

typedef struct row {
  int64_t batch, accumulation;
  uint64_t peak_bytes, lower_bound_bytes;
  bool chosen;
} row;

/* Micro-batches worth showing: the powers of two up to four times the effective batch, and the chosen one. */
static brim_status make_table(const brim_session *s, const brim_plan *chosen, row *table, size_t *count)
{
  const int64_t effective = s->settings->training.effective_batch_size;
  bool have_chosen = false;
  for (int64_t batch = 1; batch <= 4 * effective && *count < TABLE_ROWS_MAX - 1; batch *= 2) {
    if (batch >= s->batch && !have_chosen) {
      table[(*count)++] = (row){s->batch, effective / s->batch, chosen->peak_bytes, chosen->lower_bound_bytes, true};
      have_chosen = true;
      if (batch == s->batch) continue;
    }
    if (!brim_session_allows(s, batch)) continue;
    brim_plan *plan = NULL;
    BRIM_TRY(brim_session_plan(s, batch, &plan));
    table[(*count)++] = (row){batch, (effective + batch - 1) / batch, plan->peak_bytes, plan->lower_bound_bytes, false};
    brim_plan_free(plan);
  }
  return BRIM_OK;
}

static brim_status print_json(const brim_session *s, const brim_plan *plan, const brim_footprint *host,
                              const row *table, size_t count, const brim_fits *fits)
{
  json_t *out = brim_plan_json(plan, s->batch), *rows = json_array();
  for (size_t i = 0; i < count; i++)
    json_array_append_new(rows, json_pack("{s:I, s:I, s:I, s:I, s:b}", "batch_size", (json_int_t)table[i].batch,
                                          "gradient_accumulation_steps", (json_int_t)table[i].accumulation,
                                          "peak_bytes", (json_int_t)table[i].peak_bytes, "lower_bound_bytes",
                                          (json_int_t)table[i].lower_bound_bytes, "chosen", table[i].chosen));
  json_object_set_new(out, "table", rows);
  json_object_set_new(out, "host", brim_footprint_json(host));
  json_object_set_new(out, "devices", brim_cli_fits_json(fits));
  return brim_cli_print_json(out);
}

static void print_recompute(const brim_plan *plan, int64_t batch)
{
  const brim_program *train = brim_plan_program(plan, BRIM_PROGRAM_TRAIN, batch);
  if (!train || plan->request.recompute == BRIM_RECOMPUTE_NONE) return;
  printf("recompute=%s: %zu operations again, %.1f %% more work in a step\n",
         brim_recompute_name(plan->request.recompute), train->graph->recomputed_count,
         100 * brim_recompute_share(train));
}

static void print_text(const brim_session *s, const brim_plan *plan, const row *table, size_t count)
{
  char a[32], b[32], values[64];
  snprintf(values, sizeof values, "   %" PRIu64 " values", brim_plan_parameters(plan));
  printf("%s on %s: %s, micro-batch %lld x %lld, %s\n", brim_config_choice_of(s->config, "model")->plugin->id,
         brim_config_choice_of(s->config, "dataset")->plugin->id,
         brim_config_choice_of(s->config, "optimizer")->plugin->id, (long long)s->batch,
         (long long)(s->settings->training.effective_batch_size / s->batch), s->device_info.name);
  printf("\npeak %s, exactly %llu bytes, in %s\n", brim_format_bytes(a, sizeof a, plan->peak_bytes),
         (unsigned long long)plan->peak_bytes, plan->peak_op);
  for (uint32_t r = 0; r < BRIM_ROLE_COUNT; r++)
    printf("  %-12s %12s%s\n", brim_role_name(r), brim_format_bytes(a, sizeof a, plan->class_bytes[r]),
           r == BRIM_ROLE_PARAMETER ? values : "");
  printf("  %-12s %12s   no placement can do with less\n", "lower bound",
         brim_format_bytes(a, sizeof a, plan->lower_bound_bytes));
  print_recompute(plan, s->batch);
  printf("\n  micro-batch  accumulation          peak   lower bound\n");
  const int64_t effective = s->settings->training.effective_batch_size;
  for (size_t i = 0; i < count; i++)
    printf("%c %11lld  %12lld  %12s  %12s%s\n", table[i].chosen ? '*' : ' ', (long long)table[i].batch,
           (long long)table[i].accumulation, brim_format_bytes(a, sizeof a, table[i].peak_bytes),
           brim_format_bytes(b, sizeof b, table[i].lower_bound_bytes),
           table[i].batch * table[i].accumulation == effective ? "" : "   another effective batch");
}

/* What fits on the devices here, and what the process takes of the host. */
static void print_places(const brim_fits *fits, const brim_footprint *host)
{
  brim_text text = {0};
  brim_cli_print_fits(fits, &text);
  brim_text_add(&text, "\n");
  brim_footprint_tell(host, &text);
  printf("\n%s\n", brim_text_str(&text));
  brim_text_release(&text);
}

/* Before other plans and backends take memory of the host, which the run will not have. The plan is gone again: where
 * devices differ, each is selected in its turn. */
static brim_status predict_host(brim_session *s, brim_footprint *host)
{
  brim_plan *plan = NULL;
  BRIM_TRY(brim_session_plan(s, s->batch, &plan));
  const brim_status status = brim_session_start(s);
  if (status == BRIM_OK) brim_footprint_predict(s, plan, host);
  brim_plan_free(plan);
  return status;
}

static brim_status show_plan(const brim_cli *cli, const brim_config *config, bool json)
{
  brim_session *s = NULL;
  brim_plan *plan = NULL;
  brim_footprint host = {0};
  brim_fits fits = {0};
  row table[TABLE_ROWS_MAX];
  size_t count = 0;
  BRIM_TRY(brim_session_open(config, &(brim_session_options){0}, &s));
  brim_status status = brim_placement_try(&s);
  if (status == BRIM_OK) status = predict_host(s, &host);
  if (status == BRIM_OK) status = brim_cli_find_fits(cli, s, true, &fits);
  if (status == BRIM_OK) status = brim_session_plan(s, s->batch, &plan);
  if (status == BRIM_OK) status = make_table(s, plan, table, &count);
  if (status == BRIM_OK && json) status = print_json(s, plan, &host, table, count, &fits);
  if (status == BRIM_OK && !json) print_text(s, plan, table, count);
  if (status == BRIM_OK && !json) print_places(&fits, &host);
  if (status == BRIM_OK) status = brim_session_check_budget(s, plan);
  brim_fits_release(&fits);
  brim_plan_free(plan);
  brim_session_close(s);
  return status;
}

int brim_command_plan(brim_cli *cli, int argc, char **argv)
{
  bool json = false;
  const brim_option option[] = {{"--json", BRIM_OPTION_FLAG, &json}};
  brim_operands operands;
  brim_config *config = NULL;
  brim_status status = brim_cli_parse(argc, argv, option, 1, &operands);
  if (status == BRIM_OK) status = brim_cli_config(cli, NULL, operands.word, operands.number, operands.count, &config);
  if (status == BRIM_OK) status = show_plan(cli, config, json);
  brim_config_free(config);
  return brim_cli_end(status, &operands);
}
