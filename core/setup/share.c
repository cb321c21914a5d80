/* A rank's part of a step and of an evaluation, and its division into micro-batches. See setup.h. */
#include <stdio.h>

#include "setup/setup.h"

static int64_t unit_of(const brim_setup *s)
{
  return s->norm_group > 0 ? s->norm_group : 1;
}

/* In a federation each rank trains whole clients. */
static int64_t share_of_rank(const brim_setup *s, int32_t rank, int64_t samples)
{
  int64_t first, count;
  if (brim_setup_is_federated(s)) return samples;
  const brim_portion portion = brim_distribution_portion(&s->distribution, rank, s->world.ranks);
  brim_portion_of(&portion, samples, unit_of(s), &first, &count);
  return count;
}

int64_t brim_setup_share(const brim_setup *s)
{
  return share_of_rank(s, s->world.rank, s->settings->training.effective_batch_size);
}

int64_t brim_setup_limit_batch(const brim_setup *s, int64_t batch)
{
  const int64_t share = brim_setup_share(s), most = share > 0 ? share : unit_of(s);
  return s->world.ranks > 1 && batch > most ? most : batch;
}

brim_order brim_setup_order(const brim_setup *s, int64_t batch)
{
  const brim_training_settings *t = &s->settings->training;
  const int64_t cut = brim_setup_limit_batch(s, batch), set = t->effective_batch_size;
  const int64_t effective = s->world.ranks > 1 ? set : (set + cut - 1) / cut * cut;
  const brim_portion portion = brim_distribution_portion(&s->distribution, s->world.rank, s->world.ranks);
  if (brim_setup_is_federated(s)) /* a step is a round, and so is an epoch */
    return brim_order_make(1, 1, 1, 1, brim_portion_even(0, 1), 0, s->settings->rounds);
  return brim_order_make(s->data.count[BRIM_PART_TRAIN], effective, cut, unit_of(s), portion, t->epochs, t->steps);
}

int64_t brim_setup_micros(const brim_setup *s, int64_t batch)
{
  return brim_setup_order(s, batch).micros;
}

int64_t brim_setup_all_samples(const brim_setup *s)
{
  const int64_t effective = s->settings->training.effective_batch_size, count = s->data.count[BRIM_PART_TRAIN];
  return count < effective ? count : effective;
}

int64_t brim_setup_step_samples(const brim_setup *s)
{
  return share_of_rank(s, s->world.rank, brim_setup_all_samples(s));
}

int64_t brim_setup_step_micros(const brim_setup *s, int64_t batch)
{
  const brim_order o = brim_setup_order(s, batch);
  return o.steps_per_epoch > 1 ? o.micros : o.last_micros;
}

bool brim_setup_rounds(const brim_setup *s, int64_t batch)
{
  const brim_order o = brim_setup_order(s, batch);
  if (brim_setup_is_federated(s) && batch >= s->settings->training.effective_batch_size) return false;
  const bool is_all =
      s->world.ranks > 1 && o.micros <= 1 && o.last_micros <= 1; /* grains are counted from the start of the step */
  return s->grain > 1 && batch % s->grain != 0 && !is_all;
}

const char *brim_setup_format_cut(const brim_setup *s, int64_t batch, char *out, size_t room)
{
  const brim_order o = brim_setup_order(s, batch);
  const int64_t of_client = s->settings->training.effective_batch_size;
  if (brim_setup_is_federated(s)) {
    snprintf(out, room, "%lld x %lld", (long long)batch, (long long)((of_client + batch - 1) / batch));
    return out;
  }
  const bool is_all = o.steps_per_epoch == 1; /* every step trains on all samples */
  const int64_t share = s->world.ranks == 1 && !is_all ? o.effective : brim_setup_step_samples(s),
                micros = is_all ? o.last_micros : o.micros, last = share - (micros - 1) * o.batch;
  if (micros == 0)
    snprintf(out, room, "none");
  else if (last == o.batch)
    snprintf(out, room, "%lld x %lld", (long long)o.batch, (long long)micros);
  else if (micros == 1)
    snprintf(out, room, "%lld x 1", (long long)last);
  else
    snprintf(out, room, "%lld x %lld + %lld", (long long)o.batch, (long long)micros - 1, (long long)last);
  return out;
}

bool brim_setup_allows(const brim_setup *s, int64_t batch)
{
  const bool is_whole = batch >= brim_setup_share(s);
  if (brim_setup_updates_in_backward(s) && !is_whole) return false;
  return s->norm_group == 0 || is_whole || batch % s->norm_group == 0;
}

/* If clients are isolated, only the server evaluates. */
static int64_t part_from(const brim_setup *s, enum brim_part part, int32_t rank)
{
  if (brim_setup_is_isolated(s)) return rank > 0 ? s->data.count[part] : 0;
  const int64_t unit = brim_setup_eval_unit(s), count = s->data.count[part], units = (count + unit - 1) / unit,
                from = units * rank / s->world.ranks * unit;
  return from < count ? from : count;
}

void brim_setup_part(const brim_setup *s, enum brim_part part, int64_t *first, int64_t *count)
{
  *first = part_from(s, part, s->world.rank);
  *count = part_from(s, part, s->world.rank + 1) - *first;
}

