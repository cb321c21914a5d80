#include "memory/live.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "base/thread.h"
#include "brim/tensor.h"

#define BOARD_NAME "runs"
#define MAGIC UINT64_C(0x3145564C4D495242) /* "BRIMLVE1" */
#define LOCK_SECONDS 1.0 /* maximum wait for the board, because being visible is not worth a longer wait */
#define WRITE_SECONDS (1.0 / BRIM_LIVE_WRITES_PER_SECOND)
#define AGAINS_MAX 20            /* most times that slots are read again in one look, because they were being written */
#define AGAIN_NANOSECONDS 200000 /* wait before each of these reads */
#define TIME_MAX 1e11            /* seconds since 1970 */
#define RANKS_MAX 65536
#define DEVICES_MAX 65536
#define FLAGS_ALL (BRIM_LIVE_ROUNDS | BRIM_LIVE_TOKENS | BRIM_LIVE_DETAILS)

_Static_assert(BRIM_ROLE_COUNT <= BRIM_LIVE_CLASSES, "a slot has room for the bytes of each role");

/* This process's slot. */
static struct live {
  char command[sizeof((brim_live_slot *)0)->command];
  enum brim_live_mode mode;
  brim_board board; /* while the thread runs, only the thread uses the board */
  size_t slot;
  pthread_t thread;
  bool is_open;
  int folder_fd;          /* a descriptor that shows the folder's name to others; -1: none */
  pthread_mutex_t lock;   /* protects the fields below */
  pthread_cond_t wake;    /* wakes the thread */
  pthread_cond_t written; /* the thread has written the slot */
  brim_live_slot own;
  uint32_t before_wait; /* state */
  bool is_changed, is_idle, stop;
  bool is_urgent; /* a change must be written at once */
  bool is_over;   /* the thread has given up */
} live = {.lock = PTHREAD_MUTEX_INITIALIZER, .folder_fd = -1};

/* ---- the board ---- */

void brim_live_seal(brim_live_slot *s)
{
  s->layout = BRIM_LIVE_LAYOUT;
  s->bytes = sizeof *s;
  s->check = 0;
  s->check = brim_hash(BRIM_HASH_START, s, sizeof *s);
}

static brim_status open_board(brim_board *board)
{
  BRIM_TRY(brim_board_open(board, BOARD_NAME, MAGIC, sizeof(brim_live_slot), LOCK_SECONDS));
  const brim_status status = brim_board_lock(board);
  if (status != BRIM_OK) brim_board_close(board);
  return status;
}

static brim_status take_slot(brim_board *board, brim_live_slot *own)
{
  for (live.slot = 0; live.slot < BRIM_BOARD_SLOTS; live.slot++) {
    if (!brim_board_is_free(board, live.slot)) continue;
    own->board_fd = board->fd;
    own->stamp++;
    brim_live_seal(own);
    return brim_board_write(board, live.slot, own);
  }
  return brim_fail(BRIM_ENODEVICE, "%d processes have their state there, which is the maximum", BRIM_BOARD_SLOTS);
}

static brim_status publish(brim_live_slot *own)
{
  BRIM_TRY(open_board(&live.board));
  const brim_status status = take_slot(&live.board, own);
  brim_board_unlock(&live.board);
  if (status != BRIM_OK) brim_board_close(&live.board);
  return status;
}

static void warn(void)
{
  brim_log(BRIM_LOG_WARN, "other programs cannot see the state of this process: %s\nobserve.live=off turns this off",
           brim_error_text());
}

/* ---- the thread ---- */

/* Writes the slot; if the file was removed or truncated, makes it again. */
static brim_status write_slot(brim_live_slot *own)
{
  if (brim_board_is_whole(&live.board)) {
    own->stamp++;
    brim_live_seal(own);
    return brim_board_rewrite(&live.board, live.slot, own);
  }
  brim_board_close(&live.board);
  return publish(own);
}

