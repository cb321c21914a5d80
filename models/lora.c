/* lora: trains low-rank updates of a frozen model's linear layers, and a new head (Hu et al., LoRA: Low-Rank Adaptation
 * of Large Language Models, ICLR 2022, arXiv:2106.09685). The group `backbone` selects the model: model=lora
 * backbone=vit backbone.depth=12. A language model keeps its head, because its vocabulary stays the same; then only the
 * low-rank updates are trained. */
#include "brim/dataset.h"
#include "brim/model.h"
#include "brim/plugin.h"

typedef struct lora {
  int64_t lora_r;
  double lora_alpha, lora_dropout;
  brim_names lora_targets;
} lora;

static const brim_param params[] = {
    BRIM_PARAM(I64, lora, lora_r, "8", "[1,65536]", "rank of the updates"),
    BRIM_PARAM(F64, lora, lora_alpha, "16", "(0,inf)", "updates are scaled by alpha / r"),
    BRIM_PARAM(F64, lora, lora_dropout, "0.1", "[0,1)", "dropout probability of the inputs of updates"),
    BRIM_PARAM(
        NAMES, lora, lora_targets, "[q_proj, attn.qkv:q, c_attn]", NULL,
        "linear layers to update, by the end of their names; ':q', ':k', ':v': only that third of a layer's outputs"),
    BRIM_PARAMS_END,
};

static brim_status build(const void *self, brim_graph *g)
{
  const lora *m = self;
  brim_lora(g, &(brim_lora_options){.size = sizeof(brim_lora_options),
                                    .r = m->lora_r,
                                    .alpha = m->lora_alpha,
                                    .dropout = m->lora_dropout,
                                    .targets = m->lora_targets});
  if (brim_task_of(g) == BRIM_TASK_TOKENS)
    brim_output(g, brim_backbone_output(g));
  else
    brim_output(g, brim_linear(g, "head", brim_backbone(g), brim_classes(g)));
  return BRIM_OK;
}

static const brim_model_ops ops = {.size = sizeof ops, .build = build, .wraps = BRIM_WRAPS_BACKBONE};
static const brim_plugin plugin = {
    .size = sizeof plugin,
    .kind = BRIM_MODEL,
    .id = "lora",
    .help = "LoRA: trainable low-rank updates of a frozen backbone's linear layers, and a new head (except for tokens)",
    .params_size = sizeof(lora),
    .params = params,
    .ops = &ops,
};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-lora", "0.1", plugins)
