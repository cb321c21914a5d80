/* Reads, searches and writes the device profile. See profile.h. */
#include "exec/profile.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/order.h"
#include "brim/host.h"

#define DIGITS 6                   /* significant digits of a printed time */
#define WAIT_NANOSECONDS 10000000L /* time between attempts to lock the file for writing */
#define WAITS_MAX 100              /* number of attempts */

typedef struct item {
  brim_profile_entry entry;
  uint64_t hash; /* hash of `what` */
  bool used, is_new;
} item;

/* Memory that a process takes. */
typedef struct size_item {
  const char *name;
  uint64_t bytes;
  int64_t at;
  bool is_new;
} size_item;

/* A median and the state of the times for which it was computed. */
typedef struct known_ratio {
  uint64_t hash; /* hash of the operation; 0: of all times */
  double median;
} known_ratio;
#define KNOWN_RATIOS 64

struct brim_profile {
  brim_arena arena;
  char *path; /* NULL: no file */
  brim_profile_subject subject;
  item *item;
  size_t count, room;
  size_item *size;
  size_t size_count;
  known_ratio ratio[KNOWN_RATIOS];
  size_t ratio_count;
};

/* ---- path ---- */

static uint64_t hash_text(const char *text)
{
  return brim_hash(BRIM_HASH_START, text, strlen(text));
}

brim_profile_subject brim_profile_subject_of(const char *backend, const char *file, const brim_device_info *info)
{
  brim_profile_subject subject = {.backend = backend, .device = info->name, .threads = info->threads};
  uint64_t bytes = 0;
  if (file[0] && brim_file_hash(file, &bytes, &subject.build) != BRIM_OK) subject.build = 0;
  return subject;
}

static bool find_folder(char *out, size_t room)
{
  const int length = brim_cache_folder(out, room);
  return length >= 0 && (size_t)length < room;
}

bool brim_profile_default_path(const brim_profile_subject *s, char *out, size_t room)
{
  char folder[4096], name[256];
  if (!find_folder(folder, sizeof folder)) return false;
  snprintf(name, sizeof name, "%s\n%d\n%" PRIx64, s->device, s->threads, s->build);
  const int length = snprintf(out, room, "%s/%s-%016" PRIx64 ".jsonl", folder, s->backend, hash_text(name));
  return length > 0 && (size_t)length < room;
}

/* Whether a file name has the form "cpu-0123456789abcdef.jsonl". */
static bool is_profile_name(const char *name)
{
  static const char ending[] = ".jsonl";
  const char *dash = strrchr(name, '-');
  return dash && dash > name && strspn(dash + 1, "0123456789abcdef") == 16 && strcmp(dash + 17, ending) == 0;
}

brim_status brim_profile_forget_all(size_t *count)
{
  char folder[4096], path[4400];
  *count = 0;
  if (!find_folder(folder, sizeof folder)) return BRIM_OK;
  DIR *files = opendir(folder);
  if (!files && errno == ENOENT) return BRIM_OK;
  if (!files) return brim_fail(BRIM_EIO, "cannot read the folder '%s': %s", folder, strerror(errno));
  brim_status status = BRIM_OK;
  for (const struct dirent *file; status == BRIM_OK && (file = readdir(files)) != NULL;) {
    if (!is_profile_name(file->d_name)) continue;
    snprintf(path, sizeof path, "%s/%s", folder, file->d_name);
    if (unlink(path) == 0)
      ++*count;
    else if (errno != ENOENT)
      status = brim_fail(BRIM_EIO, "cannot delete '%s': %s", path, strerror(errno));
  }
  closedir(files);
  return status;
}

/* ---- entries ---- */

static item *find_item(const brim_profile *p, const char *what, int64_t n)
{
  const uint64_t hash = hash_text(what);
  for (size_t i = 0; i < p->count; i++)
    if (p->item[i].hash == hash && p->item[i].entry.n == n && strcmp(p->item[i].entry.what, what) == 0)
      return &p->item[i];
  return NULL;
}

bool brim_profile_agree(double a, double b)
{
  return fabs(a - b) <= BRIM_PROFILE_APART * fmax(a, b);
}

