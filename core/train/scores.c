/* Precision, recall and F1. */
#include "train/scores.h"

#include <stdio.h>

#include "graph/graph.h"

static double ratio(double part, double whole)
{
  return whole > 0 ? part / whole : 0;
}

brim_class_score brim_scores_of(const double *confusion, int64_t classes, int64_t class_index)
{
  const double right = confusion[class_index * classes + class_index];
  double support = 0, answered = 0;
  for (int64_t k = 0; k < classes; k++) {
    support += confusion[class_index * classes + k];
    answered += confusion[k * classes + class_index];
  }
  return (brim_class_score){ratio(right, answered), ratio(right, support), ratio(2 * right, support + answered),
                            (int64_t)support, (int64_t)answered};
}

double brim_scores_macro_f1(const double *confusion, int64_t classes)
{
  double sum = 0, occurring = 0;
  for (int64_t k = 0; k < classes; k++) {
    const brim_class_score s = brim_scores_of(confusion, classes, k);
    if (s.support + s.answered == 0) continue;
    sum += s.f1;
    occurring++;
  }
  return ratio(sum, occurring);
}

const char *brim_scores_left_out(char *room, size_t bytes, int64_t classes)
{
  room[0] = '\0';
  if (classes >= BRIM_MANY_CLASSES)
    snprintf(
        room, bytes,
        "omitted with %lld classes: F1, per-class figures and the confusion matrix, which need fewer than %d classes",
        (long long)classes, BRIM_MANY_CLASSES);
  else if (classes > BRIM_MATRIX_CLASSES_MAX)
    snprintf(room, bytes, "omitted with %lld classes: the confusion matrix, which is written for up to %d",
             (long long)classes, BRIM_MATRIX_CLASSES_MAX);
  return room;
}

json_t *brim_scores_confusion_json(const double *confusion, int64_t classes)
{
  if (!confusion || classes > BRIM_MATRIX_CLASSES_MAX) return NULL;
  json_t *rows = json_array();
  for (int64_t i = 0; i < classes; i++) {
    json_t *row = json_array();
    for (int64_t k = 0; k < classes; k++)
      json_array_append_new(row, json_integer((json_int_t)confusion[i * classes + k]));
    json_array_append_new(rows, row);
  }
  return rows;
}
