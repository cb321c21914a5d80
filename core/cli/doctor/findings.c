/* Collects the findings of brim doctor, in their order. See doctor.h. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/doctor/doctor.h"

#define TEXT_BYTES 4096

static void add(brim_doctor *d, enum brim_finding_level level, const char *area, const char *remedy, const char *text)
{
  BRIM_GROW(d->finding, d->count, d->room);
  d->finding[d->count++] = (brim_finding){.level = level,
                                          .area = area,
                                          .text = brim_arena_string(&d->arena, text),
                                          .remedy = remedy ? brim_arena_string(&d->arena, remedy) : NULL};
}

void brim_doctor_add(brim_doctor *d, enum brim_finding_level level, const char *area, const char *remedy,
                     const char *format, ...)
{
  char text[TEXT_BYTES];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  add(d, level, area, remedy, text);
}

void brim_doctor_add_error(brim_doctor *d, enum brim_finding_level level, const char *area, const char *remedy)
{
  const char *text = brim_error_text(), *rest = strchr(text, '\n');
  const size_t first = rest ? (size_t)(rest - text) : strlen(text);
  if (rest) rest += strspn(rest, "\n ");
  add(d, level, area, rest && rest[0] ? rest : remedy, brim_arena_string_n(&d->arena, text, first));
}
