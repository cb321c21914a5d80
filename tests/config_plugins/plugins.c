/* Plugins that only have a configuration and do nothing: their tables contain every type of parameter. */
#include "brim/brim.h"

typedef struct cnn_params {
  int64_t width;
  double dropout;
  const char *tag;
  int32_t norm;
} cnn_params;
static const brim_param cnn_table[] = {
    BRIM_PARAM(I64, cnn_params, width, "32", "[1,4096]", "channels of the first layer"),
    BRIM_PARAM(F64, cnn_params, dropout, "0.5", "[0,1)", "share that is dropped"),
    BRIM_PARAM(STR, cnn_params, tag, "", NULL, "a name"),
    BRIM_PARAM(ENUM, cnn_params, norm, "none", "none|batch|layer", "kind of normalisation"), BRIM_PARAMS_END};

typedef struct mlp_params {
  brim_list hidden;
  double dropout;
} mlp_params;
static const brim_param mlp_table[] = {
    BRIM_PARAM(LIST, mlp_params, hidden, "[512, 256]", "[1,65536]", "width of each hidden layer"),
    BRIM_PARAM(F64, mlp_params, dropout, "0", "[0,1)", "share that is dropped"), BRIM_PARAMS_END};

typedef struct vit_params {
  int64_t depth;
  bool causal;
} vit_params;
static const brim_param vit_table[] = {BRIM_PARAM(I64, vit_params, depth, "12", "[1,512]", "number of blocks"),
                                       BRIM_PARAM(BOOL, vit_params, causal, "false", NULL, "look back only"),
                                       BRIM_PARAMS_END};

typedef struct files_params {
  const char *path;
  int64_t classes;
  brim_list mean;
} files_params;
static const brim_param files_table[] = {
    BRIM_PARAM(PATH, files_params, path, NULL, NULL, "folder of the files"),
    BRIM_PARAM(I64, files_params, classes, "10", "[2,256]", "number of classes"),
    BRIM_PARAM(LIST, files_params, mean, "[0.25]", NULL, "per channel, the files' own"), BRIM_PARAMS_END};

typedef struct made_params {
  int64_t count;
} made_params;
static const brim_param made_table[] = {BRIM_PARAM(I64, made_params, count, "100", "[1,inf)", "number of samples"),
                                        BRIM_PARAMS_END};

typedef struct cpu_params {
  int64_t threads;
  uint64_t memory_mb, cache_bytes;
  double wait_minutes, poll_seconds;
} cpu_params;
static const brim_param cpu_table[] = {
    BRIM_PARAM(I64, cpu_params, threads, "0", "[0,1024]", "threads"),
    BRIM_PARAM(BYTES, cpu_params, memory_mb, "0", NULL, "memory"),
    BRIM_PARAM(BYTES, cpu_params, cache_bytes, "64KiB", "[0,1073741824]", "cache"),
    BRIM_PARAM(SECONDS, cpu_params, wait_minutes, "5", "[0,inf)", "longest wait"),
    BRIM_PARAM(SECONDS, cpu_params, poll_seconds, "0.5", "(0,60]", "time between looks"),
    BRIM_PARAMS_END};

typedef struct first_params {
  int64_t weight;
  brim_shares shares;
} first_params;
static const brim_param first_table[] = {
    BRIM_PARAM(I64, first_params, weight, "auto", "auto|[1,64]", "how much it weighs"),
    BRIM_PARAM(SHARES, first_params, shares, "{}", NULL, "who may have how much"), BRIM_PARAMS_END};

typedef struct second_params {
  int64_t weight;
} second_params;
static const brim_param second_table[] = {BRIM_PARAM(I64, second_params, weight, "2", "[0,64]", "how much it weighs"),
                                          BRIM_PARAMS_END};

/* ---- functions that are never called, but that the loader requires ---- */

static brim_status build(const void *self, brim_graph *g)
{
  (void)self, (void)g;
  return BRIM_ENOTSUP;
}
static const brim_model_ops model_ops = {.size = sizeof(brim_model_ops), .build = build};

