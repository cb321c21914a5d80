/* The loop: makes a look every `every` seconds, and draws a picture after each look, key or change of size. See
 * screen.h. */
#include "monitor/screen.h"

#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/install.h"
#include "base/log.h"
#include "base/text.h"
#include "base/utf8.h"
#include "monitor/draw.h"
#include "monitor/interrupt.h"
#include "monitor/terminal.h"

#define WAIT_MS_MAX 1000
#define INSTEAD "'brim monitor --once' prints text in any terminal"

static volatile sig_atomic_t was_signalled;

static void note_signal(int number)
{
  (void)number;
  was_signalled = 1;
}

/* Replaces the actions of signals that end the program, so that it first restores the terminal. */
static const int watched[] = {SIGINT, SIGTERM, SIGHUP};
#define WATCHED (sizeof watched / sizeof watched[0])
static void restore_signals(const struct sigaction before[WATCHED])
{
  for (size_t i = 0; i < WATCHED; i++) sigaction(watched[i], &before[i], NULL);
}

/* ---- the terminal ---- */

static brim_status check_terminal(void)
{
  const char *term = getenv("TERM");
  struct winsize size = {0};
  if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
    return brim_fail(BRIM_ECONFIG, "brim monitor needs a terminal for its picture and its keys\n" INSTEAD);
  if (!term || !term[0] || strcmp(term, "dumb") == 0)
    return brim_fail(BRIM_ECONFIG,
                     "TERM=%s: this terminal cannot place text, so brim monitor cannot draw on it\n"
                     "set TERM to its type, such as xterm-256color; " INSTEAD,
                     term ? term : "");
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return BRIM_OK; /* ncurses knows other ways */
  if (size.ws_col < BRIM_DRAW_COLUMNS_MIN || size.ws_row < BRIM_DRAW_ROWS_MIN)
    return brim_fail(
        BRIM_ECONFIG,
        "the terminal has %d columns and %d rows; brim monitor needs at least %d and %d, better 80 and 24\n"
        "enlarge it; " INSTEAD,
        size.ws_col, size.ws_row, BRIM_DRAW_COLUMNS_MIN, BRIM_DRAW_ROWS_MIN);
  return BRIM_OK;
}

static brim_status load_terminal(const brim_terminal **out)
{
  char folder[PATH_MAX], path[PATH_MAX + 32];
  if (!brim_install_dir(folder, sizeof folder, BRIM_TERMINAL_FOLDER))
    return brim_fail(BRIM_ELOAD, "this brim was built without ncurses, which brim monitor draws with\n"
                                 "install libncurses-dev and build it again; " INSTEAD);
  snprintf(path, sizeof path, "%s/" BRIM_TERMINAL_FILE, folder);
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!handle) return brim_fail(BRIM_ELOAD, "ncurses cannot be loaded: %s\n" INSTEAD, dlerror());
  *out = dlsym(handle, BRIM_TERMINAL_SYMBOL);
  if (!*out || (*out)->size != sizeof **out)
    return brim_fail(BRIM_ELOAD, "%s and libbrim are from different builds of brim", path);
  return BRIM_OK;
}

static brim_status open_terminal(const brim_terminal *terminal)
{
  const char *no_color = getenv("NO_COLOR");
  char why[256] = "";
  const brim_terminal_setup setup = {!(no_color && no_color[0]), brim_utf8_is_locale(), brim_paints};
  if (terminal->open(&setup, why, sizeof why)) return BRIM_OK;
  return brim_fail(BRIM_ECONFIG, "%s\nset TERM to its type, such as xterm-256color; " INSTEAD, why);
}

/* ---- the loop ---- */

typedef struct screen {
  const brim_terminal *terminal;
  brim_source *source;
  brim_look look;
  brim_view view;
  double every, next; /* seconds; next: brim_now() of the next look */
} screen;

static void draw(screen *s)
{
  int columns = 0, rows = 0;
  brim_cells cells;
  s->terminal->measure(&columns, &rows);
  brim_cells_init(&cells, columns, rows, brim_utf8_is_locale());
  brim_picture_draw(&s->look, &s->view, &cells);
  s->terminal->draw(&cells);
  brim_cells_release(&cells);
}

static brim_status take_look(screen *s)
{
  s->next = brim_now() + s->every;
  return brim_source_look(s->source, &s->look);
}

static int wait_ms(const screen *s)
{
  const double left = 1000 * (s->next - brim_now());
  return s->view.is_paused || left > WAIT_MS_MAX ? WAIT_MS_MAX : left > 0 ? (int)ceil(left) : 0;
}

static brim_status run(screen *s)
{
  while (!was_signalled) {
    draw(s);
    const int key = s->terminal->key(wait_ms(s));
    if (key == BRIM_KEY_CLOSED) return BRIM_OK;
    const enum brim_view_action action = brim_view_key(&s->view, &s->look, key);
    if (action == BRIM_VIEW_QUIT) return BRIM_OK;
    if (action == BRIM_VIEW_INTERRUPT) {
      const brim_status status = brim_interrupt(s->view.asked.pid, s->view.asked.started);
      if (status == BRIM_OK)
        snprintf(s->view.message, sizeof s->view.message, "interrupted %s: it writes a checkpoint and ends",
                 s->view.asked_name);
      else
        snprintf(s->view.message, sizeof s->view.message, "not interrupted: %s", brim_error_text());
    }
    if (action != BRIM_VIEW_NOTHING || (!s->view.is_paused && brim_now() >= s->next)) BRIM_TRY(take_look(s));
  }
  return BRIM_OK;
}

brim_status brim_screen_run(brim_source *source, double every, bool is_recorded)
{
  screen s = {.source = source, .every = every > 0 ? every : 1, .view.is_fixed = is_recorded};
  struct sigaction before[WATCHED];
  BRIM_TRY(check_terminal());
  BRIM_TRY(load_terminal(&s.terminal));
  BRIM_TRY(take_look(&s));
  brim_status status = open_terminal(s.terminal);
  if (status == BRIM_OK) {
    const struct sigaction action = {.sa_handler = note_signal};
    was_signalled = 0;
    for (size_t i = 0; i < WATCHED; i++) sigaction(watched[i], &action, &before[i]);
    brim_log_set_level(BRIM_LOG_ERROR); /* warnings would overwrite the picture, which itself shows reading errors */
    status = run(&s);
    s.terminal->close();
    restore_signals(before);
  }
  brim_look_release(&s.look);
  return status;
}
