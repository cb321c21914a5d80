/* The terminal for the monitor. A separate shared object implements it (plugins/terminal/ncurses), because only the
 * monitor needs ncurses. That object draws cells and reads keys, and calls no function of brim. */
#ifndef BRIM_MONITOR_TERMINAL_H
#define BRIM_MONITOR_TERMINAL_H
#include "monitor/cells.h"

/* Keys are code points of typed characters, or one of these. */
enum brim_key {
  BRIM_KEY_NONE = -1, /* the time is over */
  BRIM_KEY_ENTER = 10,
  BRIM_KEY_ESCAPE = 27,
  BRIM_KEY_ERASE = 127,
  BRIM_KEY_UP = 0x110000, /* beyond Unicode */
  BRIM_KEY_DOWN,
  BRIM_KEY_LEFT,
  BRIM_KEY_RIGHT,
  BRIM_KEY_PAGE_UP,
  BRIM_KEY_PAGE_DOWN,
  BRIM_KEY_HOME,
  BRIM_KEY_END,
  BRIM_KEY_RESIZE, /* the size has changed */
  BRIM_KEY_CLOSED, /* the terminal no longer exists */
  BRIM_KEY_OTHER
};

typedef struct brim_terminal_setup {
  bool color, unicode;
  const brim_paint_look *paints; /* [BRIM_PAINT_COUNT] */
} brim_terminal_setup;

typedef struct brim_terminal {
  size_t size; /* sizeof(brim_terminal): both sides are from one build */
  /* Takes control of the terminal. False: it cannot, and `why` gives the reason. */
  bool (*open)(const brim_terminal_setup *setup, char *why, size_t room);
  void (*close)(void); /* restores the terminal */
  void (*measure)(int *columns, int *rows);
  void (*draw)(const brim_cells *cells);
  int (*key)(int wait_ms); /* enum brim_key */
} brim_terminal;
extern const brim_terminal brim_terminal_ncurses; /* in the object */
#define BRIM_TERMINAL_SYMBOL "brim_terminal_ncurses"
#define BRIM_TERMINAL_FOLDER "lib/brim/terminal" /* folder in the installation */
#define BRIM_TERMINAL_FILE "ncurses.so.1"
#endif
