/* The sections of a page. Internal to page*.c. All text from a run's files is escaped by brim_svg_escape. */
#ifndef BRIM_REPORT_PAGE_PARTS_H
#define BRIM_REPORT_PAGE_PARTS_H
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

#include "report/page.h"
#include "report/svg.h"
#include "store/record.h"

#define BRIM_PAGE_SHADES 10 /* shades of a colour, besides none: classes right1, right2, ... and wrong1, ... */

/* Limits of the picture of clients: number of clients, and of classes; clients beyond the limit are sampled evenly. */
#define BRIM_PAGE_CLIENTS_MAX 200
#define BRIM_PAGE_CLASSES_MAX 200
#define BRIM_PAGE_CLASS_WORDS ((BRIM_PAGE_CLASSES_MAX + 63) / 64) /* words for a bit per class */

/* A federation's clients, from its files. */
typedef struct brim_page_clients {
  int64_t count;   /* all of them */
  double *samples; /* [count] number of samples of each; NULL: no partition.csv */
  int64_t shown;   /* number of clients in the picture; its client i has the number i * count / shown */
  /* [shown, BRIM_PAGE_CLASSES_MAX] number of samples of each class; NULL: partition.csv has no classes. */
  double *of_class;
  int64_t classes; /* 1 + the largest class; more than BRIM_PAGE_CLASSES_MAX cannot be drawn */
  double *rounds;  /* [count] number of rounds in which each trained; NULL: no participants.jsonl */
  double left_out; /* updates of selected clients that did not arrive */
  uint64_t *has[BRIM_PAGE_CLASS_WORDS]; /* [count] a bit for each class that a client's samples have; NULL: none set */
  double coverage; /* fraction of all classes that the clients of a round have together, mean over the rounds; or NAN */
} brim_page_clients;

/* A process of a run: the first one, or one that resumed it. */
typedef struct brim_page_process {
  size_t first, count; /* the process's events */
  double begin, end;   /* times of its first and last records, seconds since 1970; begin > end: no record has a time */
  double from_step, to_step; /* NAN: unknown */
  const char *how;           /* the event that records its end: "finished", "interrupted", "failed"; NULL: none */
  bool is_resumed;
  double queue_seconds;
  int recoveries;            /* parts of the run that ran out of memory and were repeated */
  const json_t *environment; /* the process's line of environment.jsonl, or NULL */
} brim_page_process;

/* The state of a run, from its events and its lock. */
enum brim_page_state {
  BRIM_PAGE_ENDED,   /* the run's last process recorded its end; or there are no events */
  BRIM_PAGE_RUNNING, /* a process holds its lock */
  BRIM_PAGE_LOST     /* the run's last process recorded no end: it was killed, or the machine stopped */
};

/* A run, with data that only its own page shows. NULL: the file is missing or damaged. */
typedef struct brim_page_run {
  brim_comparison *all;
  const brim_compared *run;
  const brim_page_live *live; /* NULL: the page is made once */
  enum brim_page_state state;
  json_t *summary;              /* an object; the last process's, unless that has not ended or was lost */
  json_t *plan, *plugins;       /* objects */
  json_t *events, *environment; /* arrays of objects; other values are left out */
  json_t *operations, *buffers; /* times of a traced step, and the picture of the plan; objects */
  json_t *samples;              /* samples.json; an object */
  brim_page_process *process;
  size_t process_count;
  double queue_seconds, work_seconds; /* seconds of all processes; work: everything except waits in the queue */
  const char *config, *overrides;     /* texts */
  brim_page_clients *clients;         /* NULL: not a federation */
  brim_text notes;                    /* unreadable files, one per line */
} brim_page_run;

/* ---- page_read.c ---- */

/* If the last process has no valid summary, takes the run's figures from its records. */
void brim_page_read(brim_comparison *all, brim_compared *run, const brim_page_live *live, brim_page_run *out);
void brim_page_release(brim_page_run *page);

/* Opens a file of the run's folder; the caller closes it. NULL: the file is missing, or cannot be read, which is added
 * to `notes`. */
FILE *brim_page_open(brim_page_run *page, const char *name);

/* ---- page_processes.c ---- */

void brim_page_read_processes(brim_page_run *page);
bool brim_page_is_event(const json_t *event, const char *kind);

/* ---- page_timeline_svg.c ---- */

/* Adds the picture of the section "What happened"; nothing if there are no times. */
void brim_page_timeline_picture(const brim_page_run *page, brim_text *out);

/* Seconds of a step: the median over the training records; NAN: none yet. */
double brim_page_step_seconds(const brim_page_run *page);

/* Seconds until step `steps`, from the newest process's first to its last record (brim_progress_seconds); NAN:
 * unknown. */
double brim_page_seconds_left(const brim_page_run *page, double steps);

/* ---- page_live.c ---- */

/* The state of the run as a word: "running", "waiting", "finished". */
const char *brim_page_status(const brim_page_run *page);
/* Whether the page belongs to a run in progress, so that a browser reloads it. */
bool brim_page_refreshes(const brim_page_run *page);
/* For the head: a content security policy that allows no script except the page's own, and that only while the run is
 * in progress; and the refresh for browsers without scripts. */
