/* Writes messages to standard error and results of commands to standard output, each with one write, so that lines of
 * several threads do not mix. */
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

static const struct {
  const char *prefix, *color;
} levels[] = {
    [BRIM_LOG_ERROR] = {"error: ", "\033[1;31m"},
    [BRIM_LOG_WARN] = {"warning: ", "\033[1;33m"},
    [BRIM_LOG_INFO] = {"", ""},
    [BRIM_LOG_DEBUG] = {"debug: ", "\033[2m"},
};

static int32_t rank; /* this process's rank in a job; only rank 0 prints information */
static bool is_mute;
static enum brim_level shown = BRIM_LOG_INFO;
static void (*hook)(void *context, bool before);
static void *hook_context;
static bool wants_color;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void brim_log_set_level(enum brim_level level)
{
  shown = level;
}

void brim_log_set_rank(int32_t number)
{
  rank = number;
}

void brim_log_mute(void)
{
  is_mute = true;
}

void brim_log_set_hook(void (*function)(void *context, bool before), void *context)
{
  hook = function;
  hook_context = context;
}

void brim_log_read_environment(void)
{
  const char *no_color = getenv("NO_COLOR");
  const char *term = getenv("TERM");
  wants_color = !(no_color && no_color[0]) && !(term && strcmp(term, "dumb") == 0);
}

bool brim_log_color(void)
{
  return wants_color && isatty(STDERR_FILENO);
}

/* Writes all bytes; false, with errno, if that fails. */
static bool write_all(int fd, const char *text, size_t length)
{
  while (length > 0) {
    const ssize_t n = write(fd, text, length);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text += n;
    length -= (size_t)n;
  }
  return true;
}

/* Moves the progress line, which may be on the same terminal, out of the way during the write. */
static bool write_line(int fd, const char *text, size_t length)
{
  pthread_mutex_lock(&lock);
  if (hook) hook(hook_context, true);
  const bool is_written = write_all(fd, text, length);
  const int reason = errno;
  if (hook) hook(hook_context, false);
  pthread_mutex_unlock(&lock);
  errno = reason;
  return is_written;
}

/* Indents all lines of a message except the first. Names in a message may come from other users, so control characters
 * are made visible. */
static void write_message(enum brim_level level, const char *message)
{
  if (is_mute) return;
  char out[8192], tag[32] = "";
  size_t length = 0;
  if (rank > 0) snprintf(tag, sizeof tag, "rank %d: ", (int)rank);
  const bool color = levels[level].color[0] != '\0' && brim_log_color();
  const int head = snprintf(out, sizeof out, "%s%s%s%s", color ? levels[level].color : "", levels[level].prefix,
                            color ? "\033[0m" : "", tag);
  length = head > 0 ? (size_t)head : 0;
  const char *s = message, *end = message + strlen(message);
  while (s < end && length + BRIM_SHOWN_BYTES + 3 < sizeof out) {
    const bool ends_line = *s == '\n';
    length += brim_shown_take(&s, end, "\n\t", out + length);
    if (ends_line && level != BRIM_LOG_INFO && *s != ' ' && !brim_starts_with(s, levels[level].prefix)) {
      out[length++] = ' ';
      out[length++] = ' ';
    }
  }
  out[length++] = '\n';
  (void)write_line(STDERR_FILENO, out, length);
}

void brim_log(enum brim_level level, const char *format, ...)
{
  if (level > shown || (rank > 0 && level == BRIM_LOG_INFO)) return;
  char message[4096];
  va_list list;
  va_start(list, format);
  vsnprintf(message, sizeof message, format, list);
  va_end(list);
  write_message(level, message);
}

/* Does not use stdio, whose lock an abandoned policy thread may hold. A reader that closed the pipe, such as head(1),
 * is not an error. */
void brim_say(const char *format, ...)
{
  static atomic_bool has_failed;
  if (shown < BRIM_LOG_INFO || rank > 0 || is_mute) return;
  char message[4096], line[8192];
  va_list list;
  va_start(list, format);
  vsnprintf(message, sizeof message, format, list);
  va_end(list);
  size_t length = 0;
  for (const char *s = message, *end = s + strlen(s); s < end && length + BRIM_SHOWN_BYTES < sizeof line;)
    length += brim_shown_take(&s, end, "\n\t", line + length);
  line[length++] = '\n';
  if (write_line(STDOUT_FILENO, line, length) || errno == EPIPE || atomic_exchange(&has_failed, true)) return;
  brim_log(BRIM_LOG_WARN, "cannot write to standard output: %s", strerror(errno));
}

void brim_log_error(void)
{
  if (shown >= BRIM_LOG_DEBUG && brim_error_origin()[0]) brim_log(BRIM_LOG_DEBUG, "raised at %s", brim_error_origin());
  write_message(BRIM_LOG_ERROR, brim_error_text());
}
