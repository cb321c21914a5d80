/* See seats.h. Messages are read as they arrive, without waiting. Answers are short, and the rank that asked is
 * reading. */
#include "launch/seats.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/text.h"
#include "dist/processors.h"

#define HELLO_SECONDS 5 /* time in which a process that connects must send HELLO */
#define ANSWER_SECONDS 60
#define FILES_MAX 4 /* polled besides lines */

void brim_seats_open(brim_seats *s, int32_t count)
{
  *s = (brim_seats){.count = count, .speaker = -1, .ended_by = -1};
  s->seat = brim_xcalloc((size_t)count, sizeof *s->seat);
  s->poll = brim_xcalloc((size_t)count + FILES_MAX, sizeof *s->poll);
  for (int32_t r = 0; r < count; r++) s->seat[r].fd = -1;
}

static void hang_up(brim_seat *seat)
{
  if (seat->fd >= 0) close(seat->fd);
  seat->fd = -1;
}

void brim_seats_close(brim_seats *s)
{
  for (int32_t r = 0; r < s->count; r++) hang_up(&s->seat[r]);
  free(s->seat);
  free(s->poll);
  *s = (brim_seats){0};
}

/* ---- answers ---- */

/* Sends data. The rank is reading, so this takes no longer than the copy; otherwise the rank is stopped or gone. */
static bool send_all(int fd, const void *data, size_t bytes)
{
  const double start = brim_now();
  const char *at = data;
  while (bytes > 0) {
    const ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR) && brim_now() - start < ANSWER_SECONDS) {
      poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, 1000);
      continue;
    }
    if (n <= 0) return false;
    at += n;
    bytes -= (size_t)n;
  }
  return true;
}

static void lose(brim_seats *s, brim_seat *seat)
{
  hang_up(seat);
  seat->is_lost = !seat->left && s->ended_by < 0;
}

static void answer(brim_seats *s, brim_seat *seat, uint32_t kind, int32_t value)
{
  const brim_line_head head = {.kind = kind, .value = value};
  if (!send_all(seat->fd, &head, sizeof head)) lose(s, seat);
}

static void welcome(brim_seats *s, int32_t rank)
{
  brim_seat *seat = &s->seat[rank];
  const cpu_set_t set = brim_processors_cut(s->count, rank);
  const uint32_t bytes = CPU_COUNT(&set) > 0 ? sizeof set : 0;
  brim_line_head head = {.kind = BRIM_LINE_WELCOME, .bytes = bytes};
  const int stream[] = {STDOUT_FILENO, STDERR_FILENO};
  union {
    struct cmsghdr align;
    char room[CMSG_SPACE(sizeof stream)];
  } control = {.room = ""};
  struct iovec data = {&head, sizeof head};
  struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
  if (!s->own_streams) {
    message.msg_control = &control;
    message.msg_controllen = sizeof control;
    control.align = (struct cmsghdr){CMSG_LEN(sizeof stream), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.align), stream, sizeof stream);
  }
  seat->came = true;
  if (sendmsg(seat->fd, &message, MSG_NOSIGNAL) != (ssize_t)sizeof head || !send_all(seat->fd, &set, bytes))
    lose(s, seat);
}

/* Ends an exchange in which all ranks have arrived: sends every rank the data of all. */
static void finish_exchange(brim_seats *s)
{
  const brim_line_head head = {.kind = BRIM_LINE_ALL, .bytes = (uint32_t)s->count * s->bytes};
  char *all = brim_xmalloc(sizeof head + head.bytes);
  memcpy(all, &head, sizeof head);
  for (int32_t r = 0; r < s->count; r++) memcpy(all + sizeof head + (size_t)r * s->bytes, s->seat[r].data, s->bytes);
  s->waiting = 0;
  for (int32_t r = 0; r < s->count; r++) {
    s->seat[r].waits = false;
    if (s->seat[r].fd >= 0 && !send_all(s->seat[r].fd, all, sizeof head + head.bytes)) lose(s, &s->seat[r]);
  }
  free(all);
}

/* ---- messages ---- */

static void take_exchange(brim_seats *s, brim_seat *seat)
{
  if (s->waiting == 0) {
    s->since = brim_now();
    s->patience = seat->head.seconds;
    s->bytes = seat->head.bytes;
  }
  if (seat->head.bytes != s->bytes) {
    lose(s, seat); /* the rank is out of step, which no rank of this job can be */
    return;
  }
  seat->waits = true;
  if (++s->waiting == s->count) finish_exchange(s);
}

static void take_goodbye(brim_seats *s, brim_seat *seat)
{
  if (brim_seats_left(s) == 0) s->left_at = brim_now();
  seat->left = true;
  seat->exit_status = seat->head.value;
  if (brim_seats_left(s) < s->count) return;
  for (int32_t r = 0; r < s->count; r++)
    if (s->seat[r].fd >= 0) answer(s, &s->seat[r], BRIM_LINE_GO, 0);
}

