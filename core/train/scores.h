/* How well each class is distinguished from the others, from a confusion matrix: row = label, column = predicted.
 * With BRIM_MANY_CLASSES or more classes no matrix is counted, and there are no such figures. A matrix of more than
 * BRIM_MATRIX_CLASSES_MAX classes is counted but not written: as JSON it takes ten times the memory. */
#ifndef BRIM_TRAIN_SCORES_H
#define BRIM_TRAIN_SCORES_H
#include <jansson.h>
#include <stdint.h>

/* precision: fraction of the answers for this class that are right; recall: fraction of its samples that are answered
 * right; f1: their harmonic mean. 0 instead of a division by zero, as in scikit-learn's classification_report. */
typedef struct brim_class_score {
  double precision, recall, f1;
  int64_t support;  /* samples of the class */
  int64_t answered; /* samples predicted as this class */
} brim_class_score;

brim_class_score brim_scores_of(const double *confusion, int64_t classes, int64_t class_index);
/* The mean of f1 over the classes that occur as label or answer, as in scikit-learn's f1_score(average="macro"). */
double brim_scores_macro_f1(const double *confusion, int64_t classes);
/* Writes which figures are omitted for this number of classes, and why; "" if none are. Returns `room`. */
const char *brim_scores_left_out(char *room, size_t bytes, int64_t classes);
/* The confusion matrix [classes, classes] as rows of counts; a new reference. NULL if none was counted or there are
 * more than BRIM_MATRIX_CLASSES_MAX classes. */
json_t *brim_scores_confusion_json(const double *confusion, int64_t classes);
#endif
