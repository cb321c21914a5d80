/* The progress line consists of parts in a fixed order; the least important ones are left out until the line fits the
 * terminal.
 *
 *   epoch 2/5  ━━━╸─  step 812/2345  loss 0.2871  acc 90.4%  2.4k samples/s  mem 61.2/61.2 MiB  eta 1:12 */
#include "observe/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"
#include "base/utf8.h"

#define REDRAW_SECONDS 0.1
#define COLUMNS_DEFAULT 80
#define BAR_MIN 6
#define BAR_MAX 24
#define ETA_SECONDS_MAX 1e9 /* longer times are not shown */
#define GAP 2               /* spaces between parts */
#define CLEAR_LINE "\r\033[K"
#define DIM "\033[2m"
#define BOLD "\033[1m"
#define CYAN "\033[36m"
#define GREEN "\033[32m"
#define RESET "\033[0m"

/* ---- the parts ---- */

enum part_id { EPOCH, BAR, STEP, LOSS, ACCURACY, EPSILON, RATE, MEMORY, ETA, PARTS };

/* The order in which parts are left out: memory hardly changes, and the step, which always stays, implies the epoch. */
static const enum part_id drop_order[] = {MEMORY, EPOCH, BAR, RATE, EPSILON, ACCURACY, ETA, LOSS};

typedef struct part {
  char label[8], value[40], unit[16]; /* plain ASCII; value "": the part is absent */
  int width;
} part;

static void fill(part *p, const char *label, const char *value, const char *unit)
{
  snprintf(p->label, sizeof p->label, "%s", label);
  snprintf(p->value, sizeof p->value, "%s", value);
  snprintf(p->unit, sizeof p->unit, "%s", unit);
  p->width = (int)(strlen(p->label) + strlen(p->value) + strlen(p->unit));
}

static void fill_count(part *p, const char *label, int64_t done, int64_t all)
{
  char text[40];
  snprintf(text, sizeof text, "%" PRId64 "/%" PRId64, done, all);
  fill(p, label, text, "");
}

/* Formats a rate as "812", "2.4k" or "1.3M". */
static void fill_rate(part *p, double rate, const char *unit)
{
  char text[40];
  if (!(rate > 0) || isinf(rate)) return;
  if (rate < 10)
    snprintf(text, sizeof text, "%.1f", rate);
  else if (rate < 999.5)
    snprintf(text, sizeof text, "%.0f", rate);
  else if (rate < 999950)
    snprintf(text, sizeof text, "%.1fk", rate / 1e3);
  else
    snprintf(text, sizeof text, "%.1fM", rate / 1e6);
  fill(p, "", text, unit);
}

/* Formats both numbers in the unit of the planned one. */
static void fill_memory(part *p, uint64_t used, uint64_t planned)
{
  static const char *const units[] = {" KiB", " MiB", " GiB", " TiB"};
  char text[40];
  size_t u = 0;
  double scale = 1024;
  if (planned == 0) return;
  while (u + 1 < sizeof units / sizeof units[0] && (double)planned >= 1000 * scale) {
    scale *= 1024;
    u++;
  }
  snprintf(text, sizeof text, "%.1f/%.1f", (double)used / scale, (double)planned / scale);
  fill(p, "mem ", text, units[u]);
}

double brim_progress_seconds(double seconds, double done, double left)
{
  const double out = done > 0 && seconds >= 0 ? seconds / done * left : NAN;
  return out >= 0 && out < ETA_SECONDS_MAX ? out : NAN;
}

double brim_progress_left(const brim_progress *p, double now)
{
  return brim_progress_seconds(now - p->start, (double)p->last.step - (double)p->start_step,
                               (double)p->last.steps - (double)p->last.step);
}

static void fill_eta(part *p, const brim_progress *progress, double now)
{
  const double seconds = brim_progress_left(progress, now);
  char text[40];
  if (isnan(seconds)) return;
  fill(p, "eta ", brim_format_seconds(text, sizeof text, seconds), "");
}

