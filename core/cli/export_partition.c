/* brim federate --export-partition FILE: writes the assignment of samples to clients, without a run. */
#include <inttypes.h>

#include "base/log.h"
#include "base/text.h"
#include "cli/cli.h"
#include "drive/drive.h"

brim_status brim_cli_export_partition(const brim_config *config, const char *path)
{
  brim_drive *d = NULL;
  brim_status status = brim_drive_open(config, &(brim_setup_options){.read_data = true, .no_timing = true}, &d);
  if (status == BRIM_OK) status = brim_setup_start_data(d->setup); /* for the classes */
  if (status == BRIM_OK) status = brim_setup_finish_data(d->setup);
  if (status == BRIM_OK) {
    const brim_partition *p = &d->setup->partition;
    status = brim_partition_write(&d->setup->data, p, path);
    if (status == BRIM_OK)
      brim_say("%s: %" PRId64 " sample%s for %" PRId64 " client%s (%s, %" PRId64 " to %" PRId64
               " each), hash %016" PRIx64,
               path, p->samples, brim_plural(p->samples), p->clients, brim_plural(p->clients),
               brim_partition_names[d->setup->settings->partition.kind], p->least, p->most, brim_partition_hash(p));
  }
  brim_drive_close(d);
  return status;
}
