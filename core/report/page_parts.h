/* The sections of a page. Internal to page*.c. Whatever comes from the files of a run goes through brim_svg_escape. */
#ifndef BRIM_REPORT_PAGE_PARTS_H
#define BRIM_REPORT_PAGE_PARTS_H
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

#include "report/page.h"
#include "report/svg.h"

#define BRIM_PAGE_SHADES 10 /* of a colour, besides none: the classes right1, right2, ... and wrong1, ... */

/* Clients that are drawn, and classes that their samples may have: the first, and no client of others. */
#define BRIM_PAGE_CLIENTS_MAX 200
#define BRIM_PAGE_CLASSES_MAX 200
#define BRIM_PAGE_CLASS_WORDS ((BRIM_PAGE_CLASSES_MAX + 63) / 64) /* of a bit for each class */

/* What a federation's files say of its clients. */
typedef struct brim_page_clients {
  int64_t count;    /* all of them */
  double *samples;  /* [count] that each has; NULL: partition.csv is not there */
  int64_t shown;    /* clients of the picture; client i of it is number i * count / shown */
  double *of_class; /* [shown, BRIM_PAGE_CLASSES_MAX] samples of each class; NULL: partition.csv has no classes */
  int64_t classes;  /* 1 + the largest; more than BRIM_PAGE_CLASSES_MAX cannot be drawn */
  double *rounds;   /* [count] in which each has trained; NULL: participants.jsonl is not there */
  double left_out;  /* times that a client was selected, but its update did not arrive */
  uint64_t *has[BRIM_PAGE_CLASS_WORDS]; /* [count] a bit for each class of a client's samples; NULL: none has such */
  double coverage; /* share of all classes that the clients of a round have together, mean over the rounds; or NAN */
} brim_page_clients;

/* A run with what only its own page shows. A file that is not there, or damaged, is NULL here. */
typedef struct brim_page_run {
  brim_comparison *all;
  const brim_compared *run;
  json_t *summary, *plan, *plugins; /* objects */
  json_t *events;                   /* an array of objects; what is no event is left out */
  const char *config, *overrides;   /* texts */
  brim_page_clients *clients;       /* NULL: the run was no federation */
  brim_text notes;                  /* what cannot be read, a line each */
} brim_page_run;

/* ---- page_read.c ---- */

void brim_page_read(brim_comparison *all, const brim_compared *run, brim_page_run *out);
void brim_page_release(brim_page_run *page);
/* A number of an object; NAN if it has none of that name, or there is no object. */
double brim_page_number(const json_t *object, const char *key);
/* A text of an object; "" if it has none of that name. */
const char *brim_page_string(const json_t *object, const char *key);

/* A file of the run's folder, to be closed; NULL: there is none, or it cannot be read, which is noted. */
FILE *brim_page_open(brim_page_run *page, const char *name);

/* ---- page_clients_read.c ---- */

/* NULL if the run was no federation. Into the arena. */
brim_page_clients *brim_page_read_clients(brim_page_run *page);

/* ---- page_html.c: what sections are made of ---- */

/* Text that is no markup, line ends kept. */
void brim_page_text(brim_text *out, const char *text);
void brim_page_begin(brim_text *out, const char *heading);
void brim_page_end(brim_text *out);
/* Collapsed, until somebody clicks on the heading. */
void brim_page_begin_folded(brim_text *out, const char *heading);
void brim_page_end_folded(brim_text *out);
/* Columns that are empty in all rows are left out, as brim_table_print does. No rows: nothing. */
void brim_page_table(brim_text *out, const brim_table *table);
/* A row of a table of names and values. */
void brim_page_pair(brim_table *table, const char *name, const char *value);

/* ---- page_figures.c: how figures are called and written ---- */

/* Is it something that says how good a model is, such as loss or perplexity, not what it was trained by? */
bool brim_figure_is_score(const char *name);
/* "accuracy_top5" is "top-5 accuracy"; what is not known is called as it is. Into `arena`. */
const char *brim_figure_title(brim_arena *arena, const char *name);
/* "92.15 %" of an accuracy; "-" for what is not finite. Returns `out`. */
const char *brim_figure_format(char *out, size_t room, const char *name, double value);
const char *brim_figure_bytes(char *out, size_t room, double bytes);
const char *brim_figure_seconds(char *out, size_t room, double seconds);

/* Names, each once, in the order in which they are met. */
#define BRIM_NAMES_MAX 64
typedef struct brim_names {
  const char *name[BRIM_NAMES_MAX];
  size_t count;
} brim_names;
/* Left out if it is there, or there are too many. The text must stay. */
void brim_names_add(brim_names *names, const char *name);

struct brim_method; /* methods.h */

/* ---- a section each; nothing is printed of what a run does not have ---- */

void brim_page_headline(const brim_page_run *page, brim_text *out);
void brim_page_curves(const brim_page_run *page, brim_text *out);
/* Memory of each record of a federation; of other runs nothing. */
void brim_page_memory_curves(const brim_page_run *page, brim_text *out);
void brim_page_curves_of_all(brim_comparison *c, brim_text *out);
/* Accuracy by round and by simulated time, the mean over the seeds of each of `count` methods. */
void brim_page_curves_of_methods(brim_comparison *c, const struct brim_method *method, size_t count, brim_text *out);
void brim_page_epochs(const brim_page_run *page, brim_text *out);
/* When a federation came to 50, 80 and 90 %. */
void brim_page_reached(const brim_page_run *page, brim_text *out);
/* A row for each federation. */
void brim_page_reached_of_all(brim_comparison *c, brim_text *out);
void brim_page_clients_section(const brim_page_run *page, brim_text *out);
/* Federations that differ in their seeds as one; false: there are none that finished. */
bool brim_page_methods(brim_comparison *c, brim_text *out);
void brim_page_classes(const brim_page_run *page, brim_text *out);
void brim_page_plan(const brim_page_run *page, brim_text *out);
void brim_page_events(const brim_page_run *page, brim_text *out);
void brim_page_inputs(const brim_page_run *page, brim_text *out);

/* ---- page_confusion.c ---- */

/* A matrix of counts: row = label, column = predicted. */
typedef struct brim_confusion {
  size_t classes;
  const double *count; /* classes * classes */
  double *of_label;    /* sum of each row */
  const char **name;
} brim_confusion;
void brim_page_heat_map(const brim_confusion *confusion, brim_text *out);
void brim_page_confused_pairs(brim_arena *arena, const brim_confusion *confusion, brim_text *out);
#endif
