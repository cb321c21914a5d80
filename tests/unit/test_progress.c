/* Tests the progress line: its content, that it fits, and that messages do not break it; and the reactions to signals.
 * Terminals are pseudo-terminals. */
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/text.h"
#include "observe/progress.h"
#include "train/stop.h"

static const brim_progress_state example = {.epoch = 2,
                                            .epochs = 5,
                                            .step = 812,
                                            .steps = 2345,
                                            .loss = 0.28712,
                                            .accuracy = 0.9041,
                                            .mae = NAN,
                                            .samples_per_second = 2412,
                                            .used_bytes = 64172851,
                                            .planned_bytes = 64172851};

/* Makes the progress of a run that has made 812 steps in 38 seconds. */
static brim_progress plain(int columns)
{
  return (brim_progress){.terminal = true, .columns = columns, .start = 100, .last = example};
}
#define NOW 138.0

/* Counts the columns of a line: escape sequences take none, each other character takes one. */
static int visible(const char *line)
{
  int width = 0;
  for (const char *c = line; *c; c++) {
    if (*c == '\033') {
      c += strcspn(c, "mK");
      continue;
    }
    width += (*c & 0xc0) != 0x80;
  }
  return width;
}

/* ---- the text ---- */

static void a_wide_line_shows_everything(void **state)
{
  char line[BRIM_PROGRESS_LINE_BYTES];
  const brim_progress p = plain(200);
  const size_t length = brim_progress_format(&p, NOW, line);
  assert_int_equal(length, strlen(line));
  assert_string_equal(line, "epoch 2/5  [=======>              ]  step 812/2345  loss 0.2871  acc 90.4%  "
                            "2.4k samples/s  mem 61.2/61.2 MiB  eta 1:12");
}

static void a_line_that_is_not_on_a_terminal_has_no_bar(void **state)
{
  char line[BRIM_PROGRESS_LINE_BYTES];
  brim_progress p = plain(20);
  p.terminal = false;
  brim_progress_format(&p, NOW, line);
  assert_string_equal(line, "epoch 2/5  step 812/2345  loss 0.2871  acc 90.4%  2.4k samples/s  mem 61.2/61.2 MiB  "
                            "eta 1:12");
}

static void a_line_fits_every_width_and_drops_the_least_important_first(void **state)
{
  static const char *const keep[] = {"step 812/2345", "loss ", "eta ", "acc ", "samples/s", "[", "epoch ", "mem "};
  size_t shown_before = 0;
  for (int columns = 1; columns < 140; columns++) {
    for (int style = 0; style < 4; style++) {
      char line[BRIM_PROGRESS_LINE_BYTES];
      brim_progress p = plain(columns);
      p.color = style & 1;
      p.unicode = style & 2;
      const size_t length = brim_progress_format(&p, NOW, line);
      assert_int_equal(length, strlen(line));
      assert_true(visible(line) < columns);
      if (style > 0) continue;
      size_t shown = 0;
      while (shown < sizeof keep / sizeof keep[0] && strstr(line, keep[shown])) shown++;
      for (size_t i = shown; i < sizeof keep / sizeof keep[0]; i++) assert_null(strstr(line, keep[i]));
      assert_true(shown >= shown_before);
      shown_before = shown;
    }
  }
  assert_int_equal(shown_before, sizeof keep / sizeof keep[0]);
}

/* Eighty columns are the usual default width of terminals. */
static void eighty_columns_have_the_bar_and_the_rate(void **state)
{
  char line[BRIM_PROGRESS_LINE_BYTES];
  brim_progress p = plain(80);
  brim_progress_format(&p, NOW, line);
  assert_string_equal(line, "[====>       ]  step 812/2345  loss 0.2871  acc 90.4%  2.4k samples/s  eta 1:12");
  p.last.step = 123456; /* a long run of a language model */
  p.last.steps = 1000000;
  p.last.tokens_each = 64;
  p.last.loss = 10.8249;
  brim_progress_format(&p, NOW, line);
  assert_non_null(strstr(line, "["));
  assert_non_null(strstr(line, " tokens/s"));
}

