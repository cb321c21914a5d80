/* What of the settings asks for which step of a transform. */
#ifndef BRIM_DATA_TRANSFORM_CHECK_H
#define BRIM_DATA_TRANSFORM_CHECK_H
#include <stdbool.h>

#include "config/settings.h"

/* Are brightness, contrast, saturation or hue to change? */
bool brim_transform_has_colours(const brim_settings *settings);
/* Is anything to be done at random to training samples? */
bool brim_transform_augments(const brim_settings *settings);
/* [init] ECONFIG, naming `key`, unless the list is [least, most], in order, above 0 and not above `most`. */
brim_status brim_transform_check_range(const char *key, const brim_list *list, double most);
#endif
