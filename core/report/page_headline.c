/* Shows the top of a run's page: its description, how it ended, and its figures. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/page_parts.h"
#include "store/summary.h"

#define CARDS_OF_SCORES 4

/* Returns a figure such as "validation_loss": from the summary or, without one, from the newest record. */
static double score(const brim_page_run *page, enum brim_part split, const char *name)
{
  return page->summary ? brim_summary_number(page->summary, split, name)
                       : brim_series_last(&page->run->metrics.split[split], name);
}

/* Returns the part after "test_", or NULL for other keys. */
static const char *after_split(const char *key)
{
  for (int i = 0; i < BRIM_PART_COUNT; i++) {
    const size_t length = strlen(brim_part_names[i]);
    if (strncmp(key, brim_part_names[i], length) == 0 && key[length] == '_') return key + length + 1;
  }
  return NULL;
}

static brim_names scores_of(const brim_page_run *page)
{
  brim_names out = {0};
  const char *key;
  json_t *value;
  json_object_foreach(page->summary, key, value)
  {
    const char *name = after_split(key);
    if (name && json_is_number(value) && brim_figure_is_score(name)) brim_names_add(&out, name);
  }
  for (int i = 0; !page->summary && i < BRIM_PART_COUNT; i++) {
    const brim_series *s = &page->run->metrics.split[i];
    for (size_t k = 0; k < s->columns; k++)
      if (brim_figure_is_score(s->column[k].name)) brim_names_add(&out, s->column[k].name);
  }
  return out;
}

/* ---- cards ---- */

static void add_card(brim_text *out, const char *split, const char *title, const char *value)
{
  if (!value[0] || strcmp(value, "-") == 0) return;
  brim_text_add(out, "<div class=\"card\"><b>");
  brim_svg_escape(out, value);
  brim_text_add(out, "</b><span>");
  brim_svg_escape(out, split);
  brim_text_add(out, split[0] ? " " : "");
  brim_svg_escape(out, title);
  brim_text_add(out, "</span></div>\n");
}

/* Adds cards with the scores on the data by which the model is judged best. */
static void add_score_cards(const brim_page_run *page, const brim_names *names, brim_text *out)
{
  int split = BRIM_PART_COUNT - 1;
  char text[64];
  while (split > 0 && !isfinite(score(page, (enum brim_part)split, "loss"))) split--;
  for (size_t i = 0, cards = 0; i < names->count && cards < CARDS_OF_SCORES; i++) {
    const double value = score(page, (enum brim_part)split, names->name[i]);
    if (!isfinite(value)) continue;
    add_card(out, brim_part_titles[split], brim_figure_title(&page->all->arena, names->name[i]),
             brim_figure_format(text, sizeof text, names->name[i], value));
    cards++;
  }
}

static void add_rate_card(const brim_page_run *page, const char *name, brim_text *out)
{
  char text[64];
  const brim_series *train = &page->run->metrics.split[BRIM_PART_TRAIN];
  const double rate = page->summary ? brim_json_number(page->summary, name) : brim_series_last(train, name);
  add_card(out, "", brim_figure_title(&page->all->arena, name), brim_figure_format(text, sizeof text, name, rate));
}

/* If a run went as planned, one number describes its memory. */
static void add_memory_cards(const brim_page_run *page, brim_text *out)
{
  char text[64];
  const double planned = page->summary ? brim_json_number(page->summary, "planned_peak_bytes")
                                       : brim_json_number(page->plan, "peak_bytes");
  const double placed = page->run->summary.device_peak_bytes;
  const bool is_kept = planned == placed;
  add_card(out, "", is_kept ? "memory, as planned" : "memory planned", brim_figure_bytes(text, sizeof text, planned));
  if (!is_kept) add_card(out, "", "memory placed", brim_figure_bytes(text, sizeof text, placed));
}

/* Returns the last step that the run will make, according to its newest process. */
static double steps_of(const brim_page_run *page)
{
  return page->process_count == 0 ? NAN : brim_json_number(page->process[page->process_count - 1].environment, "steps");
}

/* Adds the run's current step, and a bar; only while the run has not ended. */
static void add_progress(const brim_page_run *page, brim_text *out)
{
  char left[32];
  const double step = page->run->summary.steps, steps = steps_of(page);
  if (page->state == BRIM_PAGE_ENDED || !(step >= 0 && steps >= step && steps > 0)) return;
  brim_text_printf(out, "<p class=\"age\">%s %.0f of %.0f, %.1f %%", brim_compare_step(page->all), step, steps,
                   100 * step / steps);
  const double seconds = page->state == BRIM_PAGE_RUNNING ? brim_page_seconds_left(page, steps) : NAN;
  if (!isnan(seconds)) brim_text_printf(out, ", about %s left", brim_figure_seconds(left, sizeof left, seconds));
  brim_text_printf(out, "</p>\n<div class=\"progress\"><i style=\"width:%.2f%%\"></i></div>\n", 100 * step / steps);
}

