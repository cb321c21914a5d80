/* Parses the text into a short list of faults, each with a count of its calls. A query takes a lock and scans the list;
 * a run without faults pays one load per query. */
#include "base/fault.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

#define FAULTS_MAX 32
#define NAMES_MAX 32 /* names of library operations in a report */
#define NAME_BYTES 32
#define PATH_BYTES 512
#define UNTIL "until="

enum point { ALLOC, PLACE, LIB, BEGIN, CLIENT, UPDATE, POINTS };
static const char *const point_names[POINTS] = {BRIM_FAULT_ALLOC, BRIM_FAULT_PLACE,  BRIM_FAULT_LIB,
                                                BRIM_FAULT_BEGIN, BRIM_FAULT_CLIENT, BRIM_FAULT_UPDATE};

typedef struct fault {
  enum point point;
  char name[NAME_BYTES]; /* "": any name */
  int64_t rank, step;    /* -1: any rank or step */
  int64_t count;         /* the number of the call that fails, or the period */
  bool every, onwards;
  char until[PATH_BYTES]; /* "": no end */
  bool is_over;           /* the file `until` has appeared */
  int64_t calls;
} fault;

typedef struct counter {
  enum point point;
  const char *name; /* the name that the caller passes; NULL: none */
  int64_t calls, failed;
} counter;

static atomic_bool armed;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* the lock protects it while faults are armed */
static fault faults[FAULTS_MAX];
static size_t fault_count;
static counter counters[NAMES_MAX];
static size_t counter_count;
static int64_t present_step;
static const char *given;
static int report_fd = -1;

static int64_t own_rank;

/* ---- the language ---- */

typedef struct reader {
  const char *text, *at;
} reader;

static brim_status syntax_error(const reader *r, const char *at, const char *what)
{
  return brim_fail(BRIM_ECONFIG,
                   "%s, character %d: %s\n  %s\n  %*s\n"
                   "a fault is [rank:R:][step:N:]POINT; POINT is alloc[:COUNT], place[:COUNT], lib[:NAME[:COUNT]], "
                   "begin[:COUNT], client[:COUNT], update[:COUNT]; COUNT is 17, 17+ or %%5; :until=PATH may follow; "
                   "commas separate faults",
                   BRIM_FAULT_ENVIRONMENT, (int)(at - r->text) + 1, what, r->text, (int)(at - r->text) + 1, "^");
}

static bool ends(const reader *r)
{
  return *r->at == '\0' || *r->at == ',';
}

/* Returns the length of the next word. */
static size_t word_length(const reader *r)
{
  return strcspn(r->at, ":,");
}

static bool is_word(const reader *r, const char *word)
{
  return word_length(r) == strlen(word) && memcmp(r->at, word, strlen(word)) == 0;
}

static brim_status take_number(reader *r, int64_t least, int64_t *out)
{
  const char *from = r->at;
  int64_t n = 0;
  if (!isdigit((unsigned char)*r->at)) return syntax_error(r, from, "expected a number");
  for (; isdigit((unsigned char)*r->at); r->at++) {
    if (n > (INT64_MAX - 9) / 10) return syntax_error(r, from, "the number is too large");
    n = n * 10 + (*r->at - '0');
  }
  if (n < least) return syntax_error(r, from, "steps and calls are counted from 1, so 0 is not allowed");
  *out = n;
  return BRIM_OK;
}

/* Reads "step:" or "rank:" with its number, if it comes next. */
static brim_status take_where(reader *r, const char *word, int64_t least, int64_t *out)
{
  if (!is_word(r, word)) return BRIM_OK;
  r->at += strlen(word);
  if (*r->at != ':') return syntax_error(r, r->at, "expected ':' and a number");
  r->at++;
  BRIM_TRY(take_number(r, least, out));
  if (!ends(r) && *r->at != ':') return syntax_error(r, r->at, "expected ':' or ','");
  if (*r->at == ':') r->at++;
  return BRIM_OK;
}

