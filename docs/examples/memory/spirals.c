/* Learns to separate two spirals within a memory limit, and draws the result.
 *
 *     spirals [KiB]       default 640; processes that run at once share the limit
 *
 * The model is logistic regression on random features, cos(w x + b). A step uses all points. It computes the features
 * of one micro-batch at a time, and adds up the gradients in the order of the points. So memory decides the micro-batch
 * and nothing else: the loss and the picture are the same with any limit. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <brim/ledger.h>
#include <brim/memory.h>

#define POINTS 1024 /* the effective batch */
#define FEATURES 256
#define STEPS 60
#define ROWS 20
#define COLUMNS 24
#define CACHED 256 /* points whose features stay in memory if there is room, to save time */
#define PI 3.14159265358979323846

/* Memory that is counted in a ledger, which limits all processes of this program together. */
typedef struct block {
  float *data; /* NULL if nothing is allocated */
  int32_t entry;
} block;

typedef struct program {
  brim_ledger *memory;
  double x[POINTS][2], label[POINTS];
  double w[FEATURES][2], b[FEATURES]; /* of the features; fixed, not trained */
  double weight[FEATURES], first_loss, loss;
  block cache;
} program;

static brim_status take(program *p, size_t points, block *out)
{
  const uint64_t bytes = points * FEATURES * sizeof(float);
  BRIM_TRY(brim_ledger_take(p->memory, 0, bytes, &out->entry));
  out->data = malloc(bytes);
  if (out->data) return BRIM_OK;
  brim_ledger_give(p->memory, out->entry);
  return brim_fail(BRIM_ENOMEM_HOST, "malloc cannot allocate %llu bytes", (unsigned long long)bytes);
}

static void give(program *p, block *b)
{
  if (!b->data) return;
  free(b->data);
  brim_ledger_give(p->memory, b->entry);
  b->data = NULL;
}

/* ---- model and data ---- */

static double uniform(uint64_t *state)
{
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (double)(*state >> 11) / 9007199254740992.0;
}

static void make_points(program *p)
{
  uint64_t state = 1;
  for (int i = 0; i < POINTS; i++) {
    const double t = 0.25 + 0.75 * uniform(&state), angle = 3.5 * PI * t + (i % 2) * PI;
    p->label[i] = i % 2;
    p->x[i][0] = t * cos(angle);
    p->x[i][1] = t * sin(angle);
  }
  for (int j = 0; j < FEATURES; j++) {
    const double length = 6 * sqrt(-2 * log(1 - uniform(&state))), angle = 2 * PI * uniform(&state);
    p->w[j][0] = length * cos(angle);
    p->w[j][1] = length * sin(angle);
    p->b[j] = 2 * PI * uniform(&state);
  }
}

static void compute_features(const program *p, const double x[2], float *out)
{
  for (int j = 0; j < FEATURES; j++) out[j] = (float)cos(p->w[j][0] * x[0] + p->w[j][1] * x[1] + p->b[j]);
}

static double probability(const program *p, const float *feature)
{
  double sum = 0;
  for (int j = 0; j < FEATURES; j++) sum += p->weight[j] * (double)feature[j];
  return 1 / (1 + exp(-sum));
}

/* ---- training ---- */

static void fill(const program *p, int64_t first, int64_t count, float *feature)
{
  for (int64_t i = 0; i < count; i++) {
    float *to = feature + i * FEATURES;
    const float *kept = p->cache.data && first + i < CACHED ? p->cache.data + (first + i) * FEATURES : NULL;
    if (!kept) compute_features(p, p->x[first + i], to);
    for (int j = 0; kept && j < FEATURES; j++) to[j] = kept[j];
  }
}

/* Adds a micro-batch's part to the gradient and the loss. */
static void accumulate(program *p, int64_t first, int64_t count, float *feature, double *gradient)
{
  fill(p, first, count, feature);
  for (int64_t i = 0; i < count; i++) {
    const float *f = feature + i * FEATURES;
    const double label = p->label[first + i], guess = probability(p, f);
    p->loss -= log(label > 0 ? guess : 1 - guess) / POINTS;
    for (int j = 0; j < FEATURES; j++) gradient[j] += (guess - label) * (double)f[j] / POINTS;
  }
}