static void add_cards(const brim_page_run *page, const brim_names *names, brim_text *out)
{
  char text[64];
  const brim_compared *run = page->run;
  brim_text_add(out, "<div class=\"cards\">\n");
  add_score_cards(page, names, out);
  add_rate_card(page, "tokens_per_second", out);
  add_rate_card(page, "samples_per_second", out);
  add_card(out, "", brim_compare_is_federated(run) ? "per round" : "per epoch",
           brim_figure_seconds(text, sizeof text, brim_epochs_mean_seconds(&run->metrics)));
  const bool is_resumed = page->process_count > 1;
  add_card(out, "",
           is_resumed ? brim_arena_printf(&page->all->arena, "total, in %zu processes", page->process_count) : "total",
           brim_figure_seconds(text, sizeof text, is_resumed ? page->work_seconds : run->summary.wall_seconds));
  if (page->queue_seconds > 0)
    add_card(out, "", "in the queue before", brim_figure_seconds(text, sizeof text, page->queue_seconds));
  add_memory_cards(page, out);
  brim_text_add(out, "</div>\n");
}

/* ---- the rest ---- */

static void add_named(const char *value, const char *before, brim_text *out)
{
  if (strcmp(value, "-") == 0) return;
  brim_text_add(out, before);
  brim_svg_escape(out, value);
}

static void add_value(const brim_page_run *page, const char *key, const char *before, brim_text *out)
{
  add_named(brim_compare_value(page->all, page->run, key), before, out);
}

/* Adds "vit on fashion_mnist, cuda:0 (NVIDIA H100), bf16, 938 steps". */
static void add_what(const brim_page_run *page, brim_text *out)
{
  const json_t *newest = page->process_count ? page->process[page->process_count - 1].environment : NULL;
  const json_t *where = page->summary ? page->summary : newest;
  const char *device = brim_json_string(where, "device");
  const char *name = brim_json_string(where, "device_name");
  brim_text_add(out, "<p class=\"what\">");
  add_value(page, "model.id", "", out);
  add_named(brim_compare_dataset(page->all, page->run), " on ", out);
  if (device[0]) brim_text_add(out, ", ");
  brim_svg_escape(out, device);
  if (name[0]) brim_text_add(out, " (");
  brim_svg_escape(out, name);
  if (name[0]) brim_text_add(out, ")");
  add_value(page, "precision", ", ", out);
  if (page->state == BRIM_PAGE_ENDED && isfinite(page->run->summary.steps))
    brim_text_printf(out, ", %.15g %ss", page->run->summary.steps, brim_compare_step(page->all));
  brim_text_add(out, "</p>\n");
}

static void add_error(const char *text, brim_text *out)
{
  if (!text[0]) return;
  brim_text_add(out, "<pre class=\"error\">");
  brim_page_text(out, text);
  brim_text_add(out, "</pre>\n");
}

void brim_page_headline(const brim_page_run *page, brim_text *out)
{
  const brim_names names = scores_of(page);
  const brim_summary *s = &page->run->summary;
  brim_text_add(out, "<header>\n<h1>");
  brim_svg_escape(out, page->run->name);
  brim_text_printf(out, " <span class=\"status%s\">",
                   page->state == BRIM_PAGE_RUNNING                                    ? " going"
                   : page->state == BRIM_PAGE_LOST || strcmp(s->status, "failed") == 0 ? " failed"
                                                                                       : "");
  brim_svg_escape(out, brim_page_status(page));
  brim_text_add(out, "</span></h1>\n");
  add_what(page, out);
  brim_page_age(page, out);
  add_progress(page, out);
  add_error(s->error, out);
  add_error(brim_text_str(&page->notes), out);
  add_cards(page, &names, out);
  brim_text_add(out, "</header>\n");
}

void brim_page_results(const brim_page_run *page, brim_text *out)
{
  const brim_names names = scores_of(page);
  if (names.count == 0) return;
  brim_page_begin(out, "Results");
  brim_arena *arena = &page->all->arena;
  brim_table table = {.arena = arena, .columns = 1 + BRIM_PART_COUNT};
  char text[64];
  brim_table_add(&table, "");
  for (int i = 0; i < BRIM_PART_COUNT; i++) brim_table_add(&table, brim_part_titles[i]);
  for (size_t i = 0; i < names.count; i++) {
    brim_table_add(&table, brim_figure_title(arena, names.name[i]));
    for (int k = 0; k < BRIM_PART_COUNT; k++)
      brim_table_add(
          &table, brim_figure_format(text, sizeof text, names.name[i], score(page, (enum brim_part)k, names.name[i])));
  }
  brim_page_table(out, &table);
  brim_page_end(out);
}
