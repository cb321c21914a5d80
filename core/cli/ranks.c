#include "cli/ranks.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "drive/placement.h"

#define NAMES_MAX 24 /* limit in characters; longer lists are replaced by a number */

void brim_cli_ranks_release(brim_ranks *ranks)
{
  for (size_t i = 0; i < ranks->count; i++) free(ranks->group[i].rank);
  free(ranks->group);
  *ranks = (brim_ranks){0};
}

/* With dist.ranks=auto the number of ranks depends on the machine that starts the run, so the plan is for one rank. */
int32_t brim_cli_planned_ranks(const brim_settings *settings)
{
  return settings->dist.ranks > 0 ? (int32_t)settings->dist.ranks : 1;
}

/* ---- groups: ranks with the same work, planned once ---- */

/* Finds the group of ranks with this load, or makes one. If ranks shard tensors, each rank has a group of its own. */
static brim_rank_group *group_of(brim_ranks *ranks, const brim_load *load, bool shares, int32_t all)
{
  for (size_t i = 0; i < ranks->count && !shares; i++) {
    const brim_load *l = &ranks->group[i].load;
    if (l->share == load->share && l->last_share == load->last_share && l->validation == load->validation &&
        l->test == load->test)
      return &ranks->group[i];
  }
  ranks->group = brim_xrealloc(ranks->group, (ranks->count + 1) * sizeof *ranks->group);
  brim_rank_group *g = &ranks->group[ranks->count++];
  *g = (brim_rank_group){.load = *load, .rank = brim_xmalloc((size_t)all * sizeof *g->rank)};
  return g;
}

static void describe(const brim_drive *d, const brim_plan *plan, brim_rank_group *g)
{
  g->batch = d->choice.micro_batch;
  g->micros = brim_setup_micros(d->setup, d->choice.micro_batch);
  g->peak_bytes = plan->peak_bytes;
  brim_setup_format_cut(d->setup, d->choice.micro_batch, g->cut, sizeof g->cut);
}

/* Plans as a rank of the group would, from the configuration of `like`. */
static brim_status plan_group(const brim_drive *like, brim_rank_group *g)
{
  brim_drive *d = NULL;
  brim_plan *plan = NULL;
  const int32_t rank = g->rank[0], ranks = like->setup->world.ranks;
  const brim_setup_options options = {.no_timing = like->setup->options.no_timing, .world = {rank, ranks, rank, ranks}};
  BRIM_TRY(brim_drive_open(like->setup->config, &options, &d));
  brim_status status = brim_placement_try(&d);
  if (status == BRIM_OK) status = brim_planner_plan(&d->planner, &d->choice, false, &plan);
  if (status == BRIM_OK) describe(d, plan, g);
  brim_plan_free(plan);
  brim_drive_close(d);
  return status;
}

static int ascending(const void *a, const void *b)
{
  const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  return (x > y) - (x < y);
}

static bool look_alike(const brim_rank_group *a, const brim_rank_group *b)
{
  return a->load.share == b->load.share && a->batch == b->batch && a->peak_bytes == b->peak_bytes;
}

/* Joins groups that differ only in an epoch's last step or in evaluations, if their plans are the same. Each list of
 * ranks has room for all. */
static void join_groups(brim_ranks *ranks)
{
  size_t kept = 0;
  for (size_t i = 0, k; i < ranks->count; i++) {
    brim_rank_group *g = &ranks->group[i];
    for (k = 0; k < kept && !look_alike(&ranks->group[k], g);) k++;
    if (k == kept) {
      ranks->group[kept++] = *g;
      continue;
    }
    brim_rank_group *to = &ranks->group[k];
    memcpy(to->rank + to->count, g->rank, (size_t)g->count * sizeof *g->rank);
    to->count += g->count;
    qsort(to->rank, (size_t)to->count, sizeof *to->rank, ascending);
    free(g->rank);
  }
  ranks->count = kept;
}

brim_status brim_cli_find_ranks(const brim_cli *cli, const brim_drive *d, const brim_plan *plan, brim_ranks *out)
{
  brim_status status = BRIM_OK;
  if (d->setup->world.ranks == 1) return BRIM_OK;
  for (int32_t r = 0; r < d->setup->world.ranks; r++) {
    const brim_load load = brim_setup_load(d->setup, r);
    brim_rank_group *g = group_of(out, &load, d->setup->settings->dist.shard != BRIM_SHARD_NONE, d->setup->world.ranks);
    g->rank[g->count++] = r;
  }
  describe(d, plan, &out->group[0]);
  brim_cli_hush(cli, true);
  for (size_t i = 1; i < out->count && status == BRIM_OK; i++) {
    status = plan_group(d, &out->group[i]);
    if (status != BRIM_OK) brim_fail_add(status, "in the plan of rank %d", (int)out->group[i].rank[0]);
  }
  brim_cli_hush(cli, false);
  if (status == BRIM_OK) join_groups(out);
  return status;
}

/* ---- showing ---- */

/* Adds the ranks of a group, "0-2, 5", or only their number if the list is too long. */
static void add_names(const brim_rank_group *g, brim_text *out)
{
  brim_text names = {0};
  for (int32_t i = 0, end; i < g->count && names.length <= NAMES_MAX; i = end) {
    for (end = i + 1; end < g->count && g->rank[end] == g->rank[end - 1] + 1;) end++;
    brim_text_printf(&names, "%s%d", i ? ", " : "", (int)g->rank[i]);
    if (end > i + 1) brim_text_printf(&names, "-%d", (int)g->rank[end - 1]);
  }
  if (names.length > NAMES_MAX) {
    brim_text_clear(&names);
    brim_text_printf(&names, "%d of them", (int)g->count);
  }
  brim_text_printf(out, "  %-*s", NAMES_MAX, brim_text_str(&names));
  brim_text_release(&names);
}

void brim_cli_print_ranks(const brim_ranks *ranks, brim_text *out)
{
  char bytes[32];
  if (ranks->count == 0) return;
  brim_text_printf(out, "  %-*s  %14s  %14s  %10s\n", NAMES_MAX, "ranks", "samples a step", "micro-batches", "peak");
  for (size_t i = 0; i < ranks->count; i++) {
    const brim_rank_group *g = &ranks->group[i];
    add_names(g, out);
    brim_text_printf(out, "  %14lld  %14s  %10s\n", (long long)g->load.share, g->cut,
                     brim_format_bytes(bytes, sizeof bytes, g->peak_bytes));
  }
  brim_text_add(out, "\n");
}

json_t *brim_cli_ranks_json(const brim_ranks *ranks)
{
  json_t *rows = json_array();
  for (size_t i = 0; i < ranks->count; i++) {
    const brim_rank_group *g = &ranks->group[i];
    json_t *names = json_array();
    for (int32_t k = 0; k < g->count; k++) json_array_append_new(names, json_integer(g->rank[k]));
    json_array_append_new(rows,
                          json_pack("{s:o, s:I, s:I, s:I, s:I}", "ranks", names, "samples", (json_int_t)g->load.share,
                                    "batch_size", (json_int_t)g->batch, "gradient_accumulation_steps",
                                    (json_int_t)g->micros, "peak_bytes", (json_int_t)g->peak_bytes));
  }
  return rows;
}
