/* Draws a run's events: time from left to right, a bar for each process, and the step that the run had reached. The
 * time between two processes has a fixed width, because it may be days. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/page_parts.h"

/* pixels */
#define WIDTH 1120
#define LEFT 56
#define RIGHT 1100
#define BAR_TOP 30
#define BAR_HEIGHT 22
#define CURVE_TOP 74
#define CURVE_BOTTOM 164
#define AXIS_Y 184
#define HEIGHT 198
#define GAP 58           /* between two processes */
#define PROCESSES_MAX 12 /* most processes drawn: if there are more, the first and the last ones */
#define MARKS_MAX 400    /* drawn of a kind */
#define SPAN_MIN 4.0     /* minimum width of a wait or a recovery, so that it is visible */

typedef struct span {
  double from, to; /* seconds since 1970 */
  double left, right;
} span;

typedef struct picture {
  const brim_page_run *page;
  span process[PROCESSES_MAX];
  size_t index[PROCESSES_MAX]; /* index of each drawn process in the page */
  size_t count;
  double steps; /* number of steps at the top of the curve */
} picture;

/* Chooses the processes to draw: those with times; of too many, the first and the last ones. */
static void choose(picture *pic)
{
  size_t timed = 0, number = 0;
  const brim_page_run *page = pic->page;
  for (size_t i = 0; i < page->process_count; i++) timed += page->process[i].begin <= page->process[i].end;
  for (size_t i = 0; i < page->process_count; i++) {
    const brim_page_process *p = &page->process[i];
    if (!(p->begin <= p->end)) continue;
    const bool is_drawn = number < PROCESSES_MAX / 2 || timed - number <= PROCESSES_MAX / 2;
    number++;
    if (!is_drawn) continue;
    pic->index[pic->count] = i;
    pic->process[pic->count++] = (span){.from = p->begin, .to = fmax(p->end, p->begin + 1e-3)};
    if (p->to_step > pic->steps) pic->steps = p->to_step;
  }
}

static void place(picture *pic)
{
  double seconds = 0, x = LEFT;
  for (size_t i = 0; i < pic->count; i++) seconds += pic->process[i].to - pic->process[i].from;
  const double room = RIGHT - LEFT - GAP * (double)(pic->count - 1), least = 24;
  const double scale = (room - least * (double)pic->count) / seconds;
  for (size_t i = 0; i < pic->count; i++) {
    span *s = &pic->process[i];
    s->left = x;
    s->right = x + least + scale * (s->to - s->from);
    x = s->right + GAP;
  }
}

static double x_of(const span *s, double time)
{
  const double share = (time - s->from) / (s->to - s->from);
  return s->left + (share < 0 ? 0 : share > 1 ? 1 : share) * (s->right - s->left);
}

static double y_of(const picture *pic, double step)
{
  return CURVE_BOTTOM - (pic->steps > 0 ? step / pic->steps : 0) * (CURVE_BOTTOM - CURVE_TOP);
}

/* ---- bars ---- */

static void add_span(double left, double right, const char *class, const char *what, double seconds, brim_text *out)
{
  char text[32];
  if (right - left < SPAN_MIN) left = fmax(LEFT, right - SPAN_MIN);
  brim_text_printf(
      out, "<rect class=\"%s\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"><title>%s, %s</title></rect>\n", class,
      left, BAR_TOP, right - left, BAR_HEIGHT, what, brim_figure_seconds(text, sizeof text, seconds));
}

static void add_bar(const picture *pic, size_t i, brim_text *out)
{
  const brim_page_run *page = pic->page;
  const span *s = &pic->process[i];
  const brim_page_process *p = &page->process[pic->index[i]];
  double waiting = NAN;
  add_span(s->left, s->right, "t-work", "at work", s->to - s->from - p->queue_seconds, out);
  for (size_t k = p->first; k < p->first + p->count; k++) {
    const json_t *event = json_array_get(page->events, k);
    const double time = brim_json_number(event, "time"), repeated = brim_json_number(event, "recovered_seconds");
    if (brim_page_is_event(event, "waiting")) waiting = time;
    if (brim_page_is_event(event, "claimed") && time >= waiting) {
      add_span(x_of(s, waiting), x_of(s, time), "t-wait", "in the queue", time - waiting, out);
      waiting = NAN;
    }
    if (repeated >= 0) add_span(x_of(s, time - repeated), x_of(s, time), "t-redo", "out of memory", repeated, out);
  }
  if (isfinite(waiting)) add_span(x_of(s, waiting), s->right, "t-wait", "in the queue", s->to - waiting, out);
}

/* Draws how a process ended, above its bar. */
static void add_end(const picture *pic, size_t i, brim_text *out)
{
  const brim_page_run *page = pic->page;
  const brim_page_process *p = &page->process[pic->index[i]];
  const bool is_last = pic->index[i] + 1 == page->process_count;
  const char *how = p->how ? p->how : is_last && page->state == BRIM_PAGE_RUNNING ? "running" : "stopped";
  const bool is_bad = !p->how || strcmp(how, "failed") == 0;
  brim_text_printf(out, "<text class=\"%s\" x=\"%.1f\" y=\"%d\" text-anchor=\"end\">%s</text>\n",
                   strcmp(how, "running") == 0    ? "t-good"
                   : is_bad                       ? "t-bad"
                   : strcmp(how, "finished") == 0 ? "t-good"
                                                  : "t-warn",
                   fmax(pic->process[i].right, pic->process[i].left + 60), BAR_TOP - 8, how);
}

