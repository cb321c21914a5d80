/* See look.h. */
#include "monitor/look.h"

#include <stdarg.h>
#include <stdio.h>

const char *const brim_look_state_names[BRIM_LOOK_STATES] = {
    [BRIM_LOOK_PLANNING] = "planning",     [BRIM_LOOK_WAITING] = "waiting",
    [BRIM_LOOK_TRAINING] = "training",     [BRIM_LOOK_EVALUATING] = "evaluating",
    [BRIM_LOOK_CHECKPOINT] = "checkpoint", [BRIM_LOOK_RECOVERING] = "recovering",
    [BRIM_LOOK_STOPPING] = "stopping",     [BRIM_LOOK_WORKING] = "working",
    [BRIM_LOOK_FINISHED] = "finished",     [BRIM_LOOK_INTERRUPTED] = "interrupted",
    [BRIM_LOOK_FAILED] = "failed",         [BRIM_LOOK_KILLED] = "killed",
};

bool brim_look_is_live(enum brim_look_state state)
{
  return state < BRIM_LOOK_FINISHED;
}

void brim_look_release(brim_look *look)
{
  brim_arena_release(&look->arena);
  *look = (brim_look){0};
}

void brim_look_problem(brim_look *look, const char *format, ...)
{
  char text[1024];
  va_list arguments;
  if (look->problems == BRIM_LOOK_PROBLEMS_MAX) return;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  look->problem[look->problems++] = brim_arena_string(&look->arena, text);
}
