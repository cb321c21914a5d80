/* brim plan: shows the memory of a run, and of runs with other micro-batches or on other devices, before anything is
 * allocated. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/log.h"
#include "cli/plan_print.h"
#include "cli/ranks.h"
#include "drive/extract.h"
#include "drive/placement.h"
#include "drive/precision.h"
#include "graph/counts.h"
#include "graph/plan_json.h"
#include "launch/isolate.h"
#include "planner/footprint.h"
#include "planner/room.h"
#include "setup/setup_weights.h"
#include "store/rundir.h"

#define TABLE_ROWS_MAX 24

typedef struct row {
  int64_t batch, accumulation;
  uint64_t peak_bytes, lower_bound_bytes;
  bool chosen;
} row;

static row row_of(const brim_drive *d, const brim_plan *plan, int64_t batch, bool chosen)
{
  return (row){batch, brim_setup_micros(d->setup, batch), plan->peak_bytes, plan->lower_bound_bytes, chosen};
}

/* Lists the micro-batches to show: powers of two up to four times the effective batch, or with several ranks up to the
 * rank's share of it, and the chosen one. */
static size_t list_micro_batches(const brim_drive *d, int64_t list[TABLE_ROWS_MAX])
{
  const int64_t effective = d->setup->settings->training.effective_batch_size, chosen = d->choice.micro_batch;
  const int64_t most = d->setup->world.ranks > 1 ? brim_setup_share(d->setup) : 4 * effective;
  bool have_chosen = false;
  size_t count = 0;
  for (int64_t batch = 1; batch <= most && count < TABLE_ROWS_MAX - 1; batch *= 2) {
    if (batch >= chosen && !have_chosen) list[count++] = chosen;
    have_chosen = have_chosen || batch >= chosen;
    if (batch != chosen && brim_setup_allows(d->setup, batch)) list[count++] = batch;
  }
  if (!have_chosen) list[count++] = chosen;
  return count;
}

static brim_status make_table(const brim_drive *d, row *table, size_t *count)
{
  int64_t list[TABLE_ROWS_MAX];
  brim_choice choice[TABLE_ROWS_MAX + 1];
  *count = list_micro_batches(d, list);
  for (size_t i = 0; i < *count; i++) choice[i] = brim_choice_cut(&d->choice, list[i]);
  choice[*count] = d->choice; /* find_speed will ask for this plan */
  choice[*count].recompute = BRIM_RECOMPUTE_NONE;
  for (size_t i = 0; i < *count; i++) {
    brim_plan *plan = NULL;
    if (i % BRIM_PLANS_NEXT == 0) brim_planner_plan_next(&d->planner, &choice[i], *count + 1 - i);
    BRIM_TRY(brim_planner_plan(&d->planner, &choice[i], false, &plan));
    table[i] = row_of(d, plan, list[i], list[i] == d->choice.micro_batch);
    brim_plan_free(plan);
  }
  return BRIM_OK;
}

/* The predicted times of a plan: the step, the part of it spent on recompute, and the work before training. */
typedef struct step_speed {
  brim_figures figures;
  double extra;            /* relative to the step without recompute; 0: no recompute */
  uint64_t features_bytes; /* peak of the plan that computes features, placed before training; 0: there is none */
  brim_frontier frontier;
} step_speed;

static brim_status find_speed(brim_drive *d, bool precisions, step_speed *out)
{
  brim_choice v = d->choice;
  brim_figures none;
  BRIM_TRY(brim_extract_peak(d, &out->features_bytes));
  BRIM_TRY(brim_planner_figures(&d->planner, &v, &out->figures)); /* first, because not everything may be timed */
  v.recompute = BRIM_RECOMPUTE_NONE;
  if (out->figures.recomputed > 0) {
    BRIM_TRY(brim_planner_figures(&d->planner, &v, &none));
    out->extra = out->figures.step_seconds / none.step_seconds - 1;
  }
  brim_frontier_plan_next(&d->planner, &d->choice);
  return brim_frontier_find(&d->planner, &d->choice, precisions, &out->frontier);
}