static void colour_and_unicode_change_the_look_not_the_width(void **state)
{
  char ascii[BRIM_PROGRESS_LINE_BYTES], pretty[BRIM_PROGRESS_LINE_BYTES];
  brim_progress p = plain(200);
  brim_progress_format(&p, NOW, ascii);
  assert_null(strchr(ascii, '\033'));
  p.color = p.unicode = true;
  brim_progress_format(&p, NOW, pretty);
  assert_int_equal(visible(pretty), visible(ascii));
  assert_non_null(strstr(pretty, "\033[36m━"));
  assert_string_equal(pretty + strlen(pretty) - strlen("1:12"), "1:12");
  p.last.step = p.last.steps;
  brim_progress_format(&p, NOW, pretty);
  assert_non_null(strstr(pretty, "\033[32m━━━━━━━━━━━━"
                                 "━━━━━━━━━━━━\033[0m"));
}

static void unknown_figures_are_left_out(void **state)
{
  char line[BRIM_PROGRESS_LINE_BYTES];
  brim_progress p = plain(200);
  p.last = (brim_progress_state){
      .step = 0, .steps = 10, .loss = NAN, .accuracy = NAN, .mae = NAN, .samples_per_second = NAN};
  brim_progress_format(&p, NOW, line);
  assert_string_equal(line, "[>                     ]  step 0/10");
}

static void numbers_take_the_unit_that_fits(void **state)
{
  static const struct {
    double rate, loss;
    uint64_t used, planned;
    const char *text;
  } cases[] = {
      {0.5, 12345.6, 1024, 2048, "loss 1.235e+04  0.5 samples/s  mem 1.0/2.0 KiB"},
      {812.4, 999.4, 512 << 10, 1 << 20, "loss 999.4000  812 samples/s  mem 0.5/1.0 MiB"},
      {999.7, 0, 3u << 30, 3u << 30, "loss 0.0000  1.0k samples/s  mem 3.0/3.0 GiB"},
      {1.25e6, -1, 0, (uint64_t)5 << 40, "loss -1.0000  1.2M samples/s  mem 0.0/5.0 TiB"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char line[BRIM_PROGRESS_LINE_BYTES];
    brim_progress p = {.last = {.steps = 1,
                                .loss = cases[i].loss,
                                .accuracy = NAN,
                                .mae = NAN,
                                .samples_per_second = cases[i].rate,
                                .used_bytes = cases[i].used,
                                .planned_bytes = cases[i].planned}};
    brim_progress_format(&p, 0, line);
    assert_string_equal(line + strlen("step 0/1  "), cases[i].text);
  }
}

static void metrics_of_tokens_and_real_numbers_are_shown(void **state)
{
  char line[BRIM_PROGRESS_LINE_BYTES];
  brim_progress p = {.last = {.steps = 1, .loss = 1, .accuracy = NAN, .mae = 0.03125, .samples_per_second = 20}};
  brim_progress_format(&p, 0, line);
  assert_string_equal(line, "step 0/1  loss 1.0000  MAE 0.03125  20 samples/s");
  p.last = (brim_progress_state){
      .steps = 1, .loss = 1, .accuracy = 0.5, .mae = NAN, .samples_per_second = 20, .tokens_each = 128};
  brim_progress_format(&p, 0, line);
  assert_string_equal(line, "step 0/1  loss 1.0000  acc 50.0%  2.6k tokens/s");
}

static void extreme_values_do_not_break_the_line(void **state)
{
  char line[BRIM_PROGRESS_LINE_BYTES];
  brim_progress p = plain(80);
  p.color = p.unicode = true;
  p.last = (brim_progress_state){.epoch = INT64_MAX,
                                 .epochs = INT64_MAX,
                                 .step = INT64_MAX,
                                 .steps = INT64_MIN,
                                 .loss = -1e308,
                                 .accuracy = 1e308,
                                 .samples_per_second = 1e308,
                                 .used_bytes = UINT64_MAX,
                                 .planned_bytes = UINT64_MAX};
  brim_progress_format(&p, 1e300, line);
  assert_true(visible(line) < 80);
}

/* ---- standard error ---- */

static int saved = -1, reader = -1;

static void restore(void)
{
  if (saved < 0) return;
  dup2(saved, STDERR_FILENO);
  close(saved);
  saved = -1;
  if (reader >= 0) close(reader);
  reader = -1;
}

static int back_to_normal(void **state)
{
  brim_log_set_hook(NULL, NULL);
  restore();
  unsetenv("COLUMNS");
  return 0;
}

/* Makes standard error a terminal of `columns`; false if there are no pseudo-terminals. */
static bool use_terminal(unsigned short columns)
{
  const int master = posix_openpt(O_RDWR | O_NOCTTY);
  if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) {
    if (master >= 0) close(master);
    return false;
  }
  const struct winsize size = {.ws_row = 24, .ws_col = columns};
  const int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
  assert_true(slave >= 0);
  assert_int_equal(ioctl(slave, TIOCSWINSZ, &size), 0);
  saved = dup(STDERR_FILENO);
  dup2(slave, STDERR_FILENO);
  close(slave);
  reader = master;
  setenv("TERM", "xterm", 1);
  setenv("LC_ALL", "C", 1);
  setenv("NO_COLOR", "1", 1);
  brim_log_read_environment();
  unsetenv("COLUMNS");
  return true;
}