/* Waits until there is something to write. */
static void wait_for_change(void)
{
  live.is_idle = true;
  while (!live.stop && !live.is_changed) pthread_cond_wait(&live.wake, &live.lock);
  live.is_idle = false;
}

static void *work(void *context)
{
  uint64_t stamp = live.own.stamp;
  bool works = true;
  pthread_mutex_lock(&live.lock);
  while (!live.stop && works) {
    const struct timespec until = brim_time_in(WRITE_SECONDS);
    while (!live.stop && !live.is_urgent && pthread_cond_timedwait(&live.wake, &live.lock, &until) != ETIMEDOUT)
      continue;
    wait_for_change();
    if (live.stop) break;
    brim_live_slot copy = live.own;
    const bool is_urgent = live.is_urgent;
    live.is_changed = false;
    pthread_mutex_unlock(&live.lock);
    copy.stamp = stamp;
    works = write_slot(&copy) == BRIM_OK;
    stamp = copy.stamp;
    if (!works) warn();
    pthread_mutex_lock(&live.lock);
    live.own.board_fd = copy.board_fd;
    /* Without this test, a change that became urgent during the write would be lost. */
    if (is_urgent) live.is_urgent = false;
    pthread_cond_signal(&live.written);
  }
  live.is_over = true;
  pthread_cond_signal(&live.written);
  pthread_mutex_unlock(&live.lock);
  return context;
}

/* ---- beginning and end ---- */

/* The number of clock ticks after the host's start at which a process began: the 22nd field of /proc/PID/stat, counted
 * after the name, which may contain spaces and parentheses. 0: not known. */
static uint64_t start_ticks_of(const char *path)
{
  char line[1024];
  (void)brim_file_start(path, line, sizeof line);
  const char *at = strrchr(line, ')');
  for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
  return at ? strtoull(at, NULL, 10) : 0;
}

static uint64_t own_pid_space(void)
{
  struct stat info;
  return stat("/proc/self/ns/pid", &info) == 0 ? (uint64_t)info.st_ino : 0;
}

static void fill_own(const brim_world *world)
{
  const double now = brim_wall_now();
  live.own = (brim_live_slot){.pid = getpid(),
                              .pid_space = own_pid_space(),
                              .start_ticks = start_ticks_of("/proc/self/stat"),
                              .uid = geteuid(),
                              .rank = world->ranks > 1 ? world->rank : 0,
                              .ranks = world->ranks > 1 ? world->ranks : 1,
                              .state = BRIM_LIVE_PLANNING,
                              .device = -1,
                              .folder_fd = -1,
                              .started = now,
                              .since = now,
                              .updated = now,
                              .rate = NAN,
                              .left_seconds = NAN,
                              .loss = NAN,
                              .accuracy = NAN};
  memcpy(live.own.command, live.command, sizeof live.command);
  if (live.mode == BRIM_LIVE_ALL) live.own.flags |= BRIM_LIVE_DETAILS;
}

void brim_live_command(const char *name)
{
  snprintf(live.command, sizeof live.command, "%s", name);
}

void brim_live_begin(enum brim_live_mode mode, const brim_world *world)
{
  static bool has_failed;
  if (live.is_open || has_failed || mode == BRIM_LIVE_OFF || !live.command[0]) return;
  live.mode = mode;
  fill_own(world);
  has_failed = publish(&live.own) != BRIM_OK;
  if (has_failed) {
    warn();
    return;
  }
  pthread_condattr_t attr;
  pthread_condattr_init(&attr);
  pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
  pthread_cond_init(&live.wake, &attr);
  pthread_cond_init(&live.written, &attr);
  pthread_condattr_destroy(&attr);
  live.stop = live.is_changed = live.is_idle = live.is_urgent = live.is_over = false;
  const int failed = brim_thread_start(&live.thread, "brim-live", work, NULL);
  live.is_open = failed == 0;
  if (live.is_open) return;
  has_failed = true;
  brim_board_close(&live.board);
  brim_fail(BRIM_ENOMEM_HOST, "cannot start a thread: %s", strerror(failed));
  warn();
}