static item *put_item(brim_profile *p, const char *what, int64_t n, double seconds, double rated, bool is_new)
{
  item *at = find_item(p, what, n);
  p->ratio_count = 0;
  if (!at) {
    BRIM_GROW(p->item, p->count, p->room);
    at = &p->item[p->count++];
    *at = (item){.entry = {.what = brim_arena_string(&p->arena, what), .n = n}, .hash = hash_text(what)};
  }
  at->entry.seconds = seconds;
  at->entry.rated = rated;
  at->is_new = is_new;
  return at;
}

const brim_profile_entry *brim_profile_find(brim_profile *p, const char *what, int64_t n)
{
  item *at = find_item(p, what, n);
  if (!at) return NULL;
  at->used = true;
  return &at->entry;
}

void brim_profile_neighbours(brim_profile *p, const char *what, int64_t n, const brim_profile_entry **below,
                             const brim_profile_entry **above)
{
  const uint64_t hash = hash_text(what);
  item *low = NULL, *high = NULL;
  for (size_t i = 0; i < p->count; i++) {
    item *at = &p->item[i];
    if (at->hash != hash || strcmp(at->entry.what, what) != 0) continue;
    if (at->entry.n < n && (!low || at->entry.n > low->entry.n)) low = at;
    if (at->entry.n > n && (!high || at->entry.n < high->entry.n)) high = at;
  }
  if (low) low->used = true;
  if (high) high->used = true;
  *below = low ? &low->entry : NULL;
  *above = high ? &high->entry : NULL;
}

static double find_ratio(brim_profile *p, const char *op)
{
  const size_t length = op ? strlen(op) : 0;
  double *ratio = brim_xmalloc((p->count + 1) * sizeof *ratio);
  size_t count = 0;
  for (size_t i = 0; i < p->count; i++) {
    const brim_profile_entry *e = &p->item[i].entry;
    if (op && (strncmp(e->what, op, length) != 0 || e->what[length] != ' ')) continue;
    if (e->rated <= 0) continue;
    ratio[count++] = e->seconds / e->rated;
    p->item[i].used = true;
  }
  qsort(ratio, count, sizeof *ratio, brim_by_double);
  const double median = count > 0 ? ratio[count / 2] : 0;
  free(ratio);
  return median;
}

double brim_profile_ratio(brim_profile *p, const char *op)
{
  const uint64_t hash = op ? hash_text(op) : 0;
  for (size_t i = 0; i < p->ratio_count; i++)
    if (p->ratio[i].hash == hash) return p->ratio[i].median;
  const double median = find_ratio(p, op);
  if (p->ratio_count < KNOWN_RATIOS) p->ratio[p->ratio_count++] = (known_ratio){hash, median};
  return median;
}

/* Rounds a value as the file does, so that the process that times something decides like processes that read the time
 * later. */
static double as_written(double value)
{
  char text[32];
  snprintf(text, sizeof text, "%.*g", DIGITS, value);
  return strtod(text, NULL);
}

void brim_profile_add(brim_profile *p, const char *what, int64_t n, double seconds, double rated)
{
  const item *was = find_item(p, what, n);
  const bool sure = was && (was->entry.sure || was->entry.doubted) && brim_profile_agree(was->entry.seconds, seconds);
  item *at = put_item(p, what, n, as_written(seconds), as_written(rated), true);
  at->entry.at = (int64_t)time(NULL);
  at->entry.doubted = false;
  at->entry.sure = sure;
}

bool brim_profile_lacks(brim_profile *p, const char *what, int64_t n)
{
  const brim_profile_entry *e = brim_profile_find(p, what, n);
  return !e || e->doubted;
}

size_t brim_profile_doubt(brim_profile *p)
{
  size_t count = 0;
  for (size_t i = 0; i < p->count; i++) {
    item *at = &p->item[i];
    if (!at->used || at->entry.sure || at->entry.doubted) continue;
    at->entry.doubted = at->is_new = true;
    count++;
  }
  return count;
}

/* ---- memory that a process takes ---- */

static size_item *find_size(const brim_profile *p, const char *name)
{
  for (size_t i = 0; i < p->size_count; i++)
    if (strcmp(p->size[i].name, name) == 0) return &p->size[i];
  return NULL;
}

