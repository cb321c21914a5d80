/* A look in the text format of OpenMetrics. Labels have the names that dcgm-exporter uses (gpu, UUID, Hostname), so
 * that users can join both series. */
#ifndef BRIM_MONITOR_METRICS_H
#define BRIM_MONITOR_METRICS_H
#include "base/text.h"
#include "monitor/look.h"

void brim_look_metrics(brim_look *look, brim_text *out);
#endif
