/* A list of texts, joined at the end into the form of the command line's messages. */
#include "param/problems.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TEXT_MAX 3900 /* limit for all problems together; a thread's error text has room for 4095 bytes */

static void add(brim_problems *p, const char *text)
{
  for (size_t i = 0; i < p->count; i++)
    if (strcmp(p->text[i], text) == 0) return;
  BRIM_ARENA_GROW(p->arena, p->text, p->count, p->room);
  p->text[p->count++] = brim_arena_string(p->arena, text);
}

static void format_into(brim_text *text, const char *format, va_list list)
{
  char line[2048];
  vsnprintf(line, sizeof line, format, list);
  brim_text_add(text, line);
}

void brim_problem(brim_problems *problems, brim_status status, const char *format, ...)
{
  brim_text text = {0};
  va_list list;
  va_start(list, format);
  format_into(&text, format, list);
  va_end(list);
  if (status == BRIM_ELOAD) problems->load = true;
  add(problems, brim_text_str(&text));
  brim_text_release(&text);
}

void brim_problem_at(brim_problems *problems, const brim_yaml_origin *origin, const char *format, ...)
{
  brim_text text = {0};
  va_list list;
  va_start(list, format);
  format_into(&text, format, list);
  va_end(list);
  if (origin) {
    brim_text_add(&text, "\n  ");
    brim_yaml_print_origin(origin, &text);
  }
  add(problems, brim_text_str(&text));
  brim_text_release(&text);
}

void brim_problem_hint(brim_problems *problems, const char *format, ...)
{
  brim_text text = {0};
  va_list list;
  if (problems->count == 0) return;
  brim_text_printf(&text, "%s\n  ", problems->text[problems->count - 1]);
  va_start(list, format);
  format_into(&text, format, list);
  va_end(list);
  problems->text[problems->count - 1] = brim_arena_string(problems->arena, brim_text_str(&text));
  brim_text_release(&text);
}

#define COLUMNS 110 /* width of a line of names */

static bool is_listed(const brim_problems *problems, const char *text)
{
  for (size_t i = 0; i < problems->count; i++)
    if (strstr(problems->text[i], text)) return true;
  return false;
}

void brim_problem_hint_names(brim_problems *problems, const char *head, const char *const *name, size_t count,
                             const char *tail)
{
  brim_text text = {0};
  size_t start = 0; /* where the line starts in `text` */
  if (problems->count == 0) return;
  brim_text_add(&text, head);
  for (size_t i = 0; i < count; i++) {
    if (text.length - start + 3 + strlen(name[i]) > COLUMNS) {
      brim_text_add(&text, "\n   ");
      start = text.length - 3;
    }
    brim_text_printf(&text, " %s", name[i]);
  }
  const bool fits = tail && text.length - start + 5 + strlen(tail) <= COLUMNS;
  if (tail) brim_text_printf(&text, "%s%s", fits ? "   " : "\n  ", tail);
  brim_text whole = {0};
  brim_text_printf(&whole, "%s\n  %s", problems->text[problems->count - 1], brim_text_str(&text));
  if (!is_listed(problems, brim_text_str(&text)))
    problems->text[problems->count - 1] = brim_arena_string(problems->arena, brim_text_str(&whole));
  brim_text_release(&whole);
  brim_text_release(&text);
}

void brim_problem_last_error(brim_problems *problems, brim_status status)
{
  if (status == BRIM_ELOAD) problems->load = true;
  add(problems, brim_error_text());
}

brim_status brim_problems_status(const brim_problems *problems)
{
  if (problems->count == 0) return BRIM_OK;
  brim_text all = {0};
  size_t printed = 0;
  for (; printed < problems->count; printed++) {
    if (printed && all.length + strlen(problems->text[printed]) > TEXT_MAX) break;
    brim_text_printf(&all, "%s%s", printed ? "\nerror: " : "", problems->text[printed]);
  }
  if (printed < problems->count) brim_text_printf(&all, "\nerror: and %zu more", problems->count - printed);
  const brim_status status = brim_fail(problems->load ? BRIM_ELOAD : BRIM_ECONFIG, "%s", brim_text_str(&all));
  brim_text_release(&all);
  return status;
}
