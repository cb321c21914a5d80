/* The rank's end of the line. */
#include "dist/line.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "dist/started.h"

#define STREAMS 2 /* standard output and error */

static int line = -1; /* one per process, because a process is a rank of at most one job */

bool brim_line_is_open(void)
{
  return line >= 0;
}

/* ---- bytes ---- */

/* Sends all bytes; false: the launcher has ended. */
static bool send_all(const void *data, size_t bytes)
{
  const char *at = data;
  while (bytes > 0) {
    const ssize_t n = send(line, at, bytes, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    bytes -= (size_t)n;
  }
  return true;
}

static bool receive_all(void *data, size_t bytes)
{
  char *at = data;
  while (bytes > 0) {
    const ssize_t n = recv(line, at, bytes, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    bytes -= (size_t)n;
  }
  return true;
}

static bool say(uint32_t kind, int32_t value, double seconds, const void *data, uint32_t bytes)
{
  const brim_line_head head = {.kind = kind, .bytes = bytes, .value = value, .seconds = seconds};
  return send_all(&head, sizeof head) && (bytes == 0 || send_all(data, bytes));
}

/* ---- hello ---- */

/* Whether the other end belongs to the same user or to root; other users cannot start ranks. */
static bool is_trusted(int fd)
{
  struct ucred peer;
  socklen_t bytes = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && (peer.uid == geteuid() || peer.uid == 0);
}

static int connect_to(const char *name)
{
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  const size_t length = strlen(name);
  if (length == 0 || length + 1 > sizeof address.sun_path) return -1;
  memcpy(address.sun_path + 1, name, length); /* a leading NUL: an abstract address, without a file */
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
  if (connect(fd, (const struct sockaddr *)&address, bytes) == 0 && is_trusted(fd)) return fd;
  close(fd);
  return -1;
}

static int take_inherited(const char *number)
{
  char *end = NULL;
  const long fd = strtol(number, &end, 10);
  if (end == number || *end || fd < 0 || fd > 1 << 20 || fcntl((int)fd, F_SETFD, FD_CLOEXEC) != 0) return -1;
  return (int)fd;
}

/* Takes the streams that come with WELCOME, in place of mpirun's pipes. */
static void take_streams(struct msghdr *message)
{
  int stream[STREAMS];
  const struct cmsghdr *c = CMSG_FIRSTHDR(message);
  if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS || c->cmsg_len != CMSG_LEN(sizeof stream)) return;
  memcpy(stream, CMSG_DATA(c), sizeof stream);
  for (int i = 0; i < STREAMS; i++) {
    dup2(stream[i], STDOUT_FILENO + i);
    close(stream[i]);
  }
}

static bool take_welcome(void)
{
  brim_line_head head;
  cpu_set_t set;
  union {
    struct cmsghdr align;
    char room[CMSG_SPACE(STREAMS * sizeof(int))];
  } control;
  struct iovec data = {&head, sizeof head};
  struct msghdr message = {
      .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  ssize_t n;
  do n = recvmsg(line, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL);
  while (n < 0 && errno == EINTR);
  if (n != (ssize_t)sizeof head || head.kind != BRIM_LINE_WELCOME) return false;
  take_streams(&message);
  if (head.bytes == 0) return true;
  if (head.bytes != sizeof set || !receive_all(&set, sizeof set)) return false;
  (void)sched_setaffinity(0, sizeof set, &set); /* fails in some containers; the ranks then share the processors */
  return true;
}

brim_status brim_line_open(void)
{
  const char *address = getenv(BRIM_LINE_ADDRESS), *number = getenv(BRIM_LINE_FD);
  if (line >= 0 || (!address && !number)) return BRIM_OK;
  line = number ? take_inherited(number) : connect_to(address);
  if (line >= 0 && say(BRIM_LINE_HELLO, brim_dist_started_rank(), 0, NULL, 0) && take_welcome()) return BRIM_OK;
  if (line >= 0) close(line);
  line = -1;
  return brim_fail(BRIM_EIO,
                   "the process that started this rank cannot be reached\n"
                   "is %s set by hand? unset it",
                   number ? BRIM_LINE_FD : BRIM_LINE_ADDRESS);
}

/* ---- messages after that ---- */

brim_status brim_line_exchange(const void *own, uint32_t bytes, void *all, int32_t ranks, double seconds)
{
  brim_line_head head;
  const size_t expected = (size_t)ranks * bytes;
  if (say(BRIM_LINE_EXCHANGE, 0, seconds, own, bytes) && receive_all(&head, sizeof head) &&
      head.kind == BRIM_LINE_ALL && head.bytes == expected && receive_all(all, expected))
    return BRIM_OK;
  return brim_fail(BRIM_ECOMM, "the process that started the ranks is gone");
}

bool brim_line_may_print(void)
{
  brim_line_head head;
  if (line < 0) return true;
  return say(BRIM_LINE_ASK, 0, 0, NULL, 0) && receive_all(&head, sizeof head) && head.kind == BRIM_LINE_ANSWER &&
         head.value == 1;
}

void brim_line_send_folder(const char *folder)
{
  if (line >= 0) (void)say(BRIM_LINE_FOLDER, 0, 0, folder, (uint32_t)strlen(folder));
}

static void hang_up(void)
{
  close(line);
  line = -1;
}

void brim_line_leave(int exit_status)
{
  brim_line_head head;
  if (line < 0) return;
  if (say(BRIM_LINE_BYE, exit_status, 0, NULL, 0)) (void)receive_all(&head, sizeof head);
  hang_up();
}

void brim_line_end(int exit_status)
{
  if (line < 0) return;
  (void)say(BRIM_LINE_END, exit_status, 0, NULL, 0);
  hang_up();
}