static brim_status take_point(reader *r, fault *f)
{
  for (int p = 0; p < POINTS; p++)
    if (is_word(r, point_names[p])) {
      f->point = (enum point)p;
      r->at += strlen(point_names[p]);
      return BRIM_OK;
    }
  if (is_word(r, "rank") || is_word(r, "step"))
    return syntax_error(r, r->at, "write rank:R before step:N, and each at most once");
  return syntax_error(r, r->at, "unknown point; expected alloc, place, lib, begin, client or update");
}

static bool is_name(char c)
{
  return (c >= 'a' && c <= 'z') || isdigit((unsigned char)c) || c == '_';
}

static brim_status take_until(reader *r, fault *f)
{
  const char *path = r->at += strlen(UNTIL);
  const size_t length = strcspn(path, ",");
  if (length == 0) return syntax_error(r, path, "expected a path");
  if (length >= PATH_BYTES) return syntax_error(r, path, "the path is too long");
  memcpy(f->until, path, length);
  r->at += length;
  return BRIM_OK;
}

/* Reads the words after the point, in this order: a name, a count, a path. */
static brim_status take_details(reader *r, fault *f)
{
  enum { NAME, COUNT, PATH, NOTHING } next = f->point == LIB ? NAME : COUNT;
  while (*r->at == ':') {
    r->at++;
    if (next <= PATH && brim_starts_with(r->at, UNTIL)) {
      BRIM_TRY(take_until(r, f));
      next = NOTHING;
    } else if (next <= COUNT && (*r->at == '%' || isdigit((unsigned char)*r->at))) {
      f->every = *r->at == '%';
      r->at += f->every;
      BRIM_TRY(take_number(r, 1, &f->count));
      f->onwards = !f->every && *r->at == '+';
      r->at += f->onwards;
      next = PATH;
    } else if (next == NAME && *r->at >= 'a' && *r->at <= 'z') {
      const size_t length = word_length(r);
      if (length >= NAME_BYTES) return syntax_error(r, r->at, "the name is too long for an operation");
      for (size_t i = 0; i < length; i++)
        if (!is_name(r->at[i]))
          return syntax_error(r, r->at + i, "names of operations are lower-case letters, digits and '_'");
      memcpy(f->name, r->at, length);
      r->at += length;
      next = COUNT;
    } else {
      static const char *const wanted[] = {"expected a name, a count or until=PATH", "expected a count or until=PATH",
                                           "expected until=PATH", "nothing may follow"};
      return syntax_error(r, r->at, wanted[next]);
    }
  }
  return ends(r) ? BRIM_OK : syntax_error(r, r->at, "expected ':' or ','");
}

static brim_status take_fault(reader *r, fault *f)
{
  *f = (fault){.rank = -1, .step = -1};
  BRIM_TRY(take_where(r, "rank", 0, &f->rank));
  BRIM_TRY(take_where(r, "step", 1, &f->step));
  const bool bare = f->step > 0 && (r->at[-1] != ':' || brim_starts_with(r->at, UNTIL));
  f->point = BEGIN;
  if (!bare) {
    BRIM_TRY(take_point(r, f));
  } else if (!ends(r)) {
    r->at--; /* the ':' before until= */
  }
  BRIM_TRY(take_details(r, f));
  if (f->count == 0) { /* no count: the first call fails, or all calls until the file appears */
    f->count = 1;
    f->onwards = f->until[0] != '\0';
  }
  return BRIM_OK;
}

static brim_status take_faults(const char *text)
{
  reader r = {text, text};
  fault_count = 0;
  for (;;) {
    if (fault_count == FAULTS_MAX) return syntax_error(&r, r.at, "too many faults");
    BRIM_TRY(take_fault(&r, &faults[fault_count++]));
    if (*r.at == '\0') return BRIM_OK;
    r.at++;
  }
}