brim_load brim_setup_load(const brim_setup *s, int32_t rank)
{
  const int64_t effective = s->settings->training.effective_batch_size, samples = s->data.count[BRIM_PART_TRAIN];
  const int64_t rest = samples % effective;
  const enum brim_part validation = BRIM_PART_VALIDATION, test = BRIM_PART_TEST;
  return (brim_load){.share = share_of_rank(s, rank, effective),
                     .last_share = share_of_rank(s, rank, rest > 0 ? rest : effective),
                     .validation = part_from(s, validation, rank + 1) - part_from(s, validation, rank),
                     .test = part_from(s, test, rank + 1) - part_from(s, test, rank)};
}

void brim_setup_warn_of_idle_ranks(const brim_setup *s)
{
  const int64_t step = brim_setup_all_samples(s), clients = s->settings->clients_per_round;
  int32_t idle = 0, first = -1;
  char groups[160] = "";
  if (s->world.rank > 0 || brim_setup_is_isolated(s)) return;
  if (brim_setup_is_federated(s) && clients < s->world.ranks)
    brim_log(BRIM_LOG_WARN, "%lld of %d ranks have nothing to do: a round has %lld client%s",
             (long long)(s->world.ranks - clients), (int)s->world.ranks, (long long)clients, brim_plural(clients));
  for (int32_t r = 0; r < s->world.ranks; r++) {
    if (share_of_rank(s, r, step) > 0) continue;
    if (idle++ == 0) first = r;
  }
  if (idle == 0) return;
  if (s->norm_group > 0) {
    const long long count = (long long)brim_setup_norm_groups(s, step);
    snprintf(groups, sizeof groups,
             " in %lld norm group%s, which ranks do not share\n"
             "set a smaller training.norm_group or a larger training.effective_batch_size",
             count, brim_plural(count));
  }
  if (idle == 1)
    brim_log(BRIM_LOG_WARN, "rank %d of %d has nothing to do: a step has %lld sample%s%s", (int)first,
             (int)s->world.ranks, (long long)step, brim_plural(step), groups);
  else
    brim_log(BRIM_LOG_WARN, "%d of %d ranks have nothing to do: a step has %lld sample%s%s", (int)idle,
             (int)s->world.ranks, (long long)step, brim_plural(step), groups);
}

int64_t brim_setup_norm_groups(const brim_setup *s, int64_t samples)
{
  return s->norm_group == 0 || samples < s->norm_group ? 1 : samples / s->norm_group;
}

/* Four clients' batches at a time, because clients' batches are small, and the forward pass of four costs about as much
 * as training one. */
int64_t brim_setup_eval_batch(const brim_setup *s, int64_t batch)
{
  const int64_t set = s->settings->training.eval_batch_size;
  return set ? set : brim_setup_is_federated(s) ? 4 * batch : batch;
}

int64_t brim_setup_eval_unit(const brim_setup *s)
{
  return brim_setup_is_federated(s) ? brim_setup_eval_batch(s, s->settings->training.effective_batch_size) : 1;
}

/* ---- weights of samples ---- */

bool brim_setup_keeps_answers(const brim_setup *s)
{
  const int32_t task = s->data.train.task;
  return s->settings->observe.samples > 0 && (task == BRIM_TASK_VALUES || task == BRIM_TASK_CLASS) &&
         s->answers < BRIM_MANY_CLASSES;
}

bool brim_setup_keeps_token_losses(const brim_setup *s)
{
  return s->settings->observe.samples > 0 && s->data.train.task == BRIM_TASK_TOKENS;
}

int64_t brim_setup_losses_each(const brim_setup *s)
{
  return s->data.train.task == BRIM_TASK_TOKENS ? s->data.elements : 1;
}

void brim_setup_weigh(const brim_setup *s, const brim_batch *batch, double *weight, double *tokens)
{
  const double *of_class = s->label_weights.count ? s->label_weights.item : NULL;
  const bool is_tokens = s->data.train.task == BRIM_TASK_TOKENS;
  const int32_t *label = batch->labels;
  const int64_t count = batch->span.count * brim_setup_losses_each(s);
  int64_t counted = 0;
  if (!of_class && !is_tokens) {
    *weight += (double)count;
    return;
  }
  for (int64_t i = 0; i < count; i++) {
    if (is_tokens && label[i] == BRIM_NO_TOKEN) continue;
    counted++;
    if (of_class) *weight += of_class[label[i]];
  }
  if (!of_class) *weight += (double)counted;
  if (is_tokens) *tokens += (double)counted;
}

/* ---- loaders ---- */

/* The loader for micro-batches decoded ahead: one for each thread, one in use, and a few more if there are few
 * threads. */
static brim_loader_options loader_of(const brim_setup *s, enum brim_part part, int64_t batch_max)
{
  const int32_t threads = (int32_t)s->settings->training.num_workers;
  return (brim_loader_options){.data = &s->data,
                               .part = part,
                               .batch_max = batch_max,
                               .real = s->backend_ops->real,
                               .threads = threads,
                               .slots = threads < 4 ? 4 : threads + 1};
}

/* A rank without samples has a loader that ends at once. */
static int64_t at_least_one(int64_t samples)
{
  return samples > 0 ? samples : 1;
}

brim_loader_options brim_setup_train_loader(const brim_setup *s, int64_t batch)
{
  const brim_order order = brim_setup_order(s, batch);
  return loader_of(s, BRIM_PART_TRAIN, at_least_one(brim_order_batch_max(&order)));
}

brim_loader_options brim_setup_part_loader(const brim_setup *s, enum brim_part part, int64_t batch)
{
  int64_t first, count;
  const int64_t most = brim_setup_eval_batch(s, batch);
  brim_setup_part(s, part, &first, &count);
  return loader_of(s, part, most < count ? most : at_least_one(count));
}
