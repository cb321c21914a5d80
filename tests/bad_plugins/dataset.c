/* A dataset of generated numbers that misbehaves as $BRIM_BAD says (see bad.h). */
#include "bad.h"

#define FEATURES 4

static brim_status create(const void *params, void **self)
{
  (void)params;
  *self = NULL;
  return bad_in("create", 0);
}

static int is_known(const char *split)
{
  return strcmp(split, "train") == 0 || strcmp(split, "test") == 0;
}

static brim_status open_split(void *self, const char *split)
{
  (void)self;
  return is_known(split) ? bad_in("open", 0) : BRIM_ENOTSUP;
}

static brim_status describe(const void *self, const char *split, brim_dataset_info *out)
{
  (void)self;
  if (!is_known(split)) return BRIM_ENOTSUP;
  *out = (brim_dataset_info){.count = 256,
                             .sample = {.rank = 1, .dim = {FEATURES}},
                             .dtype = BRIM_DTYPE_F32,
                             .classes = bad_is("describe", "none") ? 0 : 2};
  return bad_in("describe", 0);
}

/* Faults: "past" writes past the sample, "label" gives an invalid class, "moves" gives other values each time. */
static brim_status read_sample(const void *self, const char *split, int64_t index, void *values, void *label)
{
  static float count;
  float *v = values;
  (void)self;
  (void)split;
  for (int i = 0; i < FEATURES + bad_is("read", "past"); i++) v[i] = (float)(index % (i + 2));
  if (bad_is("read", "moves")) v[0] = count++;
  *(int32_t *)label = bad_is("read", "label") ? 9 : (int32_t)(index % 2);
  return bad_in("read", index);
}

/* "more": more each time. */
static brim_status host_bytes(const void *self, const char *split, uint64_t *out)
{
  static uint64_t calls;
  (void)self;
  (void)split;
  *out = bad_is("host_bytes", "more") ? ++calls : 4096;
  return bad_in("host_bytes", 0);
}

/* "takes": accepts every file. */
static brim_status open_file(void *self, const char *path, const char *split)
{
  (void)self;
  (void)split;
  BRIM_TRY(bad_in("open_file", 0));
  return bad_is("open_file", "takes") ? BRIM_OK : brim_fail(BRIM_ELOAD, "'%s' is not a file of samples", path);
}

static const brim_dataset_ops ops = {.size = sizeof ops,
                                     .open = open_split,
                                     .describe = describe,
                                     .read = read_sample,
                                     .open_file = open_file,
                                     .host_bytes = host_bytes};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_DATASET,
                                   .id = "bad",
                                   .help = "behaves as badly as a test says",
                                   .create = create,
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("bad-dataset", "1.0", plugins)