/* ---- counting ---- */

static counter *counter_of(enum point point, const char *name)
{
  for (size_t i = 0; i < counter_count; i++) {
    counter *c = &counters[i];
    if (c->point == point && (c->name == name || (c->name && name && strcmp(c->name, name) == 0))) return c;
  }
  if (counter_count == NAMES_MAX) return NULL;
  counters[counter_count] = (counter){.point = point, .name = name};
  return &counters[counter_count++];
}

/* Every fault counts each call that matches it, even if another fault makes that call fail. */
static bool counts(fault *f, enum point point, const char *name)
{
  if (f->point != point || (f->rank >= 0 && f->rank != own_rank) || (f->step >= 0 && f->step != present_step))
    return false;
  if (f->name[0] && (!name || strcmp(f->name, name) != 0)) return false;
  f->calls++;
  if (f->every ? f->calls % f->count != 0 : f->onwards ? f->calls < f->count : f->calls != f->count) return false;
  if (f->until[0] && !f->is_over) f->is_over = access(f->until, F_OK) == 0;
  return !f->is_over;
}

bool brim_fault_hit(const char *point, const char *name)
{
  if (!atomic_load_explicit(&armed, memory_order_relaxed)) return false;
  const int error = errno;
  int p = 0;
  while (p < POINTS && strcmp(point, point_names[p]) != 0) p++;
  if (p == POINTS) return false;
  bool hit = false;
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < fault_count; i++) hit |= counts(&faults[i], (enum point)p, name);
  counter *c = report_fd >= 0 ? counter_of((enum point)p, name) : NULL;
  if (c) {
    c->calls++;
    c->failed += hit;
  }
  pthread_mutex_unlock(&lock);
  errno = error;
  return hit;
}

/* Writes the report, with one write for each line and without stdio, which allocates. If the report cannot be written,
 * the run continues. */
static void write_report(void)
{
  for (size_t i = 0; i < counter_count && report_fd >= 0; i++) {
    const counter *c = &counters[i];
    char line[160];
    const int length = snprintf(line, sizeof line, "%" PRId64 " %s %s %" PRId64 " %" PRId64 "\n", present_step,
                                point_names[c->point], c->name ? c->name : "-", c->calls, c->failed);
    if (length > 0) (void)!write(report_fd, line, (size_t)length < sizeof line ? (size_t)length : sizeof line - 1);
  }
  counter_count = 0;
}

void brim_fault_set_rank(int32_t rank)
{
  own_rank = rank;
}

void brim_fault_step(int64_t step)
{
  if (!atomic_load_explicit(&armed, memory_order_relaxed)) return;
  pthread_mutex_lock(&lock);
  write_report();
  present_step = step;
  pthread_mutex_unlock(&lock);
}

const char *brim_fault_text(void)
{
  return given;
}

brim_status brim_fault_open(const char *text, const char *report)
{
  brim_fault_close();
  if (text && text[0]) {
    const brim_status status = take_faults(text);
    if (status != BRIM_OK) {
      fault_count = 0;
      return status;
    }
    given = text;
  }
  if (report && report[0]) {
    report_fd = open(report, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (report_fd < 0) {
      const int error = errno;
      brim_fault_close();
      return brim_fail(BRIM_EIO, "%s: '%s' cannot be written: %s", BRIM_FAULT_REPORT_ENVIRONMENT, report,
                       strerror(error));
    }
  }
  atomic_store(&armed, fault_count > 0 || report_fd >= 0);
  return BRIM_OK;
}

void brim_fault_close(void)
{
  atomic_store(&armed, false);
  pthread_mutex_lock(&lock);
  write_report();
  if (report_fd >= 0) close(report_fd);
  report_fd = -1;
  fault_count = counter_count = 0;
  present_step = 0;
  given = NULL;
  pthread_mutex_unlock(&lock);
}