static brim_status print_json(const brim_drive *d, const brim_plan *plan, const brim_footprint *host, const row *table,
                              size_t count, const brim_fits *fits, const step_speed *speed, const brim_ranks *ranks,
                              const brim_weights *weights, const brim_cards *cards, const brim_times *times,
                              const brim_traffic *traffic)
{
  json_t *out = brim_plan_json(plan, d->choice.micro_batch), *rows = json_array();
  for (size_t i = 0; i < count; i++)
    json_array_append_new(rows, json_pack("{s:I, s:I, s:I, s:I, s:b}", "batch_size", (json_int_t)table[i].batch,
                                          "gradient_accumulation_steps", (json_int_t)table[i].accumulation,
                                          "peak_bytes", (json_int_t)table[i].peak_bytes, "lower_bound_bytes",
                                          (json_int_t)table[i].lower_bound_bytes, "chosen", table[i].chosen));
  json_object_set_new(out, "table", rows);
  brim_precision_describe(d->setup, out);
  json_object_set_new(out, "step_seconds", json_real(speed->figures.step_seconds));
  json_object_set_new(out, "frontier", brim_cli_frontier_json(&speed->frontier, d->setup));
  json_object_set_new(out, "host", brim_footprint_json(host));
  json_object_set_new(out, "devices", brim_cli_fits_json(fits));
  if (ranks->count > 0) json_object_set_new(out, "ranks", brim_cli_ranks_json(ranks));
  brim_cli_add_taken(d, plan, out);
  if (d->setup->features)
    json_object_set_new(out, "features_peak_bytes", json_integer((json_int_t)speed->features_bytes));
  if (weights) json_object_set_new(out, "weights", brim_weights_json(weights, false));
  if (cards->count > 0) json_object_set_new(out, "cards", brim_cli_cards_json(cards));
  if (times->count > 0) json_object_set_new(out, "times", brim_cli_times_json(times));
  if (traffic->count > 0)
    json_object_set_new(out, "traffic", brim_cli_traffic_json(traffic, d->planner.device_info.name));
  return brim_cli_print_json(out);
}

static void print_recompute(const brim_plan *plan, int64_t batch, const step_speed *speed)
{
  const brim_program *train = brim_plan_program(plan, BRIM_PROGRAM_TRAIN, batch);
  if (!train || plan->request.recompute == BRIM_RECOMPUTE_NONE) return;
  brim_text text = {0};
  brim_recompute_print(train, plan->request.recompute, &text);
  if (train->graph->recomputed_count > 0)
    brim_text_printf(&text, ", predicted to take %.1f %% more time", 100 * (speed->extra > 0 ? speed->extra : 0));
  puts(brim_text_str(&text));
  brim_text_release(&text);
}

static void print_update(const brim_drive *d)
{
  if (!brim_setup_updates_in_backward(d->setup)) return;
  printf(
      "update=fused_backward: each parameter is updated in the backward pass, as soon as its gradient is computed\n");
}

/* Memory outside of the arena. */
static void print_host(const brim_plan *plan)
{
  char bytes[32];
  if (plan->host_bytes == 0) return;
  printf("  %-12s %12s   optimizer's state in host memory, exactly %llu bytes (memory.offload)\n", "host",
         brim_format_bytes(bytes, sizeof bytes, plan->host_bytes), (unsigned long long)plan->host_bytes);
}

/* Prints the memory for the features that a linear probe computes before training. */
static void print_features(uint64_t peak)
{
  char bytes[32];
  if (peak == 0) return;
  printf(
      "features: computed once, before training, unless they are kept from another run; peak %s, exactly %llu bytes, "
      "which are released before training\n",
      brim_format_bytes(bytes, sizeof bytes, peak), (unsigned long long)peak);
}

