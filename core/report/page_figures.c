/* Names and formats of figures. An unknown figure keeps its own name. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "report/page_parts.h"

enum form { PLAIN, LOSS, PERCENT, RATE, SMALL };

/* Figures by which a model is not judged: training conditions and speed. */
static const struct {
  const char *name, *title;
  enum form form;
  bool is_score;
} known[] = {
    {"loss", "loss", LOSS, true},
    {"accuracy", "accuracy", PERCENT, true},
    {"personal_accuracy", "accuracy of the clients' own models in training", PERCENT, true},
    {"f1", "F1", LOSS, true},
    {"perplexity", "perplexity", PLAIN, true},
    {"mae", "mean absolute error", PLAIN, true},
    {"mape", "mean absolute percentage error", PLAIN, true},
    {"rmse", "root mean square error", PLAIN, true},
    {"r2", "R2", LOSS, true},
    {"lr", "learning rate", SMALL, false},
    {"grad_norm", "norm of the gradients", PLAIN, false},
    {"loss_scale", "loss scale", RATE, false},
    {"skipped_steps", "skipped steps", RATE, false},
    {"samples_per_second", "samples/s", RATE, false},
    {"tokens_per_second", "tokens/s", RATE, false},
    {"samples", "samples", RATE, false},
    {"tokens", "tokens", RATE, false},
    {"seconds", "seconds", PLAIN, false},
    {"loader_seconds", "seconds of waiting for samples", PLAIN, false},
    {"epoch", "epoch", PLAIN, false},
    {"clients", "clients", RATE, false},
    {"clients_left_out", "clients left out", RATE, false},
    {"clients_stale", "updates left out as too stale", RATE, false},
    {"staleness", "staleness of the updates, rounds", PLAIN, false},
    {"staleness_max", "staleness of the updates, maximum, rounds", RATE, false},
    {"clip_norm", "clip norm of the updates", PLAIN, false},
    {"epsilon", "epsilon of privacy", PLAIN, false},
    {"simulated_seconds", "simulated seconds", PLAIN, false},
    {"simulated_clock", "simulated clock, seconds", PLAIN, false},
    {"joules", "joules", PLAIN, false},
    {"bytes", "bytes sent and received", RATE, false},
    {"edge_bytes", "bytes between server and edges", RATE, false},
    {"selection_seconds", "selection seconds", PLAIN, false},
    {"device_bytes", "placed on the device", RATE, false},
    {"device_peak_bytes", "placed on the device, maximum", RATE, false},
    {"rss_bytes", "resident on the host", RATE, false},
};
#define KNOWN (sizeof known / sizeof known[0])
static const char top_k[] = "accuracy_top";

static size_t find_figure(const char *name)
{
  size_t i = 0;
  while (i < KNOWN && strcmp(known[i].name, name) != 0) i++;
  return i;
}

bool brim_figure_is_score(const char *name)
{
  const size_t i = find_figure(name);
  return i == KNOWN || known[i].is_score;
}

const char *brim_figure_title(brim_arena *arena, const char *name)
{
  const size_t i = find_figure(name);
  if (i < KNOWN) return known[i].title;
  if (brim_starts_with(name, top_k)) return brim_arena_printf(arena, "top-%s accuracy", name + strlen(top_k));
  return name;
}

const char *brim_figure_format(char *out, size_t room, const char *name, double value)
{
  const size_t i = find_figure(name);
  const enum form form = i < KNOWN ? known[i].form : brim_starts_with(name, top_k) ? PERCENT : PLAIN;
  const double size = fabs(value);
  if (!isfinite(value))
    snprintf(out, room, "-");
  else if (form == PERCENT && size < 100)
    snprintf(out, room, "%.2f %%", 100 * value);
  else if (form == LOSS && size < 1e4)
    snprintf(out, room, "%.4f", value);
  else if (form == RATE && size >= 100 && size < 1e15)
    snprintf(out, room, "%.0f", value);
  else
    snprintf(out, room, form == SMALL ? "%.3g" : "%.5g", value);
  return out;
}

const char *brim_figure_bytes(char *out, size_t room, double bytes)
{
  if (bytes >= 0 && bytes < 1e18) return brim_format_bytes(out, room, (uint64_t)bytes);
  snprintf(out, room, "-");
  return out;
}

const char *brim_figure_seconds(char *out, size_t room, double seconds)
{
  if (!isfinite(seconds))
    snprintf(out, room, "-");
  else if (seconds >= 60)
    brim_format_seconds(out, room, seconds);
  else
    snprintf(out, room, seconds < 1 ? "%.3f s" : "%.1f s", seconds);
  return out;
}

#define TIME_MAX 4e9 /* maximum plausible seconds since 1970 */

const char *brim_page_format_time(char *out, size_t room, double seconds)
{
  struct tm utc;
  const time_t at = seconds > 0 && seconds < TIME_MAX ? (time_t)seconds : 0;
  out[0] = '\0';
  if (at > 0 && gmtime_r(&at, &utc)) strftime(out, room, "%Y-%m-%d %H:%M:%S", &utc);
  return out;
}

void brim_names_add(brim_names *names, const char *name)
{
  for (size_t i = 0; i < names->count; i++)
    if (strcmp(names->name[i], name) == 0) return;
  if (names->count < BRIM_NAMES_MAX) names->name[names->count++] = name;
}
