/* Policies made and destroyed, asked twice and often, and with parameters at the ends of their ranges. See check.h. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "cli/check_policy.h"

#define WARM_TIMES 20 /* before memory is counted */
#define MANY_TIMES 300
#define LEAK_BYTES 16 /* each time; less may be the C library's own */
#define VALUES_MAX 64 /* of a parameter */

/* ---- the same question twice ---- */

static bool same_plan(const brim_plan_choice *a, const brim_plan_choice *b)
{
  return a->micro_batch == b->micro_batch && a->precision == b->precision && !a->model == !b->model;
}

static bool same_place(const brim_place *a, const brim_place *b)
{
  return a->kind == b->kind && a->device == b->device && a->limit_bytes == b->limit_bytes;
}

static bool same_answer(enum brim_hook hook, const brim_answer *a, const brim_answer *b)
{
  switch (hook) {
  case BRIM_HOOK_DEVICE:
    return same_place(&a->place, &b->place);
  case BRIM_HOOK_PLAN:
    return same_plan(&a->plan, &b->plan);
  case BRIM_HOOK_OOM:
    return a->action.kind == b->action.kind && same_plan(&a->action.plan, &b->action.plan) &&
           same_place(&a->action.place, &b->action.place);
  case BRIM_HOOK_BOUNDARY:
    return a->boundary.cleanup == b->boundary.cleanup;
  case BRIM_HOOK_STEP:
    return a->step.micro_batch == b->step.micro_batch && a->step.within_bytes == b->step.within_bytes;
  }
  return true;
}

/* All questions to one instance, in order; the answers to `out`. */
static brim_status ask_all(brim_asked *a, brim_answer *out, brim_status *status)
{
  BRIM_TRY(brim_asked_open(a));
  for (size_t i = 0; i < BRIM_ASKED_FEW; i++) {
    brim_made_world_set(&a->world, i);
    for (int hook = 0; hook <= BRIM_HOOK_STEP; hook++, out++, status++)
      *status = brim_asked_ask(a, (enum brim_hook)hook, 1, out);
  }
  brim_asked_close(a);
  return BRIM_OK;
}

/* Only a remark: a policy may go by the time of day. */
enum brim_finding brim_check_repeats(brim_check *c)
{
  enum { ANSWERS = BRIM_ASKED_FEW * (BRIM_HOOK_STEP + 1) };
  enum brim_finding finding = BRIM_FOUND_OK;
  brim_asked *a = brim_asked_new();
  brim_answer *out = brim_xcalloc(2 * (size_t)ANSWERS, sizeof *out);
  brim_status status[2][ANSWERS];
  brim_check_say(c, BRIM_FOUND_OK, "the same questions twice, and the same answers");
  if (brim_asked_configure(c, NULL, a) != BRIM_OK || ask_all(a, out, status[0]) != BRIM_OK ||
      ask_all(a, out + ANSWERS, status[1]) != BRIM_OK)
    finding = brim_check_say(c, BRIM_FOUND_WARNING, "not tried, as there is no instance");
  for (int i = 0; i < ANSWERS && finding == BRIM_FOUND_OK; i++) {
    const enum brim_hook hook = (enum brim_hook)(i % (BRIM_HOOK_STEP + 1));
    if (status[0][i] != status[1][i] || !same_answer(hook, &out[i], &out[ANSWERS + i]))
      finding =
          brim_check_say(c, BRIM_FOUND_WARNING,
                         "%s answers otherwise to the same question, of another instance: runs cannot be repeated",
                         brim_hook_name(hook));
  }
  free(out);
  brim_asked_free(a);
  return finding;
}

/* ---- making and destroying ---- */

static uint64_t allocated(void)
{
  const struct mallinfo2 now = mallinfo2();
  return now.uordblks + now.hblkhd;
}

enum brim_finding brim_check_create(brim_check *c)
{
  enum brim_finding finding = BRIM_FOUND_OK;
  uint64_t before = 0;
  brim_asked *a = brim_asked_new();
  if (brim_asked_configure(c, NULL, a) != BRIM_OK) {
    brim_check_say(c, BRIM_FOUND_UNTRIED, "cannot be tried as it is: %s\ngive what it needs: key=value",
                   brim_error_text());
    finding = brim_check_words(c, brim_error_text(), BRIM_FOUND_UNTRIED);
    brim_asked_free(a);
    return finding;
  }
  for (int i = 0; i < WARM_TIMES + MANY_TIMES && finding == BRIM_FOUND_OK; i++) {
    if (i == WARM_TIMES) before = allocated();
    if (brim_asked_open(a) != BRIM_OK) finding = brim_check_fail_short(c, "");
    brim_asked_close(a);
    if (finding == BRIM_FOUND_OK && brim_guard_any_lost())
      finding = brim_check_say(c, BRIM_FOUND_FAILED, "destroy crashes, or does not come back");
  }
  const uint64_t after = allocated(), grown = after > before ? (after - before) / MANY_TIMES : 0;
  if (finding == BRIM_FOUND_OK && grown >= LEAK_BYTES)
    finding = brim_check_say(c, BRIM_FOUND_WARNING, "create and destroy keep %llu bytes each time",
                             (unsigned long long)grown);
  else if (finding == BRIM_FOUND_OK)
    brim_check_say(c, BRIM_FOUND_OK, "made and destroyed %d times", WARM_TIMES + MANY_TIMES);
  brim_asked_free(a);
  return finding;
}

