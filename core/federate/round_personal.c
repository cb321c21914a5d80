/* Evaluates clients' models: personal or fine-tuned ones. See round.h. */
#include "federate/round_parts.h"

enum { BLOCK = 1024 }; /* clients between two checks of `stop` */

/* Evaluates clients first..first+count-1. */
static brim_status score_block(brim_federation *f, brim_lane_fn score_of, int64_t first, int64_t count,
                               brim_tally *accuracy)
{
  int64_t client[BLOCK];
  double score[BLOCK];
  for (int64_t i = 0; i < count; i++) client[i] = first + i;
  BRIM_TRY(brim_federation_ask(f, score_of, client, count, score));
  for (int64_t i = 0; i < count; i++) BRIM_TRY(brim_tally_add(accuracy, score[i]));
  return BRIM_OK;
}

brim_status brim_federation_score(brim_federation *f, bool finetunes, const volatile int *stop, brim_spread *out)
{
  const brim_lane_fn score_of = finetunes ? brim_lane_finetune : brim_lane_score;
  const int64_t clients = f->setup->partition.clients;
  brim_tally accuracy = {0};
  brim_status status = BRIM_OK;
  for (int64_t first = 0; first < clients && status == BRIM_OK; first += BLOCK) {
    if (stop && *stop)
      status = brim_fail(BRIM_EINTERRUPTED, "interrupted during evaluation");
    else
      status = score_block(f, score_of, first, clients - first < BLOCK ? clients - first : BLOCK, &accuracy);
  }
  if (status == BRIM_OK) *out = brim_tally_spread(&accuracy);
  brim_tally_release(&accuracy);
  return status;
}
