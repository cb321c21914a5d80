/* Figures of how well each class is distinguished from the others, from a confusion matrix: row = label, column =
 * predicted. With BRIM_MANY_CLASSES or more classes brim counts no matrix, and computes no such figures. brim does not
 * write a matrix of more than BRIM_MATRIX_CLASSES_MAX classes, because JSON takes ten times the memory. */
#ifndef BRIM_TRAIN_SCORES_H
#define BRIM_TRAIN_SCORES_H
#include <jansson.h>
#include <stdint.h>

/* precision: correct answers as a fraction of the answers for this class; recall: correct answers as a fraction of the
 * samples of this class; f1: their harmonic mean. A quotient with denominator 0 counts as 0, as in scikit-learn's
 * classification_report. */
typedef struct brim_class_score {
  double precision, recall, f1;
  int64_t support;  /* samples of the class */
  int64_t answered; /* samples predicted as this class */
} brim_class_score;

brim_class_score brim_scores_of(const double *confusion, int64_t classes, int64_t class_index);
/* The mean of f1 over the classes that occur as label or answer, as in scikit-learn's f1_score(average="macro"). */
double brim_scores_macro_f1(const double *confusion, int64_t classes);
/* Writes the figures that are omitted for this number of classes, and the reason; "" if none are. Returns `room`. */
const char *brim_scores_left_out(char *room, size_t bytes, int64_t classes);
/* Returns the confusion matrix [classes, classes] as rows of counts; a new reference. NULL if none was counted or there
 * are more than BRIM_MATRIX_CLASSES_MAX classes. */
json_t *brim_scores_confusion_json(const double *confusion, int64_t classes);
#endif