/* Called by brim_adapt_batch: trains from start to end, and allocates all its memory before the first step. */
static brim_status train(void *context, int64_t micro_batch, int64_t accumulation)
{
  program *p = context;
  block feature = {0};
  double velocity[FEATURES] = {0};
  BRIM_TRY(take(p, (size_t)micro_batch, &feature));
  for (int step = 0; step < STEPS; step++) {
    double gradient[FEATURES] = {0};
    p->loss = 0;
    for (int64_t k = 0; k < accumulation; k++) accumulate(p, k * micro_batch, micro_batch, feature.data, gradient);
    if (step == 0) p->first_loss = p->loss;
    for (int j = 0; j < FEATURES; j++) {
      velocity[j] = 0.9 * velocity[j] - 0.5 * gradient[j];
      p->weight[j] += velocity[j];
    }
  }
  give(p, &feature);
  return BRIM_OK;
}

/* ---- the picture ---- */

/* Called by brim_retry: needs the features of the whole picture at once. */
static brim_status draw(void *context)
{
  program *p = context;
  block feature = {0};
  BRIM_TRY(take(p, ROWS * COLUMNS, &feature));
  for (int row = 0; row < ROWS; row++) {
    char line[COLUMNS + 1] = {0};
    for (int column = 0; column < COLUMNS; column++) {
      float *f = feature.data + (row * COLUMNS + column) * FEATURES;
      compute_features(p, (double[]){2 * (column + 0.5) / COLUMNS - 1, 2 * (row + 0.5) / ROWS - 1}, f);
      line[column] = probability(p, f) > 0.5 ? '#' : '.';
    }
    printf("%s\n", line);
  }
  give(p, &feature);
  return BRIM_OK;
}

/* ---- memory ---- */

/* Accepts a smaller micro-batch if brim offers one; otherwise frees the cache; without a cache it gives up. */
static enum brim_oom_answer on_oom(void *context, const brim_failed_attempt *oom)
{
  program *p = context;
  printf("attempt %lld: %s\n", (long long)oom->attempt, oom->text);
  if (oom->next_micro_batch > 0) {
    printf("continuing with micro-batches of %lld, %lld per step\n", (long long)oom->next_micro_batch,
           (long long)oom->next_accumulation);
    return BRIM_OOM_GO_ON;
  }
  if (!p->cache.data) return BRIM_OOM_GIVE_UP;
  printf("dropping the cache\n");
  give(p, &p->cache);
  return BRIM_OOM_GO_ON;
}

/* This program computes on the host. A program that can use a GPU leaves .backend out and uses the chosen device. */
static brim_status look_around(uint64_t bytes)
{
  brim_device_choice best;
  BRIM_TRY(brim_device_best(&(brim_device_search){.backend = "cpu"}, &best));
  printf("%s is %s: %s\n", best.name, best.info.name, best.reason);
  if (best.info.free_bytes >= bytes) return BRIM_OK;
  return brim_fail(BRIM_ENOMEM_HOST, "%s has %llu bytes free", best.name, (unsigned long long)best.info.free_bytes);
}

static brim_status work(program *p, uint64_t bytes)
{
  const brim_oom_handler handler = {on_oom, p};
  brim_adapted used;
  BRIM_TRY(look_around(bytes));
  BRIM_TRY(brim_ledger_open("spirals", 1, bytes, &p->memory));
  make_points(p);
  if (take(p, CACHED, &p->cache) == BRIM_OK)
    for (int i = 0; i < CACHED; i++) compute_features(p, p->x[i], p->cache.data + (size_t)i * FEATURES);

  const brim_adapt_options batch = {.effective_batch = POINTS, .min_micro_batch = 16, .on_oom = &handler};
  BRIM_TRY(brim_adapt_batch(&batch, train, p, &used));
  printf("trained with %lld x %lld: loss %.17g, at first %.3f\n", (long long)used.micro_batch,
         (long long)used.accumulation, p->loss, p->first_loss);
  return brim_retry(&(brim_retry_options){.max_retries = 3, .on_oom = &handler}, draw, p);
}

int main(int argc, char **argv)
{
  static program p;
  const unsigned long long kib = argc > 1 ? strtoull(argv[1], NULL, 10) : 640;
  const brim_status status = work(&p, kib * 1024);
  if (status != BRIM_OK) fprintf(stderr, "error: %s\n", brim_error_text());
  give(&p, &p.cache);
  brim_ledger_close(p.memory);
  return brim_status_exit(status);
}
