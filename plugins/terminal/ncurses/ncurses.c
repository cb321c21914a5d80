/* The terminal of `brim monitor`, by ncurses: see core/monitor/terminal.h. ncurses sends only the changes since the
 * last picture.
 *
 * Ctrl-C and Ctrl-Z keep their meaning. The caller catches SIGINT and SIGTERM, so that `close` always runs. */
#include "monitor/terminal.h"

#include <curses.h>
#include <errno.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ESCAPE_MS 25 /* after this time, an escape is a key, and not the start of a sequence */
#define COLORS_MANY 256

static bool is_unicode;
static attr_t look_of[BRIM_PAINT_COUNT];
static short pair_of[BRIM_PAINT_COUNT];
static SCREEN *screen;

/* Prepares pairs of colours with the terminal's own background, which may be light or dark. */
static void prepare_paints(const brim_terminal_setup *setup)
{
  const bool with_colors = setup->color && (has_colors() && start_color() == OK && use_default_colors() == OK);
  for (int i = 0; i < BRIM_PAINT_COUNT; i++) {
    const brim_paint_look *look = &setup->paints[i];
    const short color = COLORS >= COLORS_MANY ? look->color : look->few_color;
    /* `dim` is used only without colours: on some terminals it is hardly legible. */
    const bool has_color = with_colors && color >= 0 && init_pair((short)(i + 1), color, -1) == OK;
    pair_of[i] = has_color ? (short)(i + 1) : 0;
    look_of[i] = (look->bold ? A_BOLD : A_NORMAL) | (look->dim && !has_color ? A_DIM : A_NORMAL);
  }
}

static bool open_terminal(const brim_terminal_setup *setup, char *why, size_t room)
{
  is_unicode = setup->unicode;
  /* The locale determines only the widths of characters and the bytes that ncurses writes. It does not change the
   * format of numbers. */
  if (is_unicode && !setlocale(LC_CTYPE, "") && !setlocale(LC_CTYPE, "C.UTF-8")) is_unicode = false;
  screen = newterm(NULL, stdout, stdin);
  if (!screen) {
    const char *term = getenv("TERM");
    snprintf(why, room, "the terminal type TERM=%s is not known here", term ? term : "");
    return false;
  }
  set_term(screen);
  set_escdelay(ESCAPE_MS);
  cbreak();
  noecho();
  nonl();
  keypad(stdscr, TRUE);
  curs_set(0);
  prepare_paints(setup);
  return true;
}

static void close_terminal(void)
{
  if (!screen) return;
  endwin();
  delscreen(screen);
  screen = NULL;
}

static void measure(int *columns, int *rows)
{
  *columns = COLS;
  *rows = LINES;
}

static wchar_t shown(uint32_t glyph)
{
  return (wchar_t)(is_unicode || glyph < 0x80 ? glyph : '?');
}

/* Neighbouring cells with the same look are written together. */
static void draw_row(const brim_cell *cell, int row, int columns)
{
  wchar_t text[BRIM_CELLS_COLUMNS_MAX + 1];
  for (int from = 0; from < columns;) {
    int to = from, count = 0;
    for (; to < columns && cell[to].paint == cell[from].paint && cell[to].reversed == cell[from].reversed; to++)
      if (cell[to].glyph) text[count++] = shown(cell[to].glyph);
    const uint8_t paint = cell[from].paint < BRIM_PAINT_COUNT ? cell[from].paint : BRIM_PAINT_PLAIN;
    attr_set(look_of[paint] | (cell[from].reversed ? A_REVERSE : A_NORMAL), pair_of[paint], NULL);
    mvaddnwstr(row, from, text, count);
    from = to;
  }
}

static void draw(const brim_cells *cells)
{
  const int columns = cells->columns < COLS ? cells->columns : COLS;
  erase();
  for (int row = 0; row < cells->rows && row < LINES; row++) draw_row(&cells->cell[row * cells->columns], row, columns);
  refresh();
}

static int key_of(wint_t code)
{
  static const struct {
    wint_t code;
    int key;
  } keys[] = {{KEY_UP, BRIM_KEY_UP},           {KEY_DOWN, BRIM_KEY_DOWN},     {KEY_LEFT, BRIM_KEY_LEFT},
              {KEY_RIGHT, BRIM_KEY_RIGHT},     {KEY_PPAGE, BRIM_KEY_PAGE_UP}, {KEY_NPAGE, BRIM_KEY_PAGE_DOWN},
              {KEY_HOME, BRIM_KEY_HOME},       {KEY_END, BRIM_KEY_END},       {KEY_ENTER, BRIM_KEY_ENTER},
              {KEY_BACKSPACE, BRIM_KEY_ERASE}, {KEY_RESIZE, BRIM_KEY_RESIZE}};
  for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
    if (keys[i].code == code) return keys[i].key;
  return BRIM_KEY_OTHER;
}

static int read_key(int wait_ms)
{
  wint_t code = 0;
  timeout(wait_ms);
  const int kind = get_wch(&code);
  if (kind == KEY_CODE_YES) return key_of(code);
  if (kind == ERR) {
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    /* Detects that the terminal is gone. Otherwise every read would then return at once. */
    return poll(&in, 1, 0) == 1 && (in.revents & (POLLHUP | POLLERR)) ? BRIM_KEY_CLOSED : BRIM_KEY_NONE;
  }
  if (code == 12) { /* Ctrl-L sends the whole picture again */
    clearok(curscr, TRUE);
    return BRIM_KEY_RESIZE;
  }
  if (code == '\r') return BRIM_KEY_ENTER;
  return code == '\b' ? BRIM_KEY_ERASE : (int)code;
}

__attribute__((visibility("default"))) const brim_terminal brim_terminal_ncurses = {
    sizeof(brim_terminal), open_terminal, close_terminal, measure, draw, read_key};
