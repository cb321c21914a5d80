/* The figures of a run, read back from its summary.json. */
#ifndef BRIM_STORE_SUMMARY_H
#define BRIM_STORE_SUMMARY_H
#include <stdbool.h>
#include <sys/types.h>

#include "base/part.h"
#include "store/record.h"

/* The score of a model besides its loss: the accuracy; for tokens the perplexity; for real numbers the mean error. */
enum brim_score { BRIM_SCORE_ACCURACY, BRIM_SCORE_PERPLEXITY, BRIM_SCORE_MAE, BRIM_SCORE_COUNT };
extern const char *const brim_score_keys[BRIM_SCORE_COUNT]; /* in files: "accuracy", "perplexity", "mae" */
const char *brim_score_name(enum brim_score score);         /* "acc. %", for a column */

typedef struct brim_summary {
  char status[32];  /* "finished", "interrupted", "failed"; "" if there is no summary */
  char error[1024]; /* reason of the failure; else "" */
  double steps;     /* this and all other figures: NAN if missing */
  double loss[BRIM_PART_COUNT], score[BRIM_SCORE_COUNT][BRIM_PART_COUNT];
  double client_accuracy_variance, client_accuracy_gini; /* differences among a federation's clients */
  double samples_per_second, device_peak_bytes, rss_peak_bytes, wall_seconds;
} brim_summary;

/* Limit for the file's bytes; parsed, it takes about six times as much memory. */
#define BRIM_SUMMARY_BYTES_MAX ((off_t)16 << 20)

/* Makes every figure NAN and every text "". */
void brim_summary_clear(brim_summary *summary);
/* Reads a folder's summary. False, with every figure NAN, if it is missing, unreadable or too large. */
bool brim_summary_read(const char *dir, brim_summary *out);
/* The score that comparisons show besides the loss; it depends on the run's task. */
enum brim_score brim_summary_score(const brim_summary *summary);
/* A score as tables show it: accuracies in percent; NAN if missing. */
double brim_summary_shown(const brim_summary *summary, enum brim_score score, enum brim_part part);
/* Returns the figure "<part>_<name>" of an object, such as "validation_loss"; NAN if missing. */
double brim_summary_number(const json_t *object, enum brim_part part, const char *name);
void brim_summary_set(json_t *object, enum brim_part part, const char *name, double value);
#endif