static void use_pipe(void)
{
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  saved = dup(STDERR_FILENO);
  dup2(ends[1], STDERR_FILENO);
  close(ends[1]);
  reader = ends[0];
}

/* Returns the output since the last call, which the test ends with a mark. */
static const char *output(void)
{
  static const char mark = 2;
  static char text[1 << 16];
  size_t length = 0;
  assert_int_equal(write(STDERR_FILENO, &mark, 1), 1);
  while (length == 0 || text[length - 1] != mark) {
    const ssize_t n = read(reader, text + length, sizeof text - length);
    assert_true(n > 0);
    length += (size_t)n;
  }
  text[length - 1] = '\0';
  return text;
}

static brim_progress progress;

static void step(int64_t number)
{
  brim_progress_state s = example;
  s.step = number;
  brim_progress_update(&progress, &s);
}

static void without_a_terminal_a_line_is_printed_occasionally(void **state)
{
  use_pipe();
  brim_progress_init(&progress, 100, 50, false);
  assert_false(progress.terminal);
  for (int64_t i = 101; i <= 260; i++) step(i);
  step(2345);
  step(2345);
  brim_progress_finish(&progress);
  const char *text = output();
  restore();
  size_t lines = 0;
  for (const char *c = text; *c; c++) lines += *c == '\n';
  assert_int_equal(lines, 4);
  assert_non_null(strstr(text, "step 150/2345"));
  assert_non_null(strstr(text, "step 200/2345"));
  assert_non_null(strstr(text, "step 250/2345"));
  assert_non_null(strstr(text, "step 2345/2345"));
  assert_null(strchr(text, '\r'));
  assert_null(strchr(text, '\033'));
}

static void a_quiet_run_prints_nothing(void **state)
{
  use_pipe();
  brim_progress_init(&progress, 0, 1, true);
  for (int64_t i = 1; i <= 10; i++) step(i);
  brim_progress_finish(&progress);
  const char *text = output();
  restore();
  assert_string_equal(text, "");
}

static void a_terminal_gets_one_line_that_is_redrawn_in_place(void **state)
{
  if (!use_terminal(200)) skip();
  brim_progress_init(&progress, 0, 50, false);
  assert_true(progress.terminal);
  step(1);
  const brim_progress drawn = progress;
  char first[BRIM_PROGRESS_LINE_BYTES];
  brim_progress_format(&drawn, drawn.last_draw, first);
  assert_string_equal(output() + strlen("\r\033[K"), first);
  for (int64_t i = 2; i < 20; i++) step(i); /* these steps take far less than 0.1 s, the time between two updates */
  const char *burst = output();
  assert_true(strlen(burst) < 3 * strlen(first));
  brim_progress_finish(&progress);
  const char *text = output();
  restore();
  assert_int_equal(strncmp(text, "\r\033[K", 4), 0);
  assert_non_null(strstr(text, "step 19/2345"));
  assert_string_equal(text + strlen(text) - 2, "\r\n"); /* the terminal's form of \n */
}

static void the_last_step_is_always_drawn(void **state)
{
  if (!use_terminal(200)) skip();
  brim_progress_init(&progress, 0, 50, false);
  step(2344);
  step(2345);
  const char *text = output();
  brim_progress_finish(&progress);
  restore();
  assert_non_null(strstr(text, "step 2345/2345"));
}

static void the_width_is_queried_at_every_update(void **state)
{
  if (!use_terminal(40)) skip();
  brim_progress_init(&progress, 0, 50, false);
  step(1);
  assert_true(visible(output()) <= 40); /* \r counts as one */
  const struct winsize wide = {.ws_row = 24, .ws_col = 150};
  assert_int_equal(ioctl(STDERR_FILENO, TIOCSWINSZ, &wide), 0);
  step(2345);
  const char *text = output();
  assert_non_null(strstr(text, "mem "));
  setenv("COLUMNS", "30", 1);
  step(2345);
  text = output();
  brim_progress_finish(&progress);
  restore();
  assert_true(visible(text) <= 30);
}

