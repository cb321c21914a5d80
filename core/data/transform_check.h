/* Checks the settings of transforms, and finds the parts that they turn on. */
#ifndef BRIM_DATA_TRANSFORM_CHECK_H
#define BRIM_DATA_TRANSFORM_CHECK_H
#include <stdbool.h>

#include "config/settings.h"

/* Whether training samples are changed at random. */
bool brim_transform_augments(const brim_settings *settings);
/* [init] ECONFIG, naming `key`, unless the list is [low, high] with 0 < low <= high <= `most`. */
brim_status brim_transform_check_range(const char *key, const brim_list *list, double most);
#endif