static size_item *put_size(brim_profile *p, const char *name, uint64_t bytes, int64_t at)
{
  size_item *of = find_size(p, name);
  if (!of) {
    p->size = brim_xrealloc(p->size, (p->size_count + 1) * sizeof *p->size);
    of = &p->size[p->size_count++];
    *of = (size_item){.name = brim_arena_string(&p->arena, name)};
  }
  of->bytes = bytes;
  of->at = at;
  return of;
}

uint64_t brim_profile_bytes(const brim_profile *p, const char *takes)
{
  const size_item *of = find_size(p, takes);
  return of ? of->bytes : BRIM_PROFILE_UNKNOWN;
}

uint64_t brim_profile_most_bytes(const brim_profile *p, const char *begins)
{
  const size_item *most = NULL;
  for (size_t i = 0; i < p->size_count; i++)
    if (strncmp(p->size[i].name, begins, strlen(begins)) == 0 && (!most || p->size[i].bytes > most->bytes))
      most = &p->size[i];
  return most ? most->bytes : BRIM_PROFILE_UNKNOWN;
}

void brim_profile_add_bytes(brim_profile *p, const char *takes, uint64_t bytes)
{
  const size_item *was = find_size(p, takes);
  if (was && was->bytes == bytes) return;
  put_size(p, takes, bytes, (int64_t)time(NULL))->is_new = true;
}

/* ---- reading ---- */

static bool is_of(const json_t *head, const brim_profile_subject *s, char *what, size_t room)
{
  char build[17];
  const char *backend = json_string_value(json_object_get(head, "backend"));
  const char *device = json_string_value(json_object_get(head, "device"));
  const json_t *threads = json_object_get(head, "threads");
  const char *built = json_string_value(json_object_get(head, "build"));
  snprintf(build, sizeof build, "%016" PRIx64, s->build);
  snprintf(what, room, "%s on %s, %d threads%s", backend ? backend : s->backend, device ? device : s->device,
           threads ? (int)json_integer_value(threads) : (int)s->threads,
           built && s->build && strcmp(built, build) != 0 ? ", another build of the backend" : "");
  return (!backend || strcmp(backend, s->backend) == 0) && (!device || strcmp(device, s->device) == 0) &&
         (!threads || json_integer_value(threads) == s->threads) &&
         (!built || s->build == 0 || strcmp(built, build) == 0);
}

static brim_status check_head(const brim_profile *p, const json_t *head)
{
  char what[512];
  const json_t *version = json_object_get(head, "brim_profile");
  if (!json_is_integer(version)) return brim_fail(BRIM_EINVAL, "%s:1: not a brim device profile", p->path);
  if (json_integer_value(version) != BRIM_PROFILE_VERSION)
    return brim_fail(BRIM_ECONFIG, "%s has version %lld; this brim reads version %d", p->path,
                     (long long)json_integer_value(version), BRIM_PROFILE_VERSION);
  if (is_of(head, &p->subject, what, sizeof what)) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG, "the device profile %s is for %s, not for %s on %s, %d threads", p->path, what,
                   p->subject.backend, p->subject.device, (int)p->subject.threads);
}

static brim_status take_line(brim_profile *p, const json_t *line, int number)
{
  if (number == 1) return check_head(p, line);
  const char *takes = json_string_value(json_object_get(line, "takes"));
  if (takes) {
    const json_t *bytes = json_object_get(line, "bytes");
    if (!json_is_integer(bytes) || json_integer_value(bytes) < 0)
      return brim_fail(BRIM_EINVAL, "%s:%d: expected a size: {\"takes\": ..., \"bytes\": ...}", p->path, number);
    put_size(p, takes, (uint64_t)json_integer_value(bytes), json_integer_value(json_object_get(line, "at")));
    return BRIM_OK;
  }
  const char *what = json_string_value(json_object_get(line, "what"));
  const json_t *n = json_object_get(line, "n"), *seconds = json_object_get(line, "seconds");
  const double rated = json_number_value(json_object_get(line, "rated"));
  if (!what || !json_is_integer(n) || !json_is_number(seconds) || !(json_number_value(seconds) >= 0) || !(rated >= 0))
    return brim_fail(BRIM_EINVAL, "%s:%d: expected a time: {\"what\": ..., \"n\": ..., \"seconds\": ...}", p->path,
                     number);
  brim_profile_entry *e = &put_item(p, what, json_integer_value(n), json_number_value(seconds), rated, false)->entry;
  e->at = json_integer_value(json_object_get(line, "at"));
  e->doubted = json_is_true(json_object_get(line, "doubted"));
  e->sure = json_is_true(json_object_get(line, "sure"));
  return BRIM_OK;
}