static brim_status open_split(void *self, const char *split)
{
  (void)self, (void)split;
  return BRIM_ENOTSUP;
}
static brim_status describe_split(const void *self, const char *split, brim_dataset_info *out)
{
  (void)self, (void)split, (void)out;
  return BRIM_ENOTSUP;
}
static brim_status read_sample(const void *self, const char *split, int64_t index, void *values, void *label)
{
  (void)self, (void)split, (void)index, (void)values, (void)label;
  return BRIM_ENOTSUP;
}
static const brim_dataset_ops dataset_ops = {
    .size = sizeof(brim_dataset_ops), .open = open_split, .describe = describe_split, .read = read_sample};

static int device_count(void *self)
{
  (void)self;
  return 0;
}
static brim_status describe_device(void *self, int device, brim_device_info *out)
{
  (void)self, (void)device, (void)out;
  return BRIM_ENOTSUP;
}
static brim_status place(void *self, int device, uint64_t bytes, void **base)
{
  (void)self, (void)device, (void)bytes, (void)base;
  return BRIM_ENOTSUP;
}
static void unplace(void *self, void *base, uint64_t bytes)
{
  (void)self, (void)base, (void)bytes;
}
static brim_status move(void *self, void *to, const void *from, uint64_t bytes)
{
  (void)self, (void)to, (void)from, (void)bytes;
  return BRIM_ENOTSUP;
}
static brim_status zero(void *self, void *to, uint64_t bytes)
{
  (void)self, (void)to, (void)bytes;
  return BRIM_ENOTSUP;
}
static brim_status synchronize(void *self)
{
  (void)self;
  return BRIM_ENOTSUP;
}
static brim_status run(void *self, const brim_launch *launch)
{
  (void)self, (void)launch;
  return BRIM_ENOTSUP;
}
BRIM_KERNEL(relu) = {.op = "relu", .run = run};
static const brim_backend_ops backend_ops = {.size = sizeof(brim_backend_ops),
                                             .real = BRIM_DTYPE_F32,
                                             .kernels = BRIM_KERNELS,
                                             .kernels_end = BRIM_KERNELS_END,
                                             .alignment = 64,
                                             .device_count = device_count,
                                             .describe = describe_device,
                                             .place = place,
                                             .unplace = unplace,
                                             .upload = move,
                                             .download = move,
                                             .zero = zero,
                                             .synchronize = synchronize};

static brim_status choose_plan(void *self, const brim_plan_query *query, brim_plan_choice *out)
{
  (void)self, (void)query, (void)out;
  return BRIM_ENOTSUP;
}
static const brim_policy_ops policy_ops = {.size = sizeof(brim_policy_ops), .choose_plan = choose_plan};

#define PLUGIN(name, k, o, T, t)                                                                                       \
  static const brim_plugin name = {.size = sizeof(brim_plugin),                                                        \
                                   .kind = k,                                                                          \
                                   .id = #name,                                                                        \
                                   .help = "a plugin called " #name,                                                   \
                                   .params_size = sizeof(T),                                                           \
                                   .params = t,                                                                        \
                                   .ops = &o}
PLUGIN(cnn, BRIM_MODEL, model_ops, cnn_params, cnn_table);
PLUGIN(mlp, BRIM_MODEL, model_ops, mlp_params, mlp_table);
PLUGIN(vit, BRIM_MODEL, model_ops, vit_params, vit_table);
PLUGIN(files, BRIM_DATASET, dataset_ops, files_params, files_table);
PLUGIN(made, BRIM_DATASET, dataset_ops, made_params, made_table);
PLUGIN(cpu, BRIM_BACKEND, backend_ops, cpu_params, cpu_table);
PLUGIN(first, BRIM_POLICY, policy_ops, first_params, first_table);
PLUGIN(second, BRIM_POLICY, policy_ops, second_params, second_table);
/* The list's default. */
static const brim_plugin auto_plan = {.size = sizeof(brim_plugin),
                                      .kind = BRIM_POLICY,
                                      .id = "auto_plan",
                                      .help = "a plugin called auto_plan",
                                      .ops = &policy_ops};

static const brim_plugin *const plugins[] = {&cnn, &mlp, &vit, &files, &made, &cpu, &first, &second, &auto_plan, NULL};
BRIM_MODULE("config-test", "1.0", plugins)
