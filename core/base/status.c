/* The list of status codes, and the error text of each thread. */
#include "brim/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

#define ERROR_TEXT_MAX sizeof(((brim_error *)0)->text) /* with the NUL */

static _Thread_local char error_text[ERROR_TEXT_MAX];
static _Thread_local char error_origin[sizeof(((brim_error *)0)->origin)];

static const struct {
  brim_status status;
  int exit_status;
  const char *name, *text;
} statuses[] = {
#define X(name, value, exit_status, text) {value, exit_status, #name, text},
    BRIM_STATUS_MAP(X)
#undef X
};
#define STATUS_COUNT (sizeof(statuses) / sizeof(statuses[0]))

const char *brim_status_name(brim_status status)
{
  for (size_t i = 0; i < STATUS_COUNT; i++)
    if (statuses[i].status == status) return statuses[i].name;
  return "EUNKNOWN";
}

const char *brim_status_text(brim_status status)
{
  for (size_t i = 0; i < STATUS_COUNT; i++)
    if (statuses[i].status == status) return statuses[i].text;
  return "unknown status";
}

int brim_status_exit(brim_status status)
{
  for (size_t i = 0; i < STATUS_COUNT; i++)
    if (statuses[i].status == status) return statuses[i].exit_status;
  return 5;
}

brim_status brim_fail_at(const char *file, int line, brim_status status, const char *format, ...)
{
  /* The arguments may point into error_text ("%s" of brim_error_text()), so format into another buffer first. */
  char text[ERROR_TEXT_MAX];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  memcpy(error_text, text, sizeof error_text);
  const char *slash = strrchr(file, '/');
  snprintf(error_origin, sizeof error_origin, "%s:%d", slash ? slash + 1 : file, line);
  return status;
}

brim_status brim_fail_add(brim_status status, const char *format, ...)
{
  size_t length = strlen(error_text);
  if (length + 2 >= ERROR_TEXT_MAX) return status;
  char text[ERROR_TEXT_MAX];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  if (length) error_text[length++] = '\n';
  const size_t room = ERROR_TEXT_MAX - length - 1, bytes = strlen(text);
  memcpy(error_text + length, text, bytes < room ? bytes : room);
  error_text[length + (bytes < room ? bytes : room)] = '\0';
  return status;
}

const char *brim_error_text(void)
{
  return error_text;
}
const char *brim_error_origin(void)
{
  return error_origin;
}

void brim_error_clear(void)
{
  error_text[0] = '\0';
}

void brim_error_take(brim_error *out)
{
  memcpy(out->text, error_text, strlen(error_text) + 1);
  memcpy(out->origin, error_origin, strlen(error_origin) + 1);
}

void brim_error_put(const brim_error *error)
{
  memcpy(error_text, error->text, strlen(error->text) + 1);
  memcpy(error_origin, error->origin, strlen(error->origin) + 1);
}