static void take_message(brim_seats *s, int32_t rank)
{
  brim_seat *seat = &s->seat[rank];
  seat->have = 0;
  switch (seat->head.kind) {
  case BRIM_LINE_HELLO:
    welcome(s, rank);
    break;
  case BRIM_LINE_EXCHANGE:
    take_exchange(s, seat);
    break;
  case BRIM_LINE_ASK: {
    const bool may = s->speaker < 0 && s->ended_by < 0 && brim_seats_lost(s) < 0;
    if (may) s->speaker = rank;
    answer(s, seat, BRIM_LINE_ANSWER, may);
    break;
  }
  case BRIM_LINE_FOLDER:
    snprintf(s->folder, sizeof s->folder, "%.*s", (int)seat->head.bytes, seat->data);
    break;
  case BRIM_LINE_BYE:
    take_goodbye(s, seat);
    break;
  case BRIM_LINE_END:
    if (s->ended_by < 0) s->end_status = seat->head.value;
    if (s->ended_by < 0) s->ended_by = rank;
    break;
  default:
    lose(s, seat);
  }
}

/* Reads the part of a message that has arrived; *whole: the message is complete. Returns false if nothing more will
 * arrive. */
static bool read_some(brim_seat *seat, bool *whole)
{
  const size_t head = sizeof seat->head;
  *whole = false;
  for (;;) {
    const bool in_head = seat->have < head;
    const size_t end = in_head ? head : head + seat->head.bytes;
    if (!in_head && seat->head.bytes > sizeof seat->data) return false;
    if (!in_head && seat->have == end) {
      *whole = true;
      return true;
    }
    char *at = in_head ? (char *)&seat->head + seat->have : seat->data + (seat->have - head);
    const ssize_t n = recv(seat->fd, at, end - seat->have, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return true;
    if (n <= 0) return false;
    seat->have += (size_t)n;
  }
}

static void read_seat(brim_seats *s, int32_t rank)
{
  brim_seat *seat = &s->seat[rank];
  bool whole = true;
  while (whole && seat->fd >= 0) {
    if (!read_some(seat, &whole))
      lose(s, seat);
    else if (whole)
      take_message(s, rank);
  }
}

/* Marks the ranks whose line has closed. Called before messages are answered, because the answers depend on it. */
static void find_ended(brim_seats *s, const struct pollfd *ready)
{
  char byte;
  for (int32_t r = 0; r < s->count; r++)
    if (s->seat[r].fd >= 0 && ready[r].revents && recv(s->seat[r].fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
      lose(s, &s->seat[r]);
}

void brim_seats_serve(brim_seats *s, struct pollfd *more, size_t count, int milliseconds)
{
  struct pollfd *lines = s->poll + count;
  memcpy(s->poll, more, count * sizeof *more);
  for (int32_t r = 0; r < s->count; r++) lines[r] = (struct pollfd){.fd = s->seat[r].fd, .events = POLLIN};
  if (poll(s->poll, count + (size_t)s->count, milliseconds) <= 0) {
    for (size_t i = 0; i < count; i++) more[i].revents = 0;
    return;
  }
  memcpy(more, s->poll, count * sizeof *more);
  find_ended(s, lines);
  for (int32_t r = 0; r < s->count; r++)
    if (s->seat[r].fd >= 0 && lines[r].revents) read_seat(s, r);
}

void brim_seats_admit(brim_seats *s, int listener)
{
  struct ucred peer;
  socklen_t bytes = sizeof peer;
  brim_line_head head;
  const struct timeval patience = {.tv_sec = HELLO_SECONDS};
  const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
  if (fd < 0) return;
  const bool known = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid();
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  if (!known || recv(fd, &head, sizeof head, MSG_WAITALL) != (ssize_t)sizeof head || head.kind != BRIM_LINE_HELLO ||
      head.value < 0 || head.value >= s->count || s->seat[head.value].came) {
    close(fd);
    return;
  }
  s->seat[head.value].fd = fd;
  s->seat[head.value].pid = peer.pid;
  welcome(s, head.value);
}

/* ---- queries ---- */

int32_t brim_seats_lost(const brim_seats *s)
{
  for (int32_t r = 0; r < s->count; r++)
    if (s->seat[r].is_lost) return r;
  return -1;
}

int32_t brim_seats_left(const brim_seats *s)
{
  int32_t left = 0;
  for (int32_t r = 0; r < s->count; r++) left += s->seat[r].left;
  return left;
}

int32_t brim_seats_came(const brim_seats *s)
{
  int32_t came = 0;
  for (int32_t r = 0; r < s->count; r++) came += s->seat[r].came;
  return came;
}

bool brim_seats_late(const brim_seats *s, double now, char *names, size_t room)
{
  size_t length = 0;
  if (s->waiting == 0 || now - s->since < s->patience) return false;
  names[0] = '\0';
  for (int32_t r = 0; r < s->count && length < room; r++)
    if (!s->seat[r].waits)
      length += (size_t)snprintf(names + length, room - length, "%srank %d (process %d)", length ? ", " : "", (int)r,
                                 (int)s->seat[r].pid);
  return true;
}

void brim_seats_kill(const brim_seats *s, int number, int32_t but)
{
  for (int32_t r = 0; r < s->count; r++) {
    const brim_seat *seat = &s->seat[r];
    const bool lives = seat->is_child
                           ? !seat->is_over
                           : seat->fd >= 0; /* without a connection, the process number may belong to another process */
    if (r != but && seat->pid > 0 && lives) kill(seat->pid, number);
  }
}