/* Formats "bf16, rank 0 of 4, ": a precision other than fp32, and the rank of several. */
static const char *format_variant(const brim_drive *d, char *out, size_t room)
{
  char precision[BRIM_CLI_PRECISION_BYTES];
  const int length = snprintf(out, room, "%s", brim_cli_format_precision(d->setup, precision));
  if (d->setup->world.ranks > 1)
    snprintf(out + length, room - (size_t)length, "rank %d of %d, ", (int)d->setup->world.rank,
             (int)d->setup->world.ranks);
  return out;
}

static void print_table(const brim_drive *d, const row *table, size_t count)
{
  char a[32], b[32];
  const int64_t effective = d->setup->settings->training.effective_batch_size;
  printf("\n  micro-batch  accumulation          peak   lower bound\n");
  for (size_t i = 0; i < count; i++) {
    const bool fits = d->setup->world.ranks > 1 || table[i].batch * table[i].accumulation == effective;
    printf("%c %11lld  %12lld  %12s  %12s%s\n", table[i].chosen ? '*' : ' ', (long long)table[i].batch,
           (long long)table[i].accumulation, brim_format_bytes(a, sizeof a, table[i].peak_bytes),
           brim_format_bytes(b, sizeof b, table[i].lower_bound_bytes), fits ? "" : "   another effective batch");
  }
}

/* Prints the dataset's summary, which may contain column names from the user's files. */
static void print_summary(const char *dataset, const char *summary)
{
  brim_text text = {0};
  brim_text_printf(&text, "%s: %s\n", dataset, summary);
  brim_cli_print(brim_text_str(&text));
  brim_text_release(&text);
}

static void print_text(const brim_drive *d, const brim_plan *plan, const row *table, size_t count,
                       const step_speed *speed)
{
  char a[32], values[96], cut[BRIM_CUT_ROOM], variant[64];
  const uint64_t all = brim_plan_parameters(plan), trained = brim_plan_trained(plan);
  const int length = snprintf(values, sizeof values, "   %" PRIu64 " values", all);
  if (trained < all)
    snprintf(values + length, sizeof values - (size_t)length, ", of which %" PRIu64 " trained", trained);
  printf("%s on %s: %s, %smicro-batch %s, %s\n", brim_config_choice_of(d->setup->config, "model")->plugin->id,
         brim_config_choice_of(d->setup->config, "dataset")->name,
         brim_config_choice_of(d->setup->config, "optimizer")->plugin->id, format_variant(d, variant, sizeof variant),
         brim_setup_format_cut(d->setup, d->choice.micro_batch, cut, sizeof cut), d->planner.device_info.name);
  if (d->setup->data.train.summary)
    print_summary(brim_config_choice_of(d->setup->config, "dataset")->name, d->setup->data.train.summary);
  printf("\npeak %s, exactly %llu bytes, in %s\n", brim_format_bytes(a, sizeof a, plan->peak_bytes),
         (unsigned long long)plan->peak_bytes, plan->peak_op);
  for (uint32_t r = 0; r < BRIM_ROLE_COUNT; r++)
    if (brim_plan_has_role(plan, r))
      printf("  %-12s %12s%s\n", brim_role_name(r), brim_format_bytes(a, sizeof a, plan->class_bytes[r]),
             r == BRIM_ROLE_PARAMETER ? values : "");
  printf("  %-12s %12s   no placement needs less\n", "lower bound",
         brim_format_bytes(a, sizeof a, plan->lower_bound_bytes));
  print_host(plan);
  print_features(speed->features_bytes);
  print_recompute(plan, d->choice.micro_batch, speed);
  brim_cli_print_slower(d, plan);
  print_update(d);
  print_table(d, table, count);
}

