/* `brim plan` for a federation: shows the server's memory, and a lane for each client that trains at the same time. */
#include <inttypes.h>
#include <stdio.h>

#include "cli/plan_print.h"
#include "drive/precision.h"
#include "graph/plan_json.h"
#include "planner/room.h"
#include "planner/rounds.h"
#include "planner/updates.h"
#include "store/summary.h"

#define LANES_SHOWN_MAX 16

typedef struct lanes_row {
  int32_t lanes;
  uint64_t peak_bytes;
  brim_round_figures time;
} lanes_row;

/* Lists one client at a time, two, four, ..., up to one for each client of a round or thread, and the chosen number. */
static brim_status list_lanes(brim_drive *d, lanes_row *row, size_t *count)
{
  const int64_t most = brim_setup_is_isolated(d->setup) ? 1 : brim_planner_lanes_useful(&d->planner);
  brim_choice c = d->choice;
  bool has_chosen = false;
  *count = 0;
  for (int64_t lanes = 1; *count < LANES_SHOWN_MAX - 1 && (lanes <= most || !has_chosen); lanes *= 2) {
    if (!has_chosen && lanes >= d->choice.lanes) {
      row[(*count)++].lanes = d->choice.lanes;
      has_chosen = true;
    }
    if (lanes != d->choice.lanes && lanes <= most) row[(*count)++].lanes = (int32_t)lanes;
  }
  for (size_t i = 0; i < *count; i++) {
    c.lanes = row[i].lanes;
    BRIM_TRY(brim_planner_peak(&d->planner, &c, &row[i].peak_bytes));
    BRIM_TRY(brim_planner_round_figures(&d->planner, &c, &row[i].time));
  }
  return BRIM_OK;
}

static void print_rows(const brim_drive *d, const lanes_row *row, size_t count)
{
  char bytes[32], client[32], round[32];
  bool used[BRIM_BASIS_GUESSED + 1] = {false};
  brim_text notes = {0};
  printf("\n  parallel_clients          peak      a client       a round of training\n");
  for (size_t i = 0; i < count; i++) {
    const brim_round_figures *t = &row[i].time;
    used[t->basis] = true;
    printf("%c %16d  %12s  %12s  %24s\n", row[i].lanes == d->choice.lanes ? '*' : ' ', (int)row[i].lanes,
           brim_format_bytes(bytes, sizeof bytes, row[i].peak_bytes),
           brim_cli_format_time(t->client_seconds, t->basis, client, sizeof client),
           brim_cli_format_time(t->round_seconds, t->basis, round, sizeof round));
  }
  brim_cli_print_basis_notes(used, &notes);
  printf("%s", brim_text_str(&notes));
  brim_text_release(&notes);
}

/* Returns the number of rounds: all, or as many as the privacy budget allows. */
static int64_t count_rounds(const brim_setup *setup)
{
  const brim_settings *s = setup->settings;
  int64_t from = 0, to = s->rounds; /* from: a number of rounds within the budget; to: the largest possible number */
  while (s->privacy.max_epsilon > 0 && from < to) {
    const int64_t middle = from + (to - from + 1) / 2;
    if (brim_setup_epsilon(setup, brim_privacy_releases(s, middle)) <= s->privacy.max_epsilon)
      from = middle;
    else
      to = middle - 1;
  }
  return to;
}

static double spent_epsilon(const brim_setup *setup)
{
  return brim_setup_epsilon(setup, brim_privacy_releases(setup->settings, count_rounds(setup)));
}

static void print_privacy(const brim_setup *setup)
{
  const brim_settings *s = setup->settings;
  const int64_t rounds = count_rounds(setup);
  if (!brim_privacy_has_noise(s)) return;
  printf("privacy of clients: epsilon %.4g at delta %g after %s%lld round%s", spent_epsilon(setup), s->privacy.delta,
         brim_privacy_is_local(s) && !s->privacy.takes_turns ? "a client's " : "", (long long)rounds,
         brim_plural(rounds));
  if (rounds < s->rounds) printf(", where privacy.max_epsilon=%g ends the run", s->privacy.max_epsilon);
  printf("\n");
}

