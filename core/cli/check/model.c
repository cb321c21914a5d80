/* Checks of models: builds them for several kinds of samples and plans them on the reference backend, without placing
 * anything. See check.h. */
#include <stdio.h>
#include <string.h>

#include "cli/check/check.h"
#include "config/compose.h"
#include "drive/drive.h"

/* The data on which to train; `backbone`: for a model that wraps another. */
static const struct {
  const char *name, *task, *shape, *loss, *backbone;
} samples[] = {
    {"images [1,28,28]", "dataset.task=class", "dataset.shape=[1,28,28]", "loss=cross_entropy", "backbone=cnn"},
    {"images [1,48,48]", "dataset.task=class", "dataset.shape=[1,48,48]", "loss=cross_entropy", "backbone=cnn"},
    {"images [3,32,32]", "dataset.task=class", "dataset.shape=[3,32,32]", "loss=cross_entropy", "backbone=cnn"},
    {"images [3,224,224]", "dataset.task=class", "dataset.shape=[3,224,224]", "loss=cross_entropy", "backbone=cnn"},
    {"features [24]", "dataset.task=class", "dataset.shape=[24]", "loss=cross_entropy", "backbone=mlp"},
    {"sequences [16,8]", "dataset.task=class", "dataset.shape=[16,8]", "loss=cross_entropy", "backbone=mlp"},
    {"sequences [16,8] and real numbers", "dataset.task=values", "dataset.shape=[16,8]", "loss=mse", "backbone=mlp"},
    {"tokens [32]", "dataset.task=tokens", "dataset.shape=[1]", "loss=cross_entropy", "backbone=gpt2_tiny"},
};
#define SAMPLES (sizeof samples / sizeof samples[0])
static const int64_t batches[] = {1, 2, 16, 48};

/* The properties that identify a plan. */
typedef struct outline {
  uint64_t peak_bytes;
  int32_t nodes;
} outline;

static brim_status plan_once(const brim_config *config, outline *out)
{
  brim_drive *drive = NULL;
  brim_plan *plan = NULL;
  BRIM_TRY(brim_drive_open(config, &(brim_setup_options){0}, &drive));
  brim_status status = brim_planner_plan(&drive->planner, &drive->choice, false, &plan);
  if (status == BRIM_OK) status = brim_plan_check(plan);
  if (status == BRIM_OK) *out = (outline){plan->peak_bytes, (int32_t)plan->program[0].graph->node_count};
  brim_plan_free(plan);
  brim_drive_close(drive);
  return status;
}

/* Plans twice, as resumed runs do. *same: both plans are equal. */
static brim_status plan_twice(brim_check *c, size_t i, int64_t batch, outline *out, bool *same)
{
  char size[64];
  outline again = {0};
  brim_config *config = NULL;
  const char *word[] = {
      "dataset=synthetic", "backend=reference",  "policy=[]", samples[i].task,          samples[i].shape,
      samples[i].loss,     "augment.flip=false", size,        "training.num_workers=0", NULL};
  snprintf(size, sizeof size, "training.batch_size=%lld", (long long)batch);
  BRIM_TRY(brim_check_config(c, word, brim_is_wrapper(c->plugin) ? samples[i].backbone : NULL, &config));
  brim_status status = plan_once(config, out);
  if (status == BRIM_OK) status = plan_once(config, &again);
  *same = out->peak_bytes == again.peak_bytes && out->nodes == again.nodes;
  brim_config_free(config);
  return status;
}

/* The results for the kinds of samples so far. */
typedef struct tried {
  brim_text taken, refused;
  char reason[1024]; /* reason of the first refusal */
  bool differ;       /* other kinds were rejected for a different reason */
} tried;

/* Whether the model is at fault, independent of the kinds of samples that it accepts. */
static bool is_own_fault(brim_status status)
{
  return status == BRIM_EINTERNAL || status == BRIM_EPLUGIN || strstr(brim_error_text(), "named no output");
}

/* Tries one kind of samples; a model need not accept every kind. Statistics of groups may need more than one sample. */
static enum brim_finding build_for(brim_check *c, size_t i, tried *t)
{
  outline first = {0};
  char bytes[32];
  for (size_t b = 0; b < sizeof batches / sizeof batches[0]; b++) {
    outline now = {0};
    bool same = true;
    const brim_status status = plan_twice(c, i, batches[b], &now, &same);
    if (status != BRIM_OK && is_own_fault(status)) return brim_check_error(c, samples[i].name);
    if (status != BRIM_OK && b == 0) continue;
    if (status != BRIM_OK && first.nodes > 0)
      return brim_check_say(c, BRIM_FOUND_FAILED, "%s: micro-batches of %lld cannot be planned: %s", samples[i].name,
                            (long long)batches[b], brim_error_text());
    if (status != BRIM_OK) {
      const char *text = brim_error_text();
      if (t->refused.length == 0) snprintf(t->reason, sizeof t->reason, "%.*s", (int)sizeof t->reason - 1, text);
      t->differ = t->differ || strncmp(t->reason, text, strlen(t->reason)) != 0;
      brim_text_printf(&t->refused, "\n%s: %s", samples[i].name, text);
      return BRIM_FOUND_OK;
    }
    if (!same)
      return brim_check_say(c, BRIM_FOUND_FAILED,
                            "%s: the graph differs when it is built again: it may differ only in N", samples[i].name);
    first = now;
  }
  brim_text_printf(&t->taken, "%s%s (%d operations, %s)", t->taken.length ? ", " : "", samples[i].name, first.nodes,
                   brim_format_bytes(bytes, sizeof bytes, first.peak_bytes));
  return BRIM_FOUND_OK;
}

static enum brim_finding judge(brim_check *c, const tried *t)
{
  if (t->taken.length > 0) return brim_check_say(c, BRIM_FOUND_OK, "takes %s", brim_text_str(&t->taken));
  if (!t->differ) { /* the reason does not depend on the samples */
    brim_check_say(c, BRIM_FOUND_FAILED, "%s", t->reason);
    return brim_check_words(c, t->reason, BRIM_FOUND_FAILED);
  }
  return brim_check_say(c, BRIM_FOUND_FAILED,
                        "cannot be built for any of the samples that were tried; if it needs others, give them after "
                        "the file: dataset.shape=[3,64,64]%s",
                        brim_text_str(&t->refused));
}

static enum brim_finding check_build(brim_check *c)
{
  tried t = {.differ = false};
  enum brim_finding finding = BRIM_FOUND_OK;
  for (size_t i = 0; i < SAMPLES && finding == BRIM_FOUND_OK; i++) finding = build_for(c, i, &t);
  if (finding == BRIM_FOUND_OK) finding = judge(c, &t);
  brim_text_release(&t.taken);
  brim_text_release(&t.refused);
  return finding;
}

const brim_check_kind brim_model_checks[] = {{"build", check_build}, {NULL, NULL}};
