/* A plugin with fields that the build can spoil: CMakeLists.txt has the definitions. Unmodified it is a valid one:
 * model/good and dataset/good. */
#include <stdlib.h>

#include "brim/brim.h"

#ifndef MAGIC
#define MAGIC BRIM_MAGIC
#endif
#ifndef MODULE_SIZE
#define MODULE_SIZE sizeof(brim_module)
#endif
#ifndef ABI_MAJOR
#define ABI_MAJOR BRIM_ABI_MAJOR
#endif
#ifndef ABI_MINOR
#define ABI_MINOR BRIM_ABI_MINOR
#endif
#ifndef ABI_TAG
#define ABI_TAG BRIM_ABI_TAG
#endif
#ifndef MODULE_NAME
#define MODULE_NAME "abi-test"
#endif
#ifndef MODULE_VERSION
#define MODULE_VERSION "1.0"
#endif
#ifndef MODULE_PLUGINS
#define MODULE_PLUGINS plugins
#endif
#ifndef ENTRY_RETURNS
#define ENTRY_RETURNS &module
#endif
#ifndef PLUGIN_SIZE
#define PLUGIN_SIZE sizeof(brim_plugin)
#endif
#ifndef KIND
#define KIND BRIM_MODEL
#endif
#ifndef ID
#define ID "good"
#endif
#ifndef HELP
#define HELP "a model that only exists for this test"
#endif
#ifndef PARAMS_SIZE
#define PARAMS_SIZE sizeof(params)
#endif
#ifndef WIDTH_DEFAULT
#define WIDTH_DEFAULT "8"
#endif
#ifndef WIDTH_TYPE
#define WIDTH_TYPE I64
#endif
#ifdef TABLE_ENDLESS /* the rows are followed by an invalid one */
#define TABLE_END                                                                                                      \
  {                                                                                                                    \
    .key = (const char *)16                                                                                            \
  }
#else
#define TABLE_END BRIM_PARAMS_END
#endif
#ifndef OPS
#define OPS &model_ops
#endif
#ifndef OPS_SIZE
#define OPS_SIZE sizeof(brim_model_ops)
#endif
#ifndef BUILD
#define BUILD build
#endif
#ifndef READ
#define READ read_sample
#endif
#ifndef SECOND
#define SECOND &dataset
#endif

typedef struct params {
  int64_t width;
  double rate;
} params;

#define WIDTH_ROW(type) BRIM_PARAM(type, params, width, WIDTH_DEFAULT, "[1,64]", "features of the hidden layer")
static const brim_param table[] = {WIDTH_ROW(WIDTH_TYPE),
                                   BRIM_PARAM(F64, params, rate, "0.5", "[0,1)", "share that is dropped"), TABLE_END};

#ifdef CALLS
brim_status CALLS(void); /* a function that does not exist, or that exists only in a missing library */
#endif

static brim_status build(const void *self, brim_graph *g)
{
  const params *p = self;
#ifdef CALLS
  BRIM_TRY(CALLS());
#endif
  brim_tensor *x = brim_relu(g, brim_linear(g, "fc1", brim_flatten(g, brim_input(g)), p->width));
  brim_output(g, brim_linear(g, "fc2", brim_dropout(g, x, p->rate), brim_classes(g)));
  return BRIM_OK;
}
static const brim_model_ops model_ops = {OPS_SIZE, BUILD};

static brim_status open_split(void *self, const char *split)
{
  (void)self;
  return brim_fail(BRIM_ENOTSUP, "there is no split '%s'", split);
}
static brim_status describe(const void *self, const char *split, brim_dataset_info *out)
{
  (void)self;
  (void)split;
  out->count = 0;
  return BRIM_OK;
}
static brim_status read_sample(const void *self, const char *split, int64_t index, void *values, void *label)
{
  (void)self;
  (void)split;
  (void)index;
  (void)values;
  *(int32_t *)label = 0;
  return BRIM_OK;
}
static const brim_dataset_ops dataset_ops = {sizeof(brim_dataset_ops), open_split, describe, READ};

static const brim_plugin model = {PLUGIN_SIZE, KIND, ID, HELP, PARAMS_SIZE, table, NULL, NULL, OPS};
static const brim_plugin dataset = {
    sizeof(brim_plugin), BRIM_DATASET, ID, "a dataset without samples", 0, NULL, NULL, NULL, &dataset_ops};
static const brim_plugin *const plugins[] = {&model, SECOND, NULL};
static const brim_plugin *const no_plugins[] = {NULL};

#ifdef MARK
/* Shows the test that the file was loaded. */
__attribute__((constructor)) static void mark(void)
{
  setenv(MARK, "1", 1);
}
#endif

#ifndef NO_ENTRY
const brim_module *brim_module_entry(void)
{
  static const brim_module module = {MAGIC,   MODULE_SIZE, ABI_MAJOR,      ABI_MINOR,
                                     ABI_TAG, MODULE_NAME, MODULE_VERSION, MODULE_PLUGINS};
  return ENTRY_RETURNS;
}
#endif