void brim_live_end(void)
{
  if (!live.is_open) return;
  pthread_mutex_lock(&live.lock);
  live.stop = true;
  pthread_cond_signal(&live.wake);
  pthread_mutex_unlock(&live.lock);
  pthread_join(live.thread, NULL);
  pthread_cond_destroy(&live.wake);
  pthread_cond_destroy(&live.written);
  brim_board_close(&live.board);
  if (live.folder_fd >= 0) close(live.folder_fd);
  live.folder_fd = -1;
  live.is_open = false;
}

/* ---- changes ---- */

/* Returns the slot to change; NULL: none is published. Call done() afterwards. */
static brim_live_slot *change(void)
{
  if (!live.is_open) return NULL;
  pthread_mutex_lock(&live.lock);
  live.own.updated = brim_wall_now();
  return &live.own;
}

static void done(void)
{
  live.is_changed = true;
  if (live.is_idle) pthread_cond_signal(&live.wake);
  pthread_mutex_unlock(&live.lock);
}

static void set_state(brim_live_slot *s, uint32_t state)
{
  if (s->state != state) s->since = s->updated;
  s->state = state;
}

enum brim_live_state brim_live_now(enum brim_live_state state)
{
  brim_live_slot *s = change();
  if (!s) return state;
  const enum brim_live_state before = (enum brim_live_state)s->state;
  set_state(s, state);
  done();
  return before;
}

void brim_live_wait(size_t place, uint64_t bytes)
{
  brim_live_slot *s = change();
  if (!s) return;
  const bool waits = s->state == BRIM_LIVE_WAITING;
  if (place > 0) {
    if (!waits) live.before_wait = s->state;
    s->peak_bytes = bytes;
  }
  s->place = (uint32_t)place;
  if (place > 0 || waits) set_state(s, place > 0 ? BRIM_LIVE_WAITING : live.before_wait);
  done();
}

void brim_live_place(const brim_live_placed *p)
{
  brim_live_slot *s = change();
  if (!s) return;
  s->device = p->device;
  s->key = p->key;
  s->peak_bytes = p->peak_bytes;
  s->taken_bytes = p->taken_bytes;
  s->queue_seconds = p->queue_seconds;
  for (size_t i = 0; i < BRIM_LIVE_CLASSES; i++) s->class_bytes[i] = i < p->classes ? p->class_bytes[i] : 0;
  snprintf(s->backend, sizeof s->backend, "%s", p->backend);
  done();
}

/* Opens the lock's file again, only so that others can find its name. This descriptor holds no lock, and stays open
 * when the run has released its folder but still works, for example in its last hook. */
static int open_name(int lock_fd)
{
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", lock_fd);
  const int fd = lock_fd >= 0 ? open(link, O_PATH | O_CLOEXEC) : -1;
  return fd >= 0 ? fd : lock_fd;
}

/* Waits until the slot is written, so that a process that sees the run's folder also finds the slot that names it. */
static void wait_until_written(void)
{
  const struct timespec until = brim_time_in(LOCK_SECONDS);
  pthread_mutex_lock(&live.lock);
  live.is_urgent = live.is_changed;
  pthread_cond_signal(&live.wake);
  while (live.is_urgent && !live.is_over && pthread_cond_timedwait(&live.written, &live.lock, &until) != ETIMEDOUT)
    continue;
  pthread_mutex_unlock(&live.lock);
}

void brim_live_run(const char *dir, int lock_fd, const char *model)
{
  char path[PATH_MAX];
  const int name_fd = live.is_open ? open_name(lock_fd) : -1;
  brim_live_slot *s = change();
  if (!s) return;
  if (live.folder_fd >= 0) close(live.folder_fd);
  live.folder_fd = name_fd == lock_fd ? -1 : name_fd;
  s->folder_fd = name_fd;
  if (live.mode == BRIM_LIVE_ALL) {
    const char *whole = realpath(dir, path);
    if (whole && strlen(whole) < sizeof s->run) snprintf(s->run, sizeof s->run, "%s", whole);
    snprintf(s->model, sizeof s->model, "%s", model);
  }
  done();
  wait_until_written();
}

