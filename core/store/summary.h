/* The figures of a run, read back from its summary.json. */
#ifndef BRIM_STORE_SUMMARY_H
#define BRIM_STORE_SUMMARY_H
#include <stdbool.h>
#include <sys/types.h>

#include "store/record.h"

typedef struct brim_summary {
  char status[32];  /* "finished", "interrupted", "failed"; "" if there is no summary */
  char error[1024]; /* reason of the failure; else "" */
  double steps;     /* like all other figures NAN if missing */
  double train_loss, train_accuracy, validation_loss, validation_accuracy, test_loss, test_accuracy;
  double train_perplexity, validation_perplexity, test_perplexity;             /* of tokens */
  double train_mae, validation_mae, test_mae;                                  /* of real numbers */
  double client_accuracy_mean, client_accuracy_variance, client_accuracy_gini; /* of a federation's clients */
  double samples_per_second, device_peak_bytes, rss_peak_bytes, wall_seconds;
} brim_summary;

#define BRIM_SUMMARY_BYTES_MAX ((off_t)16 << 20) /* of the file: parsed, it takes about six times its length */

/* Makes every figure NAN and every text "". */
void brim_summary_clear(brim_summary *summary);
/* Reads a folder's summary. False, with every figure NAN, if it is missing, unreadable or too large. */
bool brim_summary_read(const char *dir, brim_summary *out);
/* The score shown besides the loss in comparisons of runs. */
enum brim_score { BRIM_SCORE_ACCURACY, BRIM_SCORE_PERPLEXITY, BRIM_SCORE_MAE, BRIM_SCORE_COUNT };
/* The score of a run, depending on its task. */
enum brim_score brim_summary_score(const brim_summary *summary);
const char *brim_score_name(enum brim_score score); /* "acc. %", for a column */
/* Training, validation and test score; accuracies in percent. NAN: missing. */
void brim_summary_scores(const brim_summary *summary, enum brim_score score, double out[3]);
#endif