/* on_step is asked once a second as long as a run lasts. */
enum brim_finding brim_check_leaks(brim_check *c)
{
  enum brim_finding finding = BRIM_FOUND_OK;
  uint64_t before = 0;
  brim_asked *a = brim_asked_new();
  brim_check_say(c, BRIM_FOUND_OK, "decisions keep no memory");
  if (brim_asked_configure(c, NULL, a) != BRIM_OK || brim_asked_open(a) != BRIM_OK) {
    brim_asked_free(a);
    return brim_check_say(c, BRIM_FOUND_WARNING, "not tried, as there is no instance");
  }
  brim_made_world_set(&a->world, BRIM_WORLD_EDGES);
  for (int i = 0; i < WARM_TIMES + MANY_TIMES; i++) {
    brim_answer out;
    if (i == WARM_TIMES) before = allocated();
    for (int hook = 0; hook <= BRIM_HOOK_STEP; hook++) (void)brim_asked_ask(a, (enum brim_hook)hook, i, &out);
  }
  const uint64_t after = allocated(), grown = after > before ? (after - before) / MANY_TIMES : 0;
  if (grown >= LEAK_BYTES)
    finding = brim_check_say(c, BRIM_FOUND_WARNING, "decisions keep %llu bytes each time", (unsigned long long)grown);
  brim_asked_free(a);
  return finding;
}

/* ---- parameters ---- */

/* Ends of a range that belong to it, and names, as words: "[1,4096]" "(0,1]" "a|b" "auto|[1,64]". */
static size_t list_values(const brim_param *row, brim_arena *arena, const char **out)
{
  size_t n = 0;
  const char *s = row->range ? row->range : "";
  if (row->type == BRIM_BOOL) {
    out[n++] = "true";
    out[n++] = "false";
  }
  if (row->def) out[n++] = row->def[0] ? row->def : "\"\"";
  while (*s && n + 2 < VALUES_MAX) {
    const size_t length = strcspn(s, "|");
    if (*s != '[' && *s != '(') {
      out[n++] = brim_arena_string_n(arena, s, length);
    } else {
      const size_t comma = strcspn(s, ",");
      if (*s == '[') out[n++] = brim_arena_string_n(arena, s + 1, comma - 1);
      if (length > comma + 2 && s[length - 1] == ']')
        out[n++] = brim_arena_string_n(arena, s + comma + 1, length - comma - 2);
    }
    s += length + (s[length] == '|');
  }
  return n;
}

typedef struct values {
  int tried, refused; /* by words of its own */
  char refusal[256];  /* the first */
} values;

/* A value that its own words refuse is refused; a crash is none. */
static brim_status try_value(brim_check *c, const brim_param *row, const char *value, values *t)
{
  char word[512];
  brim_answer out;
  brim_asked *a = brim_asked_new();
  const bool is_list = row->type == BRIM_LIST || row->type == BRIM_SET || row->type == BRIM_NAMES;
  snprintf(word, sizeof word, is_list && value[0] != '[' ? "policy.%s.%s=[%s]" : "policy.%s.%s=%s", c->plugin->id,
           row->key, value);
  brim_status status = brim_asked_configure(c, word, a);
  if (status == BRIM_OK) status = brim_asked_open(a);
  for (uint64_t i = 0; i < BRIM_ASKED_FEW && status != BRIM_EPLUGIN && a->policies; i++) {
    brim_made_world_set(&a->world, i);
    for (int hook = 0; hook <= BRIM_HOOK_STEP && status != BRIM_EPLUGIN; hook++)
      status = brim_asked_ask(a, (enum brim_hook)hook, 1, &out);
  }
  if (status == BRIM_EPLUGIN) {
    brim_check_fail_short(c, word);
  } else if (!a->policies) {
    t->refused++;
    snprintf(t->refusal, sizeof t->refusal, "%.*s", (int)sizeof t->refusal - 1, word);
  } else {
    t->tried++;
  }
  brim_asked_free(a);
  return status == BRIM_EPLUGIN ? status : BRIM_OK;
}

enum brim_finding brim_check_parameters(brim_check *c)
{
  values t = {.tried = 0};
  brim_arena arena = {0};
  enum brim_finding finding = BRIM_FOUND_OK;
  for (const brim_param *row = c->plugin->params; row && row->key && finding == BRIM_FOUND_OK; row++) {
    const char *value[VALUES_MAX];
    const size_t count = list_values(row, &arena, value);
    for (size_t i = 0; i < count && finding == BRIM_FOUND_OK; i++)
      if (try_value(c, row, value[i], &t) != BRIM_OK) finding = BRIM_FOUND_FAILED;
  }
  if (finding == BRIM_FOUND_OK && t.refused > 0)
    brim_check_say(c, BRIM_FOUND_OK, "values at the ends of their ranges: %d, of which %d are refused, as %s",
                   t.tried + t.refused, t.refused, t.refusal);
  else if (finding == BRIM_FOUND_OK)
    brim_check_say(c, BRIM_FOUND_OK, t.tried > 0 ? "values at the ends of their ranges: %d" : "none", t.tried);
  brim_arena_release(&arena);
  return finding;
}