static void fill_parts(part *parts, const brim_progress *p, double now)
{
  const brim_progress_state *s = &p->last;
  char text[40];
  if (s->epochs > 0) fill_count(&parts[EPOCH], "epoch ", s->epoch, s->epochs);
  fill_count(&parts[STEP], s->by_rounds ? "round " : "step ", s->step, s->steps);
  if (isfinite(s->loss)) {
    snprintf(text, sizeof text, fabs(s->loss) < 1000 ? "%.4f" : "%.4g", s->loss);
    fill(&parts[LOSS], "loss ", text, "");
  }
  if (isfinite(s->accuracy)) {
    snprintf(text, sizeof text, "%.1f%%", 100 * s->accuracy);
    fill(&parts[ACCURACY], "acc ", text, "");
  } else if (isfinite(s->mae)) {
    snprintf(text, sizeof text, "%.4g", s->mae);
    fill(&parts[ACCURACY], "MAE ", text, "");
  }
  if (s->epsilon > 0) {
    snprintf(text, sizeof text, "%.3g", s->epsilon);
    fill(&parts[EPSILON], "eps ", text, "");
  }
  if (s->tokens_each > 0)
    fill_rate(&parts[RATE], (double)s->tokens_each * s->samples_per_second, " tokens/s");
  else
    fill_rate(&parts[RATE], s->samples_per_second, " samples/s");
  fill_memory(&parts[MEMORY], s->used_bytes, s->planned_bytes);
  fill_eta(&parts[ETA], p, now);
}

static int line_width(const part *parts)
{
  int width = -GAP;
  for (int i = 0; i < PARTS; i++)
    if (parts[i].width > 0) width += parts[i].width + GAP;
  return width;
}

/* Drops parts until the line fits, and gives the remaining width to the bar. */
static void fit(part *parts, int room)
{
  for (size_t i = 0; i < sizeof drop_order / sizeof drop_order[0] && line_width(parts) > room; i++)
    parts[drop_order[i]].width = 0;
  const int spare = room - line_width(parts);
  if (parts[BAR].width > 0 && spare > 0) parts[BAR].width += spare < BAR_MAX - BAR_MIN ? spare : BAR_MAX - BAR_MIN;
}

/* ---- drawing ---- */

typedef struct line {
  char *out;
  size_t length;
} line;

/* Adds only whole strings, so that no escape sequence or character is cut. */
static void put(line *to, const char *text)
{
  const size_t bytes = strlen(text);
  if (to->length + bytes >= BRIM_PROGRESS_LINE_BYTES) return;
  memcpy(to->out + to->length, text, bytes + 1);
  to->length += bytes;
}

static void put_styled(line *to, bool color, const char *style, const char *text)
{
  if (!text[0]) return;
  if (color) put(to, style);
  put(to, text);
  if (color) put(to, RESET);
}

static void put_ascii_bar(line *to, int cells, double share)
{
  const int full = (int)(share * cells);
  put(to, "[");
  for (int i = 0; i < cells; i++) put(to, i < full ? "=" : i == full ? ">" : " ");
  put(to, "]");
}

/* The smallest step is half a cell; a thin line shows the rest. */
static void put_unicode_bar(line *to, int cells, double share, bool color)
{
  const int halves = (int)(share * cells * 2);
  if (color) put(to, share < 1 ? CYAN : GREEN);
  for (int i = 0; i < halves / 2; i++) put(to, "━");
  if (halves % 2) put(to, "╸");
  if (color) put(to, RESET DIM);
  for (int i = (halves + 1) / 2; i < cells; i++) put(to, "─");
  if (color) put(to, RESET);
}

static void put_bar(line *to, const brim_progress *p, int width)
{
  double share = p->last.steps > 0 ? (double)p->last.step / (double)p->last.steps : 0;
  share = share < 0 ? 0 : share > 1 ? 1 : share;
  if (p->unicode)
    put_unicode_bar(to, width, share, p->color);
  else
    put_ascii_bar(to, width - 2, share);
}

static void put_part(line *to, const brim_progress *p, enum part_id id, const part *from)
{
  if (id == BAR) {
    put_bar(to, p, from->width);
    return;
  }
  const bool bold = id == LOSS || id == ACCURACY;
  put_styled(to, p->color, DIM, from->label);
  put_styled(to, p->color && bold, BOLD, from->value);
  put_styled(to, p->color, DIM, from->unit);
}