void brim_page_head(const brim_page_run *page, brim_text *out);
/* Adds a line about the age of the page, if it is not the last one, and advice about a run that was lost. */
void brim_page_age(const brim_page_run *page, brim_text *out);
/* Adds the script that refreshes the page; for the page's end. */
void brim_page_script(const brim_page_run *page, brim_text *out);

/* ---- page_clients_read.c ---- */

/* Reads the clients of a federation; returns NULL for other runs. Allocates from the arena. */
brim_page_clients *brim_page_read_clients(brim_page_run *page);

/* ---- page_html.c: building blocks ---- */

/* Adds text without markup; keeps line ends. */
void brim_page_text(brim_text *out, const char *text);
/* Begins a section with an id made from its heading, which must be a literal. */
void brim_page_begin(brim_text *out, const char *heading);
/* Links to the sections of `body`, in their order. */
void brim_page_jumps(const brim_text *body, brim_text *out);
void brim_page_end(brim_text *out);
/* Begins a section that is collapsed until the user clicks on its heading. */
void brim_page_begin_folded(brim_text *out, const char *heading);
void brim_page_end_folded(brim_text *out);
/* Omits columns that are empty in all rows, like brim_table_print. Does nothing without rows. */
void brim_page_table(brim_text *out, const brim_table *table);
/* Adds a row to a table of names and values. */
void brim_page_pair(brim_table *table, const char *name, const char *value);

/* ---- page_figures.c: names and formats of figures ---- */

/* Whether a figure rates a model, such as loss or perplexity; other figures describe its training. */
bool brim_figure_is_score(const char *name);
/* A figure's title: "accuracy_top5" gives "top-5 accuracy"; an unknown figure keeps its name. Allocates from
 * `arena`. */
const char *brim_figure_title(brim_arena *arena, const char *name);
/* Formats a figure: "92.15 %" for an accuracy; "-" for a value that is not finite. Returns `out`. */
const char *brim_figure_format(char *out, size_t room, const char *name, double value);
const char *brim_figure_bytes(char *out, size_t room, double bytes);
/* Formats a UTC time, "2026-11-27 22:31:05"; "" unless it is plausible. Returns `out`. */
const char *brim_page_format_time(char *out, size_t room, double seconds);
const char *brim_figure_seconds(char *out, size_t room, double seconds);

/* Distinct names, in order of first appearance. */
#define BRIM_NAMES_MAX 64
typedef struct brim_names {
  const char *name[BRIM_NAMES_MAX];
  size_t count;
} brim_names;
/* Adds the name unless the list has it or is full. Does not copy the text. */
void brim_names_add(brim_names *names, const char *name);

struct brim_method; /* methods.h */

/* ---- sections; each is omitted if the run has no data for it ---- */

void brim_page_headline(const brim_page_run *page, brim_text *out);
void brim_page_results(const brim_page_run *page, brim_text *out);
void brim_page_curves(const brim_page_run *page, brim_text *out);
/* Adds the memory at each record; for federations only. */
void brim_page_memory_curves(const brim_page_run *page, brim_text *out);
void brim_page_curves_of_all(brim_comparison *c, brim_text *out);
/* Adds the mean accuracy of the seeds of each of `count` methods, by round and by simulated time. */
void brim_page_curves_of_methods(brim_comparison *c, const struct brim_method *method, size_t count, brim_text *out);
void brim_page_epochs(const brim_page_run *page, brim_text *out);
/* Adds the rounds in which a federation reached 50, 80 and 90 %. */
void brim_page_reached(const brim_page_run *page, brim_text *out);
/* A row for each federation. */
void brim_page_reached_of_all(brim_comparison *c, brim_text *out);
void brim_page_clients_section(const brim_page_run *page, brim_text *out);
/* Adds federations that differ only in their seeds, as one method; false: there are no finished federations. */
bool brim_page_methods(brim_comparison *c, brim_text *out);
void brim_page_classes(const brim_page_run *page, brim_text *out);
void brim_page_histograms(const brim_page_run *page, brim_text *out);
extern const char *const brim_page_histograms_style;
void brim_page_samples(const brim_page_run *page, brim_text *out);
extern const char *const brim_page_samples_style;
void brim_page_plan(const brim_page_run *page, brim_text *out);
/* The section "What happened": waits, decisions, recoveries, interruptions, resumes; a picture and a table. */
void brim_page_timeline(const brim_page_run *page, brim_text *out);
void brim_page_ranks(const brim_page_run *page, brim_text *out);
void brim_page_environment(const brim_page_run *page, brim_text *out);
/* The predicted seconds of a traced step; NAN: unknown. */
double brim_page_traced_prediction(const brim_page_run *page);
/* Adds the time by operation, from operations.json. */
void brim_page_operations(const brim_page_run *page, brim_text *out);
void brim_page_inputs(const brim_page_run *page, brim_text *out);

/* ---- page_confusion.c ---- */

/* A confusion matrix of counts: row = label, column = predicted. */
typedef struct brim_confusion {
  size_t classes;
  const double *count; /* classes * classes */
  double *of_label;    /* sum of each row */
  const char **name;
} brim_confusion;
void brim_page_heat_map(const brim_confusion *confusion, brim_text *out);
void brim_page_confused_pairs(brim_arena *arena, const brim_confusion *confusion, brim_text *out);
#endif
