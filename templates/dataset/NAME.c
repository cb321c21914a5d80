/* @NAME@: points on the arms of a spiral; a point's class is the number of its arm. A dataset describes its samples and
 * writes one of them when brim asks for it; brim does the shuffling, batching and threading. See brim/dataset.h. */
#include <brim/brim.h>
#include <math.h>
#include <string.h>

typedef struct settings { /* brim fills this struct from the table below */
  int64_t count, arms;
  double noise;
} settings;

static const brim_param table[] = {
    BRIM_PARAM(I64, settings, count, "4096", "[1,1000000000]", "training samples; a quarter as many for testing"),
    BRIM_PARAM(I64, settings, arms, "3", "[2,100]", "arms of the spiral: the classes"),
    BRIM_PARAM(F64, settings, noise, "0.05", "[0,1]", "largest distance of a point from its arm, by coordinate"),
    BRIM_PARAMS_END,
};

/* The splits are "train" and "test". `brim plan` calls this before the split is open. */
static brim_status describe(const void *self, const char *split, brim_dataset_info *out)
{
  const settings *s = self;
  const int64_t count = strcmp(split, "train") == 0 ? s->count : strcmp(split, "test") == 0 ? (s->count + 3) / 4 : 0;
  if (count == 0) return brim_fail(BRIM_ENOTSUP, "@NAME@ has no split '%s'", split);
  *out = (brim_dataset_info){.count = count, .dtype = BRIM_DTYPE_F32, .task = BRIM_TASK_CLASS, .classes = s->arms};
  out->sample = (brim_shape){.rank = 1, .dim = {2}}; /* x and y */
  return BRIM_OK;
}

/* A dataset with files opens them here and checks them completely: read() must be able to serve every sample. */
static brim_status open_split(void *self, const char *split)
{
  brim_dataset_info info;
  return describe(self, split, &info);
}

/* Called on any thread, so it must not change state or allocate. Sample `index` is always the same, noise included. */
static brim_status read_sample(const void *self, const char *split, int64_t index, void *values, void *label)
{
  const settings *s = self;
  const brim_philox r = brim_random4(strcmp(split, "train") == 0, BRIM_STREAM_DATA, 0, (uint64_t)index, 0);
  const int32_t arm = (int32_t)(index % s->arms);
  const double radius = brim_uniform(r.v[0]), angle = 3 * radius + 6.28318530718 * arm / (double)s->arms;
  ((float *)values)[0] = (float)(radius * cos(angle) + s->noise * (2 * brim_uniform(r.v[1]) - 1));
  ((float *)values)[1] = (float)(radius * sin(angle) + s->noise * (2 * brim_uniform(r.v[2]) - 1));
  *(int32_t *)label = arm; /* with BRIM_TASK_CLASS a label is one int32_t */
  return BRIM_OK;
}

static const brim_dataset_ops ops = {.size = sizeof ops, .open = open_split, .describe = describe, .read = read_sample};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_DATASET,
                                   .id = "@NAME@",
                                   .ops = &ops,
                                   .help = "points on the arms of a spiral",
                                   .params_size = sizeof(settings),
                                   .params = table};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("@NAME@", "0.1", plugins)