/* Draws the time in which no process ran. */
static void add_gap(const span *before, const span *after, brim_text *out)
{
  char text[32];
  const double middle = (before->right + after->left) / 2, y = BAR_TOP + BAR_HEIGHT / 2.0;
  brim_text_printf(out,
                   "<path class=\"t-gap\" d=\"M%.1f %.1fH%.1f\"/><text class=\"t-small\" x=\"%.1f\" y=\"%.1f\" "
                   "text-anchor=\"middle\">%s</text>\n",
                   before->right + 4, y, after->left - 4, middle, y + 22,
                   brim_figure_seconds(text, sizeof text, fmax(0, after->from - before->to)));
}

/* ---- steps ---- */

/* Draws a line through the steps of the events, and a dot for each checkpoint. */
static void add_steps(const picture *pic, size_t i, brim_text *out)
{
  const brim_page_run *page = pic->page;
  const span *s = &pic->process[i];
  const brim_page_process *p = &page->process[pic->index[i]];
  double last = 0;
  size_t dots = 0;
  const size_t stride = p->count / MARKS_MAX + 1;
  brim_text line = {0}, marks = {0};
  for (size_t k = 0; k < p->count; k++) {
    const json_t *event = json_array_get(page->events, p->first + k);
    const double time = brim_json_number(event, "time"), step = brim_json_number(event, "step");
    if (!(time >= last) || !isfinite(step) || (k % stride && k + 1 < p->count)) continue;
    last = time;
    brim_text_printf(&line, "%s%.1f %.1f", line.length ? "L" : "M", x_of(s, time), y_of(pic, step));
    if (brim_page_is_event(event, "checkpoint") && dots++ < MARKS_MAX)
      brim_text_printf(&marks, "M%.1f %.1fh0", x_of(s, time), y_of(pic, step));
  }
  if (!p->how && isfinite(p->to_step) && line.length)
    brim_text_printf(&line, "L%.1f %.1f", s->right, y_of(pic, p->to_step));
  brim_text_printf(out, "<path class=\"t-steps\" d=\"%s\"/>\n", brim_text_str(&line));
  if (marks.length > 0) brim_text_printf(out, "<path class=\"t-saved\" d=\"%s\"/>\n", brim_text_str(&marks));
  brim_text_release(&line);
  brim_text_release(&marks);
}

static void add_axis(const picture *pic, brim_text *out)
{
  char time[32];
  brim_text_printf(out,
                   "<path class=\"grid\" d=\"M%d %dH%d\"/><path class=\"axis\" d=\"M%d %dH%d\"/>"
                   "<text class=\"t-small\" x=\"%d\" y=\"%d\" text-anchor=\"end\">%.0f</text>"
                   "<text class=\"t-small\" x=\"%d\" y=\"%d\" text-anchor=\"end\">0</text>"
                   "<text class=\"t-small\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                   LEFT, CURVE_TOP, RIGHT, LEFT, CURVE_BOTTOM, RIGHT, LEFT - 8, CURVE_TOP + 4, pic->steps, LEFT - 8,
                   CURVE_BOTTOM + 4, LEFT - 8, (CURVE_TOP + CURVE_BOTTOM) / 2.0, brim_compare_step(pic->page->all));
  double free_from = 0;
  for (size_t i = 0; i < pic->count; i++) {
    const span *s = &pic->process[i];
    brim_page_format_time(time, sizeof time, s->from);
    if (s->left < free_from || !time[0]) continue;
    free_from = s->left + 70;
    brim_text_printf(out, "<text class=\"t-small\" x=\"%.1f\" y=\"%d\">%s</text>\n", s->left, AXIS_Y, time + 11);
  }
  const span *last = &pic->process[pic->count - 1];
  brim_page_format_time(time, sizeof time, last->to);
  if (last->right - 60 > free_from && time[0])
    brim_text_printf(out, "<text class=\"t-small\" x=\"%.1f\" y=\"%d\" text-anchor=\"end\">%s</text>\n", last->right,
                     AXIS_Y, time + 11);
}

void brim_page_timeline_picture(const brim_page_run *page, brim_text *out)
{
  picture pic = {.page = page};
  choose(&pic);
  if (pic.count == 0) return;
  place(&pic);
  bool repeats = false;
  for (size_t i = 0; i < page->process_count; i++) repeats = repeats || page->process[i].recoveries > 0;
  brim_text_add(out, "<p class=\"legend\"><span><i class=\"swatch t-work\"></i>at work</span>\n");
  if (page->queue_seconds > 0 || page->state == BRIM_PAGE_RUNNING)
    brim_text_add(out, "<span><i class=\"swatch t-wait\"></i>in the queue</span>\n");
  if (repeats) brim_text_add(out, "<span><i class=\"swatch t-redo\"></i>out of memory, until repeated</span>\n");
  brim_text_printf(out, "<span><i class=\"swatch t-dot\"></i>checkpoint, at its %s</span></p>\n",
                   brim_compare_step(page->all));
  brim_text_printf(out,
                   "<div class=\"wide\"><svg class=\"time\" viewBox=\"0 0 %d %d\" role=\"img\" "
                   "aria-label=\"events by time\">\n",
                   WIDTH, HEIGHT);
  add_axis(&pic, out);
  for (size_t i = 0; i < pic.count; i++) {
    add_bar(&pic, i, out);
    add_end(&pic, i, out);
    add_steps(&pic, i, out);
    if (i > 0) add_gap(&pic.process[i - 1], &pic.process[i], out);
  }
  brim_text_add(out, "</svg></div>\n");
}