/* Prints the weights, of which only names and shapes were read. */
static void print_weights(const brim_drive *d, const brim_weights *weights)
{
  brim_text text = {0};
  if (!weights && d->setup->settings->model.weights[0])
    printf("\nweights: none in the folder yet, so their names and shapes are not checked\n");
  if (!weights) return;
  brim_text_add(&text, "\nweights: ");
  brim_weights_print(weights, &text);
  brim_text_add(&text, "; names and shapes match the model\n");
  brim_cli_print(brim_text_str(&text));
  brim_text_release(&text);
}

static void print_times(const brim_times *times)
{
  brim_text text = {0};
  brim_cli_print_times(times, &text);
  printf("\n%s", brim_text_str(&text));
  brim_text_release(&text);
}

static void print_traffic(const brim_drive *d, const brim_traffic *traffic)
{
  brim_text text = {0};
  brim_cli_print_traffic(traffic, d->planner.device_info.name, &text);
  printf("\n%s", brim_text_str(&text));
  brim_text_release(&text);
}

/* Prints the ranks, the devices here and the plans that fit on them, the frontier, and the process's host memory. */
static void print_places(const brim_drive *d, const brim_plan *plan, const brim_fits *fits,
                         const brim_frontier *frontier, const brim_cards *cards, const brim_footprint *host,
                         const brim_ranks *ranks)
{
  brim_text text = {0};
  brim_cli_print_ranks(ranks, &text);
  brim_cli_print_fits(fits, &text);
  brim_cli_print_taken(d, plan, &text);
  brim_text_add(&text, "\nplans that take less memory or less time, by the device profile:\n");
  brim_cli_print_frontier(frontier, d->setup, &text);
  brim_cli_print_cards(cards, d->setup, &text);
  brim_text_add(&text, "\n");
  brim_footprint_print(host, &text);
  printf("\n%s\n", brim_text_str(&text));
  brim_text_release(&text);
}

/* Called before other plans and backends take host memory that the run will not use. Releases the plan, because if
 * devices differ, each is selected in turn. */
static brim_status predict_host(brim_drive *d, brim_footprint *host)
{
  brim_plan *plan = NULL;
  BRIM_TRY(brim_planner_plan(&d->planner, &d->choice, false, &plan));
  const brim_status status = brim_drive_start(d);
  if (status == BRIM_OK) brim_footprint_predict(&d->planner, plan, d->choice.micro_batch, host);
  brim_plan_free(plan);
  return status;
}

/* The options of `brim plan`. */
typedef struct wishes {
  bool json, no_timing, times, traffic;
  bool force;
  const char *picture; /* file; NULL: none */
} wishes;

static brim_status write_picture(const brim_drive *d, const brim_plan *plan, const char *path)
{
  const brim_program *train = brim_plan_program(plan, BRIM_PROGRAM_TRAIN, d->choice.micro_batch);
  char title[512], cut[BRIM_CUT_ROOM], variant[64];
  snprintf(title, sizeof title, "%s on %s, %smicro-batch %s, %s",
           brim_config_choice_of(d->setup->config, "model")->plugin->id,
           brim_config_choice_of(d->setup->config, "dataset")->name, format_variant(d, variant, sizeof variant),
           brim_setup_format_cut(d->setup, d->choice.micro_batch, cut, sizeof cut), d->planner.device_info.name);
  return brim_cli_write_picture(d, plan, train ? train : &plan->program[plan->peak_program], title, path);
}

/* If clients have separate processes, uses the name and the device of a client's or the server's process. This process
 * still sees all GPUs. */
static brim_status act_as(const brim_config *config, brim_setup_options *options, int32_t rank)
{
  const int32_t job = options->world.ranks;
  if (!brim_isolate_is_wanted(config)) return BRIM_OK;
  brim_isolated *all = brim_xcalloc((size_t)job, sizeof *all);
  const brim_status status = brim_isolate_plan(config, job, all);
  all[rank].visible[0] = '\0';
  if (status == BRIM_OK) brim_isolate_set(&all[rank]);
  free(all);
  options->world.rank = options->world.local_rank = rank;
  return status;
}