static void messages_move_the_line_down_and_never_tear_it(void **state)
{
  if (!use_terminal(80)) skip();
  brim_progress_init(&progress, 0, 50, false);
  brim_log(BRIM_LOG_INFO, "before the first step");
  assert_string_equal(output(), "before the first step\r\n");
  step(7);
  output();
  brim_log(BRIM_LOG_WARN, "something");
  const char *text = output();
  static const char expected[] = "\r\033[Kwarning: something\r\n\r\033[K";
  assert_int_equal(strncmp(text, expected, strlen(expected)), 0);
  assert_non_null(strstr(text, "step 7/2345"));
  brim_progress_finish(&progress);
  output();
  brim_log(BRIM_LOG_INFO, "after");
  text = output();
  restore();
  assert_string_equal(text, "after\r\n");
}

static void *log_much(void *unused)
{
  (void)unused;
  for (int i = 0; i < 50; i++) brim_log(BRIM_LOG_INFO, "message of a loader thread");
  return NULL;
}

static void *drain(void *to)
{
  brim_text *text = to;
  char part[4096];
  ssize_t n;
  while ((n = read(reader, part, sizeof part)) > 0) {
    brim_text_add_n(text, part, (size_t)n);
    if (strstr(brim_text_str(text), "the end")) break;
  }
  return NULL;
}

static void messages_of_other_threads_do_not_tear_it_either(void **state)
{
  if (!use_terminal(80)) skip();
  pthread_t thread, drained;
  brim_text text = {0};
  assert_int_equal(pthread_create(&drained, NULL, drain, &text), 0);
  brim_progress_init(&progress, 0, 50, false);
  step(1);
  assert_int_equal(pthread_create(&thread, NULL, log_much, NULL), 0);
  for (int i = 0; i < 50; i++) step(2345); /* the last step is shown at once */
  pthread_join(thread, NULL);
  brim_progress_finish(&progress);
  brim_log(BRIM_LOG_INFO, "the end");
  pthread_join(drained, NULL);
  restore();
  int messages = 0;
  for (const char *at = brim_text_str(&text); (at = strstr(at, "message of a loader thread")); at++) {
    messages++;
    if (at - brim_text_str(&text) >= 4) assert_int_equal(strncmp(at - 4, "\r\033[K", 4), 0);
    assert_int_equal(strncmp(at + 26, "\r\n", 2), 0);
  }
  assert_int_equal(messages, 50);
  brim_text_release(&text);
}

static void the_format_follows_the_environment(void **state)
{
  static const struct {
    const char *term, *no_color, *locale;
    bool terminal, color, unicode;
  } cases[] = {{"xterm", "", "C.UTF-8", true, true, true},
               {"xterm", "1", "en_GB.utf8", true, false, true},
               {"xterm", "", "C", true, true, false},
               {"dumb", "", "C.UTF-8", false, false, false}};
  if (!use_terminal(80)) skip();
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    setenv("TERM", cases[i].term, 1);
    setenv("NO_COLOR", cases[i].no_color, 1);
    setenv("LC_ALL", cases[i].locale, 1);
    brim_log_read_environment();
    brim_progress_init(&progress, 0, 50, false);
    assert_int_equal(progress.terminal, cases[i].terminal);
    assert_int_equal(progress.color, cases[i].color);
    assert_int_equal(progress.unicode, cases[i].unicode);
    brim_progress_finish(&progress);
  }
  restore();
}

static void the_time_left_counts_from_the_end_of_the_first_step(void **state)
{
  use_pipe();
  brim_progress_init(&progress, 100, 0, false);
  const double made = progress.start;
  step(100);
  assert_int_equal(progress.start_step, 100);
  usleep(2000);
  step(101);
  assert_int_equal(progress.start_step, 101);
  assert_true(progress.start > made);
  const double start = progress.start;
  step(102);
  assert_true(progress.start == start);
  brim_progress_finish(&progress);
  restore();
}

/* ---- signals ---- */

#define LATER_US 400000 /* longer than the time in which two signals count as one */

typedef struct ended {
  int status; /* the status of the process, from waitpid(2) */
  const char *said;
} ended;