static brim_status read_line(brim_profile *p, const char *text, int number)
{
  json_error_t problem;
  json_t *line = json_loads(text, JSON_REJECT_DUPLICATES, &problem);
  if (!json_is_object(line)) {
    json_decref(line);
    return brim_fail(BRIM_EINVAL, "%s:%d: %s", p->path, number, line ? "expected a JSON object" : problem.text);
  }
  const brim_status status = take_line(p, line, number);
  json_decref(line);
  return status;
}

static brim_status read_file(brim_profile *p)
{
  FILE *file = brim_fopen_to_read(p->path);
  if (!file && errno == ENOENT) return BRIM_OK;
  if (!file) return brim_fail(BRIM_ELOAD, "cannot open the device profile '%s': %s", p->path, brim_open_reason(errno));
  brim_status status = BRIM_OK;
  char *text = NULL;
  size_t room = 0;
  for (int number = 1; status == BRIM_OK && getline(&text, &room, file) >= 0; number++)
    if (text[strspn(text, " \t\r\n")] != '\0') status = read_line(p, text, number);
  if (status == BRIM_OK && ferror(file)) status = brim_fail(BRIM_EIO, "cannot read '%s': %s", p->path, strerror(errno));
  free(text);
  fclose(file);
  return status;
}

brim_status brim_profile_open(const char *path, const brim_profile_subject *subject, brim_profile **out)
{
  brim_profile *p = brim_xcalloc(1, sizeof *p);
  p->subject = *subject;
  p->subject.backend = brim_arena_string(&p->arena, subject->backend);
  p->subject.device = brim_arena_string(&p->arena, subject->device);
  p->path = path ? brim_xstrdup(path) : NULL;
  const brim_status status = path ? read_file(p) : BRIM_OK;
  if (status != BRIM_OK) {
    brim_profile_close(p);
    return status;
  }
  *out = p;
  return BRIM_OK;
}

void brim_profile_close(brim_profile *p)
{
  if (!p) return;
  brim_arena_release(&p->arena);
  free(p->item);
  free(p->size);
  free(p->path);
  free(p);
}

/* ---- writing ---- */

static void print_object(json_t *object, brim_text *out)
{
  char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(DIGITS));
  if (text) brim_text_add(out, text);
  brim_text_add(out, "\n");
  free(text);
  json_decref(object);
}

static void print_head(const brim_profile_subject *s, brim_text *out)
{
  char build[17];
  json_t *head = json_pack("{s:i, s:s, s:s, s:i}", "brim_profile", BRIM_PROFILE_VERSION, "backend", s->backend,
                           "device", s->device, "threads", (int)s->threads);
  snprintf(build, sizeof build, "%016" PRIx64, s->build);
  if (s->build) json_object_set_new(head, "build", json_string(build));
  print_object(head, out);
}

static int by_name(const void *a, const void *b)
{
  const brim_profile_entry *x = &((const item *)a)->entry, *y = &((const item *)b)->entry;
  const int order = strcmp(x->what, y->what);
  return order ? order : (x->n > y->n) - (x->n < y->n);
}

/* Prints the times, sorted by name; `all`: also those that were not used. */
static void print_items(const brim_profile *p, bool all, brim_text *out)
{
  item *sorted = brim_xmalloc((p->count + 1) * sizeof *sorted);
  if (p->count > 0) memcpy(sorted, p->item, p->count * sizeof *sorted);
  qsort(sorted, p->count, sizeof *sorted, by_name);
  for (size_t i = 0; i < p->count; i++) {
    const brim_profile_entry *e = &sorted[i].entry;
    if (!all && !sorted[i].used) continue;
    json_t *line = json_pack("{s:s, s:I, s:f}", "what", e->what, "n", (json_int_t)e->n, "seconds", e->seconds);
    if (e->at > 0) json_object_set_new(line, "at", json_integer((json_int_t)e->at));
    if (all && e->doubted) json_object_set_new(line, "doubted", json_true());
    if (all && e->sure) json_object_set_new(line, "sure", json_true());
    if (e->rated > 0) json_object_set_new(line, "rated", json_real(e->rated));
    print_object(line, out);
  }
  free(sorted);
}

