#include "session/cuts.h"

#include <stdlib.h>

static int descending(const void *a, const void *b)
{
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x < y) - (x > y);
}

static void add_micro_batch(brim_session *s, int64_t batch, bool multiples)
{
  const int64_t share = brim_session_share(s), grain = s->grain;
  const bool own = batch == s->settings->training.batch_size; /* the user's, whatever it is a multiple of */
  if (batch > BRIM_MICRO_BATCH_MAX || s->micro_batch_count == BRIM_MICRO_BATCHES_MAX) return;
  if (batch < s->demands.min_batch_size && batch < share && !own) return;
  if (!brim_session_allows(s, batch)) return;
  if (multiples && batch % grain != 0 && batch >= grain && batch != share && !own) return;
  s->micro_batch[s->micro_batch_count++] = batch;
}

/* Not larger than the rank's share of a step, which may be one whatever it divides. */
size_t brim_session_list_micro_batches(brim_session *s)
{
  const int64_t effective = s->settings->training.effective_batch_size, share = brim_session_share(s);
  const bool multiples = s->grain > 1 && effective % s->grain == 0;
  if (s->micro_batch_count > 0) return s->micro_batch_count;
  add_micro_batch(s, share > 0 ? share : s->choice.micro_batch, multiples);
  for (int64_t k = 1; k * k <= effective; k++) {
    if (effective % k != 0) continue;
    if (k < share) add_micro_batch(s, k, multiples);
    if (k != effective / k && effective / k < share) add_micro_batch(s, effective / k, multiples);
  }
  qsort(s->micro_batch, s->micro_batch_count, sizeof *s->micro_batch, descending);
  return s->micro_batch_count;
}

brim_status brim_session_peak(brim_session *s, size_t index, uint64_t *bytes)
{
  const brim_choice v = brim_session_choice(s, s->micro_batch[index]);
  return brim_session_peak_of(s, &v, bytes);
}