size_t brim_progress_format(const brim_progress *p, double now, char *out)
{
  part parts[PARTS] = {0};
  line to = {out, 0};
  out[0] = '\0';
  fill_parts(parts, p, now);
  if (p->terminal) {
    parts[BAR].width = BAR_MIN;
    fit(parts, p->columns - 1);
    if (line_width(parts) > p->columns - 1) return 0; /* not even the step fits, in a terminal of a few columns */
  }
  for (int i = 0; i < PARTS; i++) {
    if (parts[i].width == 0) continue;
    if (to.length > 0) put(&to, "  ");
    put_part(&to, p, (enum part_id)i, &parts[i]);
  }
  return to.length;
}

/* ---- the terminal ---- */

static int terminal_columns(void)
{
  struct winsize size;
  const char *text = getenv("COLUMNS");
  const long asked = text ? strtol(text, NULL, 10) : 0;
  if (asked > 0 && asked < 10000) return (int)asked;
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return COLUMNS_DEFAULT;
}

/* Ignores errors, because standard error itself is gone. */
static void emit(const char *text, size_t bytes)
{
  while (bytes > 0) {
    const ssize_t n = write(STDERR_FILENO, text, bytes);
    if (n <= 0) return;
    text += n;
    bytes -= (size_t)n;
  }
}

/* Redraws the line with one write, so that the cleared line is never visible. */
static void draw(brim_progress *p, double now, const char *end)
{
  char out[sizeof CLEAR_LINE + BRIM_PROGRESS_LINE_BYTES + 1] = CLEAR_LINE;
  p->columns = terminal_columns();
  const size_t length = sizeof CLEAR_LINE - 1 + brim_progress_format(p, now, out + sizeof CLEAR_LINE - 1);
  const int more = snprintf(out + length, sizeof out - length, "%s", end);
  emit(out, length + (size_t)more);
  p->last_draw = now;
  p->drawn = true;
}

static void print_line(brim_progress *p, double now)
{
  char out[BRIM_PROGRESS_LINE_BYTES + 1];
  const size_t length = brim_progress_format(p, now, out);
  out[length] = '\n';
  emit(out, length + 1);
  p->last_line = p->last.step;
}

/* Holds the lock from before a message until after it, so that no redraw happens in between. */
static void around_message(void *context, bool before)
{
  brim_progress *p = context;
  if (before) {
    pthread_mutex_lock(&p->lock);
    if (p->drawn) emit(CLEAR_LINE, sizeof CLEAR_LINE - 1);
  } else {
    if (p->drawn) draw(p, brim_now(), "");
    pthread_mutex_unlock(&p->lock);
  }
}

void brim_progress_init(brim_progress *p, int64_t start_step, int64_t line_every, bool quiet)
{
  const char *term = getenv("TERM");
  *p = (brim_progress){.quiet = quiet, .start_step = start_step, .first_step = start_step, .line_every = line_every};
  pthread_mutex_init(&p->lock, NULL);
  p->terminal = isatty(STDERR_FILENO) && !(term && strcmp(term, "dumb") == 0);
  p->color = p->terminal && brim_log_color();
  p->unicode = p->terminal && brim_utf8_is_locale();
  p->columns = terminal_columns();
  p->start = brim_now();
  p->last_line = start_step;
  if (p->terminal && !quiet) brim_log_set_hook(around_message, p);
}

void brim_progress_update(brim_progress *p, const brim_progress_state *state)
{
  const double now = brim_now();
  pthread_mutex_lock(&p->lock);
  p->last = *state;
  /* The first step also sets up kernels; the remaining time is estimated from its end on. */
  if (p->start_step == p->first_step && state->step > p->first_step) {
    p->start_step = state->step;
    p->start = now;
  }
  if (!p->quiet) {
    const bool ends = p->last.step >= p->last.steps;
    if (p->terminal) {
      if (!p->drawn || ends || now - p->last_draw >= REDRAW_SECONDS) draw(p, now, "");
    } else if (p->line_every > 0 && p->last.step != p->last_line && (ends || p->last.step % p->line_every == 0)) {
      print_line(p, now);
    }
  }
  pthread_mutex_unlock(&p->lock);
}

void brim_progress_finish(brim_progress *p)
{
  if (p->quiet) return;
  if (p->terminal) brim_log_set_hook(NULL, NULL);
  pthread_mutex_lock(&p->lock);
  if (p->drawn) draw(p, brim_now(), "\n");
  p->drawn = false;
  p->quiet = true;
  pthread_mutex_unlock(&p->lock);
}