/* Finds the peak of the server's process; 0 unless clients have separate processes. */
static brim_status find_server(const brim_cli *cli, const brim_config *config, brim_setup_options *options,
                               uint64_t *bytes)
{
  brim_drive *d = NULL;
  if (!brim_isolate_is_wanted(config)) return BRIM_OK;
  BRIM_TRY(act_as(config, options, 0));
  brim_cli_hush(cli, true);
  brim_status status = brim_drive_open(config, options, &d);
  if (status == BRIM_OK) status = brim_placement_try(&d);
  if (status == BRIM_OK) status = brim_planner_peak(&d->planner, &d->choice, bytes);
  brim_cli_hush(cli, false);
  if (status != BRIM_OK) brim_fail_add(status, "in the plan of the server");
  brim_drive_close(d);
  return status;
}

static brim_status show_plan(const brim_cli *cli, const brim_config *config, const wishes *wish)
{
  brim_drive *d = NULL;
  brim_plan *plan = NULL;
  brim_footprint host = {0};
  brim_fits fits = {0};
  brim_ranks ranks = {0};
  brim_setup_weights weights = {0};
  brim_times times = {0};
  brim_traffic traffic = {0};
  brim_cards cards = {0};
  row table[TABLE_ROWS_MAX];
  size_t count = 0;
  step_speed speed = {.extra = 0};
  const int32_t job = brim_cli_planned_ranks(&config->settings);
  brim_setup_options options = {.no_timing = wish->no_timing, .world = {0, job, 0, job}};
  uint64_t server_bytes = 0;
  BRIM_TRY(find_server(cli, config, &options, &server_bytes));
  BRIM_TRY(act_as(config, &options, 1));
  BRIM_TRY(brim_drive_open(config, &options, &d));
  brim_status status = brim_placement_try(&d);
  if (brim_setup_is_federated(d->setup) && (wish->times || wish->traffic))
    brim_log(BRIM_LOG_WARN, "%s does not support federations yet", wish->times ? "--times" : "--traffic");
  if (brim_setup_is_federated(d->setup)) {
    if (status == BRIM_OK) status = predict_host(d, &host);
    if (status == BRIM_OK) status = brim_cli_show_federation(d, &host, server_bytes, wish->json, wish->picture);
    brim_drive_close(d);
    return status;
  }
  if (status == BRIM_OK) status = predict_host(d, &host);
  if (status == BRIM_OK) status = brim_cli_find_fits(cli, d, true, &fits);
  if (status == BRIM_OK) status = brim_planner_plan(&d->planner, &d->choice, false, &plan);
  if (status == BRIM_OK && !brim_weights_files_are_missing(config->settings.model.weights))
    status = brim_setup_weights_open(d->setup, plan->program[0].graph, &weights);
  if (status == BRIM_OK) status = make_table(d, table, &count);
  if (status == BRIM_OK) status = find_speed(d, config->settings.precision == BRIM_PRECISION_POLICY, &speed);
  if (status == BRIM_OK) status = brim_cli_find_ranks(cli, d, plan, &ranks);
  if (status == BRIM_OK) status = brim_cards_find(&d->planner, &d->choice, plan, &cards);
  if (status == BRIM_OK && wish->times) status = brim_times_find(&d->planner, &d->choice, &times);
  if (status == BRIM_OK && wish->traffic) status = brim_traffic_find(&d->planner, &d->choice, &traffic);
  if (status == BRIM_OK && wish->json)
    status = print_json(d, plan, &host, table, count, &fits, &speed, &ranks, weights.weights, &cards, &times, &traffic);
  if (status == BRIM_OK && !wish->json) print_text(d, plan, table, count, &speed);
  if (status == BRIM_OK && !wish->json) print_weights(d, weights.weights);
  if (status == BRIM_OK && !wish->json) print_places(d, plan, &fits, &speed.frontier, &cards, &host, &ranks);
  if (status == BRIM_OK && wish->times && !wish->json) print_times(&times);
  if (status == BRIM_OK && wish->traffic && !wish->json) print_traffic(d, &traffic);
  if (status == BRIM_OK && wish->picture) status = write_picture(d, plan, wish->picture);
  if (status == BRIM_OK) status = brim_planner_check(&d->planner, &d->choice, plan);
  brim_times_release(&times);
  brim_traffic_release(&traffic);
  brim_setup_weights_close(&weights);
  brim_cli_ranks_release(&ranks);
  brim_fits_release(&fits);
  brim_plan_free(plan);
  brim_drive_close(d);
  return status;
}

