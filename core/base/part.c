#include "base/part.h"

const char *const brim_part_names[BRIM_PART_COUNT] = {"train", "validation", "test"};
const char *const brim_part_titles[BRIM_PART_COUNT] = {"training", "validation", "test"};