/* The memory of other processes. */
static void print_processes(const brim_drive *d, uint64_t server_bytes)
{
  char bytes[32];
  if (brim_setup_is_isolated(d->setup))
    printf("in the process of each of %lld clients; the server's process needs %s, exactly %" PRIu64 " bytes\n",
           (long long)d->setup->settings->total_clients, brim_format_bytes(bytes, sizeof bytes, server_bytes),
           server_bytes);
  else if (d->setup->world.ranks > 1)
    printf("on each of %d ranks, which share a round's clients\n", (int)d->setup->world.ranks);
}

static void print_text(const brim_drive *d, const brim_plan *plan, uint64_t server_bytes, const lanes_row *row,
                       size_t count)
{
  char a[32], b[32];
  const brim_settings *s = d->setup->settings;
  const brim_partition *p = &d->setup->partition;
  const uint64_t kept = brim_setup_kept_bytes(d->setup);
  const brim_updates_plan updates = brim_updates_plan_of(d->setup, plan);
  char precision[BRIM_CLI_PRECISION_BYTES];
  printf("%s on %s: %lld clients with ", brim_config_choice_of(d->setup->config, "model")->plugin->id,
         brim_config_choice_of(d->setup->config, "dataset")->name, (long long)p->clients);
  if (p->least < p->most) printf("%lld to ", (long long)p->least);
  printf("%lld samples, %lld a round, batches of %lld; %s%s\n", (long long)p->most, (long long)s->clients_per_round,
         (long long)s->training.effective_batch_size, brim_cli_format_precision(d->setup, precision),
         d->planner.device_info.name);
  printf("\npeak %s, exactly %" PRIu64 " bytes, with %d client%s at a time, in %s\n",
         brim_format_bytes(a, sizeof a, plan->peak_bytes), plan->peak_bytes, (int)d->choice.lanes,
         brim_plural(d->choice.lanes), plan->peak_op);
  print_processes(d, server_bytes);
  for (uint32_t r = 0; r < BRIM_ROLE_COUNT; r++)
    if (brim_plan_has_role(plan, r))
      printf("  %-12s %12s\n", brim_role_name(r), brim_format_bytes(a, sizeof a, plan->class_bytes[r]));
  printf("  %-12s %12s   no placement needs less\n", "lower bound",
         brim_format_bytes(a, sizeof a, plan->lower_bound_bytes));
  printf(brim_setup_is_isolated(d->setup)
             ? "of a client's process, the global model and the sums of updates take %s, and training %s; more rounds "
               "take no more\n"
             : "the server takes %s of it, and each client that trains at the same time %s; more clients or rounds "
               "take no more\n",
         brim_format_bytes(a, sizeof a, plan->persistent_bytes), brim_format_bytes(b, sizeof b, plan->lane_bytes));
  if (kept > 0)
    printf("each client keeps %s from round to round, in " BRIM_STATES_NAME
           " of the run's folder: at most %s on disk\n",
           brim_format_bytes(a, sizeof a, kept), brim_format_bytes(b, sizeof b, brim_setup_states_bytes(d->setup)));
  if (updates.rows > 0)
    printf("the updates of a round take %s on the disk of the run's folder\n",
           brim_format_bytes(a, sizeof a, updates.file_bytes));
  brim_cli_print_slower(d, plan);
  print_privacy(d->setup);
  print_rows(d, row, count);
}

