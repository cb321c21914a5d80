/* Finds the processes of a run from its events: a run that was resumed has several. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/order.h"
#include "base/text.h"
#include "observe/progress.h"
#include "report/page_parts.h"

#define PROCESSES_MAX 10000 /* limit; events of further processes count as the last one's */

bool brim_page_is_event(const json_t *event, const char *kind)
{
  return strcmp(brim_json_string(event, "event"), kind) == 0;
}

static bool is_end(const json_t *event)
{
  return brim_page_is_event(event, "finished") || brim_page_is_event(event, "interrupted") ||
         brim_page_is_event(event, "failed");
}

static bool is_begin(const json_t *event)
{
  return brim_page_is_event(event, "started") || brim_page_is_event(event, "resumed");
}

static brim_page_process *begin_process(brim_page_run *page, size_t index, const json_t *event)
{
  brim_page_process *p = &page->process[page->process_count++];
  const json_t *here = json_array_get(page->environment, page->process_count - 1);
  *p = (brim_page_process){.first = index,
                           .begin = INFINITY,
                           .end = -INFINITY,
                           .from_step = brim_json_number(event, "step"),
                           .to_step = NAN,
                           .is_resumed = brim_page_is_event(event, "resumed"),
                           .environment = here};
  return p;
}

/* The event of a wait has its own time, which may be earlier than that of the start. */
static void take_event(brim_page_process *p, const json_t *event)
{
  const double time = brim_json_number(event, "time"), step = brim_json_number(event, "step");
  p->count++;
  if (time > 0 && time < p->begin) p->begin = time;
  if (time > 0 && time > p->end && !brim_page_is_event(event, "hook_failed"))
    p->end = time; /* the run may have ended */
  if (isfinite(step)) p->to_step = step;
  if (is_end(event)) p->how = brim_json_string(event, "event");
  const double queued = brim_json_number(event, "queue_seconds"),
               repeated = brim_json_number(event, "recovered_seconds");
  if (queued > 0) p->queue_seconds += queued;
  if (repeated >= 0) p->recoveries++;
}

/* A process that has not recorded its end ran at least until its last record. */
static void extend_last(brim_page_run *page)
{
  char path[BRIM_PATH_MAX];
  struct stat info;
  brim_page_process *last = &page->process[page->process_count - 1];
  const brim_series *train = &page->run->metrics.split[BRIM_PART_TRAIN];
  if (page->state == BRIM_PAGE_ENDED) return;
  if (train->count > 0 && !(last->to_step > train->step[train->count - 1]))
    last->to_step = train->step[train->count - 1];
  if (page->state == BRIM_PAGE_RUNNING && page->live) {
    last->end = fmax(last->end, page->live->written);
    return;
  }
  if (brim_path_join(path, page->run->dir, "metrics.jsonl") == BRIM_OK && stat(path, &info) == 0)
    last->end = fmax(last->end, (double)info.st_mtime);
}

void brim_page_read_processes(brim_page_run *page)
{
  size_t index, count = 0;
  json_t *event;
  brim_page_process *now = NULL;
  json_array_foreach(page->events, index, event) count += is_begin(event);
  if (count > PROCESSES_MAX) count = PROCESSES_MAX;
  page->process = BRIM_ARENA_NEW(&page->all->arena, brim_page_process, count);
  json_array_foreach(page->events, index, event)
  {
    if (is_begin(event) && page->process_count < count) now = begin_process(page, index, event);
    if (now) take_event(now, event);
  }
  if (page->process_count == 0) return;
  extend_last(page);
  for (size_t i = 0; i < page->process_count; i++) {
    brim_page_process *p = &page->process[i];
    page->queue_seconds += p->queue_seconds;
    if (p->end > p->begin) page->work_seconds += fmax(0, p->end - p->begin - p->queue_seconds);
  }
}

double brim_page_seconds_left(const brim_page_run *page, double steps)
{
  char path[BRIM_PATH_MAX];
  struct stat info;
  if (page->process_count == 0 || brim_path_join(path, page->run->dir, "metrics.jsonl") != BRIM_OK) return NAN;
  if (stat(path, &info) != 0) return NAN;
  const brim_page_process *p = &page->process[page->process_count - 1];
  /* The first event comes after the wait in the queue. */
  const double begin = brim_json_number(json_array_get(page->events, p->first), "time");
  const double step = page->run->summary.steps,
               record = (double)info.st_mtim.tv_sec + 1e-9 * (double)info.st_mtim.tv_nsec;
  const double left = brim_progress_seconds(record - begin, step - p->from_step, steps - step);
  const double now = page->live ? page->live->written : brim_wall_now();
  return isnan(left) ? left : fmax(0, left - fmax(0, now - record));
}

/* Records of a resumed run may include steps of an earlier process; their time is already scaled. */
double brim_page_step_seconds(const brim_page_run *page)
{
  const brim_series *train = &page->run->metrics.split[BRIM_PART_TRAIN];
  const double *seconds = brim_series_values(train, "seconds");
  double *each = BRIM_ARENA_NEW(&page->all->arena, double, train->count);
  size_t count = 0;
  for (size_t i = 0; seconds && i < train->count; i++) {
    const double steps = train->step[i] - (i > 0 ? train->step[i - 1] : 0);
    if (steps > 0 && seconds[i] > 0) each[count++] = seconds[i] / steps;
  }
  if (count == 0) return NAN;
  qsort(each, count, sizeof *each, brim_by_double);
  return (each[(count - 1) / 2] + each[count / 2]) / 2;
}