/* Runs a process that gets two signals, the second one at once or later. */
static ended signalled(int first, int second, unsigned later_us, int64_t checkpoint, int64_t step, bool speaks)
{
  ended out;
  use_pipe();
  const pid_t pid = fork();
  if (pid == 0) {
    signal(SIGHUP, SIG_DFL); /* nohup(1) ignores SIGHUP, and brim keeps that setting */
    const volatile sig_atomic_t *stop = brim_stop_watch(speaks);
    if (step > 0) brim_stop_doing(BRIM_STOP_STEPS);
    if (step > 0) brim_stop_set_folder("runs/one");
    brim_stop_at(checkpoint, step);
    raise(first);
    if (later_us > 0) usleep(later_us);
    raise(second);
    _exit(*stop == first ? 6 : 1);
  }
  assert_int_equal(waitpid(pid, &out.status, 0), pid);
  out.said = output();
  restore();
  return out;
}

static void assert_killed(const ended *e, int number)
{
  assert_true(WIFSIGNALED(e->status));
  assert_int_equal(WTERMSIG(e->status), number);
}

static void the_first_signal_is_answered_and_the_second_reports_the_loss(void **state)
{
  ended e = signalled(SIGINT, SIGINT, LATER_US, 500, 523, true);
  assert_killed(&e, SIGINT);
  assert_string_equal(e.said, "finishing the step, then a checkpoint; Ctrl-C again ends at once\n"
                              "ended at once: 23 steps after the checkpoint of step 500 are lost\n"
                              "resume with: brim train --resume runs/one\n");
  e = signalled(SIGTERM, SIGTERM, LATER_US, -1, 1, true);
  assert_killed(&e, SIGTERM);
  assert_string_equal(e.said, "finishing the step, then a checkpoint; SIGTERM again ends at once\n"
                              "ended at once: 1 step is lost\nresume with: brim train --resume runs/one\n");
  e = signalled(SIGHUP, SIGINT, LATER_US, -1, 0, true);
  assert_killed(&e, SIGINT);
  assert_string_equal(e.said,
                      "ending before the first step; SIGHUP again ends at once\nended at once; no step is lost\n");
}

static void silent_ranks_end_in_the_same_way(void **state)
{
  const ended e = signalled(SIGINT, SIGINT, LATER_US, 500, 523, false);
  assert_killed(&e, SIGINT);
  assert_string_equal(e.said, "");
}

/* If the machine delays the process between the two signals, it may count them separately, so one success in several
 * attempts is enough. */
static void two_signals_at_once_count_as_one(void **state)
{
  for (int tries = 0; tries < 20; tries++) {
    const ended e = signalled(SIGTERM, SIGTERM, 0, 500, 523, true);
    if (WIFSIGNALED(e.status)) continue;
    assert_int_equal(WEXITSTATUS(e.status), 6);
    assert_null(strstr(e.said, "ended at once"));
    return;
  }
  fail_msg("the second of two signals ended the process");
}

int main(void)
{
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_wide_line_shows_everything),
      cmocka_unit_test(a_line_that_is_not_on_a_terminal_has_no_bar),
      cmocka_unit_test(eighty_columns_have_the_bar_and_the_rate),
      cmocka_unit_test(a_line_fits_every_width_and_drops_the_least_important_first),
      cmocka_unit_test(colour_and_unicode_change_the_look_not_the_width),
      cmocka_unit_test(unknown_figures_are_left_out),
      cmocka_unit_test(numbers_take_the_unit_that_fits),
      cmocka_unit_test(metrics_of_tokens_and_real_numbers_are_shown),
      cmocka_unit_test(extreme_values_do_not_break_the_line),
      cmocka_unit_test_teardown(without_a_terminal_a_line_is_printed_occasionally, back_to_normal),
      cmocka_unit_test_teardown(a_quiet_run_prints_nothing, back_to_normal),
      cmocka_unit_test_teardown(a_terminal_gets_one_line_that_is_redrawn_in_place, back_to_normal),
      cmocka_unit_test_teardown(the_last_step_is_always_drawn, back_to_normal),
      cmocka_unit_test_teardown(the_width_is_queried_at_every_update, back_to_normal),
      cmocka_unit_test_teardown(messages_move_the_line_down_and_never_tear_it, back_to_normal),
      cmocka_unit_test_teardown(messages_of_other_threads_do_not_tear_it_either, back_to_normal),
      cmocka_unit_test_teardown(the_format_follows_the_environment, back_to_normal),
      cmocka_unit_test_teardown(the_first_signal_is_answered_and_the_second_reports_the_loss, back_to_normal),
      cmocka_unit_test_teardown(silent_ranks_end_in_the_same_way, back_to_normal),
      cmocka_unit_test_teardown(two_signals_at_once_count_as_one, back_to_normal),
      cmocka_unit_test_teardown(the_time_left_counts_from_the_end_of_the_first_step, back_to_normal),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