static double known_or_nan(double value)
{
  return value >= 0 && isfinite(value) ? value : NAN;
}

void brim_live_progress(const brim_live_step *p)
{
  brim_live_slot *s = change();
  if (!s) return;
  s->step = p->step;
  s->steps = p->steps;
  s->epoch = p->epoch;
  s->epochs = p->epochs;
  s->rate = known_or_nan(p->rate);
  s->left_seconds = known_or_nan(p->left_seconds);
  s->flags =
      (s->flags & BRIM_LIVE_DETAILS) | (p->by_rounds ? BRIM_LIVE_ROUNDS : 0U) | (p->in_tokens ? BRIM_LIVE_TOKENS : 0U);
  if (live.mode == BRIM_LIVE_ALL) {
    s->loss = p->loss;
    s->accuracy = p->accuracy;
  }
  done();
}

/* ---- reading ---- */

static bool is_time(double t)
{
  return t >= 0 && t < TIME_MAX;
}

/* Whether this is a number that is not negative, or NAN for an unknown one. */
static bool is_figure(double x)
{
  return isnan(x) || (x >= 0 && isfinite(x));
}

static bool has_sane_numbers(const brim_live_slot *s)
{
  bool is_sane = s->peak_bytes <= INT64_MAX && s->taken_bytes <= INT64_MAX;
  for (size_t i = 0; i < BRIM_LIVE_CLASSES; i++) is_sane = is_sane && s->class_bytes[i] <= INT64_MAX;
  return is_sane && s->step >= 0 && s->steps >= 0 && s->epoch >= 0 && s->epochs >= 0 && is_figure(s->rate) &&
         is_figure(s->left_seconds) && is_time(s->queue_seconds) && is_time(s->started) && is_time(s->since) &&
         is_time(s->updated) && !(s->accuracy < 0) && !(s->accuracy > 1);
}

static bool has_sane_texts(const brim_live_slot *s)
{
  return memchr(s->backend, 0, sizeof s->backend) && memchr(s->command, 0, sizeof s->command) &&
         memchr(s->model, 0, sizeof s->model) && memchr(s->run, 0, sizeof s->run) &&
         (s->run[0] == '\0' || s->run[0] == '/');
}

enum brim_live_trust brim_live_judge(const brim_live_slot *slot)
{
  brim_live_slot s = *slot;
  if (s.bytes != sizeof s) return BRIM_LIVE_DAMAGED;
  if (s.layout != BRIM_LIVE_LAYOUT) return BRIM_LIVE_OTHER_LAYOUT;
  brim_live_seal(&s);
  const bool is_sane = s.check == slot->check && s.pid > 0 && s.pid <= INT32_MAX && s.ranks >= 1 &&
                       s.ranks <= RANKS_MAX && s.rank >= 0 && s.rank < s.ranks && s.state < BRIM_LIVE_STATE_COUNT &&
                       s.device >= -1 && s.device < DEVICES_MAX && s.folder_fd >= -1 && s.board_fd >= 0 &&
                       s.place <= BRIM_BOARD_SLOTS && (s.flags & ~(uint32_t)FLAGS_ALL) == 0;
  return is_sane && has_sane_numbers(&s) && has_sane_texts(&s) ? BRIM_LIVE_GOOD : BRIM_LIVE_DAMAGED;
}

/* Compares the slot with the kernel's data about the process that it names. */
static void ask_kernel(const brim_board *board, brim_live_entry *e, uint64_t pid_space)
{
  char path[64];
  struct stat info;
  const brim_live_slot *s = &e->of;
  if (pid_space == 0 || s->pid_space != pid_space) return;
  e->is_here = kill((pid_t)s->pid, 0) == 0 || errno == EPERM;
  snprintf(path, sizeof path, "/proc/%" PRId64, s->pid);
  const bool is_visible = e->is_here && stat(path, &info) == 0; /* the system may hide other users' processes */
  if (is_visible) {
    snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", s->pid);
    const uint64_t ticks = start_ticks_of(path);
    e->is_here = (info.st_uid == s->uid || info.st_uid == 0) && (ticks == 0 || ticks == s->start_ticks);
    e->is_mine = e->is_here && info.st_uid == geteuid() && brim_board_is_owner(board, e->slot, s->pid, s->board_fd);
  }
  if (!e->is_here) e->trust = BRIM_LIVE_FORGED;
}