static brim_status print_json(const brim_drive *d, const brim_plan *plan, const brim_footprint *host,
                              uint64_t server_bytes, const lanes_row *row, size_t count)
{
  json_t *out = brim_plan_json(plan, d->choice.micro_batch), *rows = json_array();
  brim_precision_describe(d->setup, out);
  for (size_t i = 0; i < count; i++) {
    json_t *one = json_pack("{s:i, s:I, s:b, s:s}", "parallel_clients", (int)row[i].lanes, "peak_bytes",
                            (json_int_t)row[i].peak_bytes, "chosen", row[i].lanes == d->choice.lanes, "basis",
                            brim_basis_names[row[i].time.basis]);
    json_object_set_new(one, "client_seconds", brim_json_figure(row[i].time.client_seconds));
    json_object_set_new(one, "round_seconds", brim_json_figure(row[i].time.round_seconds));
    json_array_append_new(rows, one);
  }
  json_object_set_new(out, "host", brim_footprint_json(host));
  brim_cli_add_taken(d, plan, out);
  json_object_set_new(out, "table", rows);
  json_object_set_new(out, "server_bytes", json_integer((json_int_t)plan->persistent_bytes));
  json_object_set_new(out, "client_bytes", json_integer((json_int_t)plan->lane_bytes));
  if (brim_setup_is_isolated(d->setup))
    json_object_set_new(out, "server_process_bytes", json_integer((json_int_t)server_bytes));
  json_object_set_new(out, "client_kept_bytes", json_integer((json_int_t)brim_setup_kept_bytes(d->setup)));
  json_object_set_new(out, "states_bytes", json_integer((json_int_t)brim_setup_states_bytes(d->setup)));
  json_object_set_new(out, "updates_file_bytes",
                      json_integer((json_int_t)brim_updates_plan_of(d->setup, plan).file_bytes));
  if (brim_privacy_has_noise(d->setup->settings)) {
    json_object_set_new(out, "epsilon", brim_json_figure(spent_epsilon(d->setup)));
    json_object_set_new(out, "rounds", json_integer((json_int_t)count_rounds(d->setup)));
  }
  json_object_set_new(out, "parallel_clients", json_integer(d->choice.lanes));
  return brim_cli_print_json(out);
}

static brim_status write_picture(const brim_drive *d, const brim_plan *plan, const char *path)
{
  const brim_settings *s = d->setup->settings;
  const brim_plan *lane = plan->lane[0];
  const brim_program *train = brim_plan_program(lane, BRIM_PROGRAM_TRAIN, d->choice.micro_batch);
  char title[512];
  snprintf(title, sizeof title, "%s on %s, %lld of %lld clients a round, %d at a time, micro-batch %lld, %s",
           brim_config_choice_of(d->setup->config, "model")->plugin->id,
           brim_config_choice_of(d->setup->config, "dataset")->name, (long long)s->clients_per_round,
           (long long)s->total_clients, (int)d->choice.lanes, (long long)d->choice.micro_batch,
           d->planner.device_info.name);
  return brim_cli_write_picture(d, plan, train ? train : &lane->program[lane->peak_program], title, path);
}

brim_status brim_cli_show_federation(brim_drive *d, const brim_footprint *host, uint64_t server_bytes, bool json,
                                     const char *picture)
{
  brim_plan *plan = NULL;
  lanes_row row[LANES_SHOWN_MAX];
  size_t count;
  BRIM_TRY(brim_planner_plan(&d->planner, &d->choice, true, &plan));
  brim_status status = list_lanes(d, row, &count);
  if (status == BRIM_OK && json) status = print_json(d, plan, host, server_bytes, row, count);
  if (status == BRIM_OK && !json) {
    print_text(d, plan, server_bytes, row, count);
    brim_text text = {0};
    brim_cli_print_taken(d, plan, &text);
    if (text.length > 0) brim_text_add(&text, "\n");
    brim_footprint_print(host, &text);
    printf("\n%s\n", brim_text_str(&text));
    brim_text_release(&text);
  }
  if (status == BRIM_OK && picture) status = write_picture(d, plan, picture);
  if (status == BRIM_OK) status = brim_planner_check(&d->planner, &d->choice, plan);
  if (status == BRIM_OK) status = brim_setup_check_disk(d->setup);
  brim_plan_free(plan);
  return status;
}
