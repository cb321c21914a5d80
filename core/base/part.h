/* The parts of the data of a run. A dataset names its splits itself (brim/dataset.h). */
#ifndef BRIM_BASE_PART_H
#define BRIM_BASE_PART_H

enum brim_part { BRIM_PART_TRAIN, BRIM_PART_VALIDATION, BRIM_PART_TEST, BRIM_PART_COUNT };
/* The names in records, summaries and messages: "train", "validation", "test". */
extern const char *const brim_part_names[BRIM_PART_COUNT];
/* The names in sentences and headings, in which "train" is "training". */
extern const char *const brim_part_titles[BRIM_PART_COUNT];
#endif
