/* The data of a setup, beside what a run keeps of it in its folder. */
#include "data/keep.h"
#include "setup/setup_parts.h"
#include "store/record.h"

/* The run that the setup is of; NULL: of none that is there. */
static const char *folder_of(const brim_setup *s)
{
  return s->options.run ? s->options.run : s->options.resume;
}

static brim_status read_kept(brim_setup *s)
{
  const char *run = folder_of(s);
  if (!run || s->was) return BRIM_OK;
  BRIM_TRY(brim_record_read(run, BRIM_SETUP_DATA_NAME, &s->was));
  if (!s->was && s->world.rank == 0)
    brim_log(BRIM_LOG_WARN,
             "'%s' has no " BRIM_SETUP_DATA_NAME ", as a brim of before began it: names of classes and all else are "
             "taken from the data as it is now",
             run);
  if (!s->was || json_is_string(json_object_get(s->was, "dataset"))) return BRIM_OK;
  return brim_fail(BRIM_ELOAD, "'%s/" BRIM_SETUP_DATA_NAME "' does not say of which dataset it is", run);
}

/* Another data set than the run's is somebody's wish. */
static brim_status check_data(const brim_setup *s, const brim_plugin *plugin)
{
  if (!s->was || !brim_data_is_kept_of(s->was, plugin)) return BRIM_OK;
  const brim_status status = brim_data_compare(s->was, s->kept, s->options.resume != NULL);
  if (status == BRIM_OK) return BRIM_OK;
  return brim_fail_add(status, "%s/" BRIM_SETUP_DATA_NAME " has what it was; dataset.path names where the data is",
                       folder_of(s));
}

static brim_status recall_data(brim_setup *s, const brim_plugin *plugin)
{
  const brim_status status = brim_data_recall_kept(&s->data, plugin, s->dataset, s->settings, s->was, &s->arena);
  if (status == BRIM_OK || status == BRIM_ECONFIG) return status;
  return brim_fail_add(status, "%s/" BRIM_SETUP_DATA_NAME " has what the run keeps of its data", folder_of(s));
}

brim_status brim_setup_describe_data(brim_setup *s, const brim_plugin *plugin)
{
  BRIM_TRY(read_kept(s));
  if (s->options.unread && s->was && brim_data_is_kept_of(s->was, plugin)) return recall_data(s, plugin);
  BRIM_TRY(brim_data_describe(&s->data, plugin, s->dataset, s->settings));
  BRIM_TRY(brim_data_keep(&s->data, &s->kept));
  return check_data(s, plugin);
}
