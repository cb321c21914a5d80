/* What of the settings asks for which step of a transform. */
#ifndef BRIM_DATA_TRANSFORM_CHECK_H
#define BRIM_DATA_TRANSFORM_CHECK_H
#include <stdbool.h>

#include "config/settings.h"

/* Are brightness, contrast, saturation or hue to change? */
bool brim_transform_has_colours(const brim_settings *settings);
/* Is anything to be done at random to training samples? */
bool brim_transform_augments(const brim_settings *settings);
#endif
