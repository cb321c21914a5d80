/* A look in the text format of OpenMetrics. Labels are spelt as dcgm-exporter spells them (gpu, UUID, Hostname), so
 * that its series and these join. */
#ifndef BRIM_MONITOR_METRICS_H
#define BRIM_MONITOR_METRICS_H
#include "base/text.h"
#include "monitor/look.h"

void brim_look_metrics(brim_look *look, brim_text *out);
#endif