static int by_size_name(const void *a, const void *b)
{
  return strcmp(((const size_item *)a)->name, ((const size_item *)b)->name);
}

/* Prints the measured memory, sorted by name. */
static void print_sizes(const brim_profile *p, brim_text *out)
{
  if (p->size_count == 0) return;
  size_item *sorted = brim_xmalloc(p->size_count * sizeof *sorted);
  memcpy(sorted, p->size, p->size_count * sizeof *sorted);
  qsort(sorted, p->size_count, sizeof *sorted, by_size_name);
  for (size_t i = 0; i < p->size_count; i++) {
    const size_item *of = &sorted[i];
    print_object(
        json_pack("{s:s, s:I, s:I}", "takes", of->name, "bytes", (json_int_t)of->bytes, "at", (json_int_t)of->at), out);
  }
  free(sorted);
}

void brim_profile_print_used(const brim_profile *p, brim_text *out)
{
  bool any = false;
  for (size_t i = 0; i < p->count; i++) any = any || p->item[i].used;
  if (!any) return;
  print_head(&p->subject, out);
  print_items(p, false, out);
}

/* Adds the entries that other processes have written meanwhile. */
static void merge(brim_profile *p)
{
  brim_profile *there = NULL;
  if (brim_profile_open(p->path, &p->subject, &there) != BRIM_OK) return; /* the file is damaged, so it is replaced */
  for (size_t i = 0; i < there->count; i++) {
    const brim_profile_entry *e = &there->item[i].entry;
    item *own = find_item(p, e->what, e->n);
    if (own && (own->is_new || e->at <= own->entry.at)) continue;
    own = put_item(p, e->what, e->n, e->seconds, e->rated, false);
    own->entry.at = e->at;
    own->entry.doubted = e->doubted;
    own->entry.sure = e->sure;
  }
  for (size_t i = 0; i < there->size_count; i++) {
    const size_item *of = &there->size[i], *own = find_size(p, of->name);
    if (!own || (!own->is_new && of->at > own->at)) put_size(p, of->name, of->bytes, of->at);
  }
  brim_profile_close(there);
}

/* Writers hold the lock only for a moment. EIO if a writer does not finish, for example because it is stopped
 * (Ctrl-Z). */
static brim_status begin_to_write(const char *path, int *fd)
{
  for (int i = 0; i < WAITS_MAX; i++) {
    BRIM_TRY(brim_cache_begin(path, fd));
    if (*fd >= 0) return BRIM_OK;
    nanosleep(&(struct timespec){.tv_nsec = WAIT_NANOSECONDS}, NULL);
  }
  return brim_fail(BRIM_EIO, "another process is writing it");
}

/* Writes all known times, including those that others wrote since the file was read. */
static brim_status write_all(brim_profile *p)
{
  brim_text text = {0};
  int fd = -1;
  BRIM_TRY(begin_to_write(p->path, &fd));
  merge(p);
  print_head(&p->subject, &text);
  print_items(p, true, &text);
  print_sizes(p, &text);
  brim_status status = brim_file_write_all(fd, p->path, text.s, text.length);
  brim_text_release(&text);
  if (status == BRIM_OK) return brim_cache_end(p->path, &fd, true);
  (void)brim_cache_end(p->path, &fd, false);
  return status;
}

brim_status brim_profile_save(brim_profile *p)
{
  bool any = false;
  for (size_t i = 0; i < p->count; i++) any = any || p->item[i].is_new;
  for (size_t i = 0; i < p->size_count; i++) any = any || p->size[i].is_new;
  if (!any || !p->path) return BRIM_OK;
  const brim_status status = write_all(p);
  for (size_t i = 0; i < p->count; i++) p->item[i].is_new = false;
  for (size_t i = 0; i < p->size_count; i++) p->size[i].is_new = false;
  if (status == BRIM_OK) return BRIM_OK;
  const brim_status failure =
      brim_fail(BRIM_EIO, "cannot write the device profile '%s': %s", p->path, brim_error_text());
  free(p->path); /* report the error once, then keep the times in memory */
  p->path = NULL;
  return failure;
}