static const brim_option options[] = {
    {"--json", BRIM_CLI_FLAG(wishes, json), NULL, "print JSON"},
    {"--no-timing", BRIM_CLI_FLAG(wishes, no_timing), NULL,
     "predict times from the device profile alone, without measuring kernels"},
    {"--times", BRIM_CLI_FLAG(wishes, times), NULL, "also show the predicted time of each operation in a step"},
    {"--traffic", BRIM_CLI_FLAG(wishes, traffic), NULL,
     "also show the bytes, arithmetic and launches of a step, and the shortest time that they can take"},
    {"-o", BRIM_CLI_STRING(wishes, picture), "FILE.svg", "write a picture of every buffer over time and address"},
    {"--force", BRIM_CLI_FLAG(wishes, force), NULL, BRIM_CLI_FORCE_HELP},
    {NULL}};

static int run_command(brim_cli *cli, int argc, char **argv)
{
  wishes wish = {0};
  brim_operands operands;
  brim_config *config = NULL;
  brim_status status = brim_cli_parse(argc, argv, options, &wish, &operands);
  if (status == BRIM_OK && wish.picture)
    status = brim_cli_check_output(wish.picture, ".svg", "the picture is SVG", wish.force);
  if (status == BRIM_OK) status = brim_cli_config(cli, NULL, operands.word, operands.number, operands.count, &config);
  if (status == BRIM_OK) status = show_plan(cli, config, &wish);
  brim_log(BRIM_LOG_DEBUG,
           "planning took %" PRIu64 " plans, %" PRIu64 " graphs, %" PRIu64 " placements, %" PRIu64 " searches",
           brim_count_of(BRIM_COUNTED_PLANS), brim_count_of(BRIM_COUNTED_GRAPHS), brim_count_of(BRIM_COUNTED_PLACED),
           brim_count_of(BRIM_COUNTED_SEARCHES));
  brim_config_free(config);
  return brim_cli_end(status, &operands);
}

const brim_command brim_command_plan = {
    "plan",
    "show the memory of a run before it starts",
    run_command,
    "usage: brim plan [group=option | key=value]... [-o FILE.svg] [--force] [--times]\n"
    "                 [--traffic] [--no-timing] [--json]\n"
    "\n"
    "  brim plan                                      plan the default configuration\n"
    "  brim plan model=mlp training.batch_size=512    another model and batch size\n"
    "  brim plan memory.limit_mb=64 --json            check whether it fits, as JSON\n"
    "  brim plan -o plan.svg                          also write a picture of every buffer\n"
    "  brim plan --times                              also the time of each operation in a step, beside the least\n"
    "                                                 time that its work could take on the device\n"
    "  brim plan --traffic backend=cuda backend.card=h100\n"
    "                                                 also the bytes, arithmetic and launches of a step by class of\n"
    "                                                 operation, and their least time on a GPU that is not here\n"
    "\n"
    "Computes the place of every tensor without allocating it. Prints the peak by class of memory, the operation at\n"
    "the peak, the memory of other micro-batches, and the largest micro-batch that fits on each device, now and if it\n"
    "were empty. * marks the choice of the run. Then it lists the plans with the best trade-offs between memory and\n"
    "predicted time of a step. Kernels that the device profile lacks are measured, which takes some seconds the first\n"
    "time; --no-timing uses only the profile.\n",
    options,
    true};