/* Reads a slot. If it is half written, reads it again. */
static brim_status read_entry(brim_board *board, brim_live_entry *e, bool *alive, int *agains)
{
  for (;;) {
    BRIM_TRY(brim_board_read(board, e->slot, &e->of, alive));
    e->trust = *alive ? brim_live_judge(&e->of) : BRIM_LIVE_GOOD;
    if (e->trust == BRIM_LIVE_GOOD || *agains == 0) return BRIM_OK;
    (*agains)--;
    nanosleep(&(struct timespec){0, AGAIN_NANOSECONDS}, NULL);
  }
}

static brim_status read_board(brim_board *board, brim_live_entry *out, size_t *count)
{
  int agains = AGAINS_MAX;
  for (uint32_t i = 0; i < BRIM_BOARD_SLOTS; i++) {
    bool alive = false;
    out[*count] = (brim_live_entry){.slot = i};
    BRIM_TRY(read_entry(board, &out[*count], &alive, &agains));
    *count += alive;
  }
  return BRIM_OK;
}

brim_status brim_live_list(brim_live_entry *out, size_t *count)
{
  brim_board board;
  const uint64_t pid_space = own_pid_space();
  *count = 0;
  BRIM_TRY(open_board(&board));
  const brim_status status = read_board(&board, out, count);
  brim_board_unlock(&board);
  for (size_t i = 0; i < *count; i++)
    if (out[i].trust == BRIM_LIVE_GOOD) ask_kernel(&board, &out[i], pid_space);
  brim_board_close(&board);
  return status;
}

const char *brim_live_trouble(const brim_live_entry *e, char *out, size_t room)
{
  const char *dir = brim_shared_folder();
  out[0] = '\0';
  if (e->trust == BRIM_LIVE_OTHER_LAYOUT)
    snprintf(out, room,
             "slot %u of '%s/" BOARD_NAME "' belongs to a run of another version of brim (layout %u, not %d): use that "
             "version to watch it",
             e->slot, dir, e->of.layout, BRIM_LIVE_LAYOUT);
  if (e->trust == BRIM_LIVE_DAMAGED)
    snprintf(out, room,
             "slot %u of '%s/" BOARD_NAME "' is damaged, perhaps by another program: it is ignored; a run writes its "
             "slot again at its next step",
             e->slot, dir);
  if (e->trust == BRIM_LIVE_FORGED)
    snprintf(out, room,
             "slot %u of '%s/" BOARD_NAME "' names process %" PRId64
             ", which has ended or is another user's: it is ignored",
             e->slot, dir, e->of.pid);
  return out;
}

bool brim_live_folder(const brim_live_entry *e, char *out, size_t room)
{
  char link[64], path[PATH_MAX];
  out[0] = '\0';
  if (e->trust != BRIM_LIVE_GOOD) return false;
  if ((e->of.flags & BRIM_LIVE_DETAILS) && e->of.run[0]) {
    snprintf(out, room, "%s", e->of.run);
    return strlen(e->of.run) < room;
  }
  if (!e->is_mine || e->of.folder_fd < 0) return false;
  snprintf(link, sizeof link, "/proc/%" PRId64 "/fd/%d", e->of.pid, e->of.folder_fd);
  const ssize_t n = readlink(link, path, sizeof path - 1);
  path[n > 0 ? n : 0] = '\0';
  char *file = strrchr(path, '/');
  if (path[0] != '/' || file == path || (size_t)(file - path) >= room) return false;
  *file = '\0';
  snprintf(out, room, "%s", path);
  return true;
}
