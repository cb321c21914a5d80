#include "cli/check/federations.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/guard.h"
#include "federate/selection_call.h"

#define GUARD 64 /* bytes on each side of a part */
#define GUARD_BYTE 0xA5
#define DEADLINE 60.0

enum edge { ONE_CLIENT, NOTHING_KNOWN, ALL_WANTED, GAPS, NO_CLASSES, ALL_EQUAL, EXTREMES, ONE_THERE };

/* The uses of random numbers. */
enum use {
  COUNT,
  CLASSES,
  MOST,
  SAMPLES,
  LABEL,
  SECONDS,
  JOULES,
  THERE,
  ARRIVES,
  LOSS,
  NORM,
  SKETCH,
  PRESENT_LOSS,
  ACCURACY
};

static const char *const part_names[BRIM_PARTS] = {"clients.samples",
                                                   "clients.loss",
                                                   "clients.square_loss",
                                                   "clients.norm",
                                                   "clients.accuracy",
                                                   "clients.seconds",
                                                   "clients.joules",
                                                   "clients.last_round",
                                                   "clients.times",
                                                   "clients.labels",
                                                   "clients.sketch",
                                                   "candidate",
                                                   "arrived",
                                                   "own",
                                                   "of_client",
                                                   "out->client"};

/* Returns a number uniform in [0, 1), the same on all machines. */
static double draw(const brim_made_federation *f, enum use use, int64_t client, int64_t round)
{
  if (f->number == ALL_EQUAL && use >= SAMPLES && use != THERE && use != ARRIVES) return 0.5;
  return brim_uniform(brim_random4(f->number, BRIM_STREAM_DATA, (uint32_t)use, (uint64_t)client, (uint32_t)round).v[0]);
}

/* Draws a number from 0 to about `usual`; in an extreme federation 0 or `most`. */
static float draw_column(const brim_made_federation *f, enum use use, int64_t client, int64_t round, double usual,
                         double most)
{
  const double u = draw(f, use, client, round);
  if (f->number == EXTREMES) return (float)(u < 0.5 ? 0 : most);
  return (float)(usual * u);
}

/* ---- parts ---- */

static brim_status make_part(brim_made_federation *f, enum brim_made_part_id id, int64_t count, size_t size)
{
  brim_made_part *p = &f->part[id];
  p->bytes = (size_t)count * size;
  p->memory = brim_try_malloc(p->bytes + 2 * GUARD);
  p->before = brim_try_malloc(p->bytes + 2 * GUARD);
  if (!p->memory || !p->before)
    return brim_fail(BRIM_ENOMEM_HOST, "no host memory for a synthetic federation of %lld clients",
                     (long long)f->clients.count);
  memset(p->memory, GUARD_BYTE, p->bytes + 2 * GUARD);
  memset(p->memory + GUARD, 0, p->bytes);
  memcpy(p->before, p->memory, p->bytes + 2 * GUARD);
  return BRIM_OK;
}

static void *part(const brim_made_federation *f, enum brim_made_part_id id)
{
  return f->part[id].memory ? f->part[id].memory + GUARD : NULL;
}

static void note_parts(brim_made_federation *f)
{
  for (int i = 0; i < BRIM_PARTS; i++) {
    brim_made_part *p = &f->part[i];
    if (p->memory) memcpy(p->before + GUARD, p->memory + GUARD, p->bytes);
  }
}

static brim_status fail_part(const char *id, const char *function, const char *how, int i)
{
  return brim_fail(BRIM_EPLUGIN, "selector '%s' writes %s %s in %s, which selectors must not write", id, how,
                   part_names[i], function);
}

brim_status brim_made_federation_check(const brim_made_federation *f, const char *id, const char *function)
{
  for (int i = 0; i < BRIM_PARTS; i++) {
    const brim_made_part *p = &f->part[i];
    if (!p->memory) continue;
    if (memcmp(p->memory, p->before, GUARD) != 0) return fail_part(id, function, "before", i);
    if (memcmp(p->memory + GUARD + p->bytes, p->before + GUARD + p->bytes, GUARD) != 0)
      return fail_part(id, function, "past the end of", i);
    if (i < BRIM_PART_OWN && memcmp(p->memory, p->before, p->bytes + GUARD) != 0)
      return fail_part(id, function, "to", i);
  }
  return BRIM_OK;
}

void brim_made_federation_copy(brim_made_federation *to, const brim_made_federation *from)
{
  for (int i = 0; i < BRIM_PARTS; i++)
    if (from->part[i].memory) memcpy(to->part[i].memory, from->part[i].memory, from->part[i].bytes + 2 * GUARD);
}

/* ---- making ---- */

static brim_status make_parts(brim_made_federation *f)
{
  const int64_t count = f->clients.count, classes = f->needs & BRIM_NEED_LABELS ? f->clients.classes : 0;
  static const struct {
    enum brim_made_part_id id;
    size_t size;
  } parts[] = {{BRIM_PART_SAMPLES, 8}, {BRIM_PART_LOSS, 4},      {BRIM_PART_SQUARE_LOSS, 4}, {BRIM_PART_NORM, 4},
               {BRIM_PART_SECONDS, 4}, {BRIM_PART_JOULES, 4},    {BRIM_PART_LAST_ROUND, 4},  {BRIM_PART_TIMES, 4},
               {BRIM_PART_ARRIVED, 1}, {BRIM_PART_CANDIDATE, 8}, {BRIM_PART_ACCURACY, 4}};
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) BRIM_TRY(make_part(f, parts[i].id, count, parts[i].size));
  if (classes > 0) BRIM_TRY(make_part(f, BRIM_PART_LABELS, count * classes, sizeof(uint32_t)));
  if (f->needs & BRIM_NEED_SKETCH) BRIM_TRY(make_part(f, BRIM_PART_SKETCH, count * BRIM_SKETCH, sizeof(float)));
  BRIM_TRY(make_part(f, BRIM_PART_OUT, f->most, sizeof(int64_t)));
  f->is_chosen = brim_try_calloc((size_t)count / 8 + 1, 1);
  if (!f->is_chosen)
    return brim_fail(BRIM_ENOMEM_HOST, "no host memory for a bit for each of %lld clients", (long long)count);
  f->clients.samples = part(f, BRIM_PART_SAMPLES);
  f->clients.loss = part(f, BRIM_PART_LOSS);
  f->clients.square_loss = part(f, BRIM_PART_SQUARE_LOSS);
  f->clients.norm = part(f, BRIM_PART_NORM);
  f->clients.accuracy = part(f, BRIM_PART_ACCURACY);
  f->clients.seconds = part(f, BRIM_PART_SECONDS);
  f->clients.joules = part(f, BRIM_PART_JOULES);
  f->clients.last_round = part(f, BRIM_PART_LAST_ROUND);
  f->clients.times = part(f, BRIM_PART_TIMES);
  f->clients.labels = part(f, BRIM_PART_LABELS);
  f->clients.sketch = part(f, BRIM_PART_SKETCH);
  return BRIM_OK;
}

/* Makes the results of a client's last training. */
static void train(brim_made_federation *f, int64_t k, int64_t round)
{
  float *sketch = part(f, BRIM_PART_SKETCH);
  const float loss = draw_column(f, LOSS, k, round, 2.5, 1e15), norm = draw_column(f, NORM, k, round, 3, 1e15);
  ((float *)part(f, BRIM_PART_LOSS))[k] = loss;
  ((float *)part(f, BRIM_PART_SQUARE_LOSS))[k] = f->needs & BRIM_NEED_SQUARES ? loss * loss * 1.25F : NAN;
  ((float *)part(f, BRIM_PART_NORM))[k] = norm;
  ((float *)part(f, BRIM_PART_ACCURACY))[k] = f->clients.classes > 0 ? draw_column(f, ACCURACY, k, round, 1, 1) : NAN;
  for (int i = 0; sketch && i < BRIM_SKETCH; i++)
    sketch[k * BRIM_SKETCH + i] = norm * (float)(draw(f, SKETCH, k * BRIM_SKETCH + i, round) - 0.5) / 4;
}

static void set_client(brim_made_federation *f, int64_t k, bool is_old)
{
  const int64_t samples = f->number == EXTREMES && k % 2 ? 1 << 30 : 1 + (int64_t)(draw(f, SAMPLES, k, 0) * 300);
  const int64_t classes = f->clients.classes;
  uint32_t *labels = part(f, BRIM_PART_LABELS);
  ((int64_t *)part(f, BRIM_PART_SAMPLES))[k] = samples;
  if (labels) { /* all samples have one of two classes, which may be equal */
    labels[k * classes + (int64_t)(draw(f, LABEL, k, 0) * (double)classes)] += (uint32_t)(samples / 3);
    labels[k * classes + (int64_t)(draw(f, LABEL, k, 1) * (double)classes)] += (uint32_t)(samples - samples / 3);
  }
  ((float *)part(f, BRIM_PART_LOSS))[k] = ((float *)part(f, BRIM_PART_SQUARE_LOSS))[k] = NAN;
  ((float *)part(f, BRIM_PART_NORM))[k] = ((float *)part(f, BRIM_PART_ACCURACY))[k] = NAN;
  ((int32_t *)part(f, BRIM_PART_LAST_ROUND))[k] = is_old ? 0 : -1;
  ((int32_t *)part(f, BRIM_PART_TIMES))[k] = is_old;
  if (is_old) train(f, k, 0);
}

brim_status brim_made_federation_open(brim_made_federation *f, uint64_t number, uint32_t needs, int64_t clients,
                                      bool is_old)
{
  *f = (brim_made_federation){.number = number, .needs = needs};
  int64_t count = clients > 0 ? clients : 2 + (int64_t)(draw(f, COUNT, 0, 0) * 200);
  if (f->number == ONE_CLIENT) count = 1;
  f->clients.size = sizeof f->clients;
  f->clients.count = count;
  f->clients.classes = f->number == NO_CLASSES ? 0 : 2 + (int64_t)(draw(f, CLASSES, 0, 0) * 30);
  f->most = clients > 0 ? clients / 100 : 1 + (int64_t)(draw(f, MOST, 0, 0) * 20);
  if (f->number == ALL_WANTED || f->most > count) f->most = count;
  f->there = f->number == GAPS ? 0.3 : f->number < BRIM_FEDERATION_EDGES || f->number % 2 == 0 ? 1 : 0.7;
  f->has_world = f->number != NOTHING_KNOWN && f->number % 3 != 0;
  BRIM_TRY(make_parts(f));
  for (int64_t k = 0; k < f->clients.count; k++) set_client(f, k, is_old);
  return BRIM_OK;
}

brim_status brim_made_federation_state(brim_made_federation *f, int64_t own, int64_t of_client)
{
  if (own + of_client == 0) return BRIM_OK;
  BRIM_TRY(make_part(f, BRIM_PART_OWN, own, sizeof(double)));
  return make_part(f, BRIM_PART_OF_CLIENT, of_client * f->clients.count, sizeof(double));
}

void brim_made_federation_close(brim_made_federation *f)
{
  for (int i = 0; i < BRIM_PARTS; i++) {
    free(f->part[i].memory);
    free(f->part[i].before);
  }
  free(f->is_chosen);
}

/* ---- a round ---- */

/* A request to `losses`, for the thread that answers it. */
typedef struct question {
  brim_made_federation *f;
  const brim_selection_query *query;
  const int64_t *client;
  int64_t count;
  float *out;
} question;

static brim_status answer_losses(void *context)
{
  const question *q = context;
  const brim_status status = brim_selection_check_question(q->f->needs, q->query, q->client, q->count);
  q->f->asked_wrongly = status != BRIM_OK;
  for (int64_t i = 0; i < q->count && status == BRIM_OK; i++)
    q->out[i] = draw_column(q->f, PRESENT_LOSS, q->client[i], q->query->round, 2.5, 1e15);
  return status;
}

static brim_status ask_losses(const brim_selection_query *query, const int64_t *client, int64_t count, float *out)
{
  question q = {query->host, query, client, count, out};
  return brim_guard_here(answer_losses, &q);
}

static int64_t set_candidates(brim_made_federation *f, int64_t round)
{
  int64_t *candidate = part(f, BRIM_PART_CANDIDATE), count = 0;
  const int64_t always = (round * 7 + 3) % f->clients.count;
  for (int64_t k = 0; k < f->clients.count; k++) {
    const bool is_there = f->number != ONE_THERE && draw(f, THERE, k, round) < f->there;
    if (is_there || k == always) candidate[count++] = k;
  }
  return count;
}

void brim_made_federation_begin(brim_made_federation *f, int64_t round)
{
  const int64_t candidates = set_candidates(f, round);
  const brim_philox seed = brim_random4(f->number, BRIM_STREAM_SELECT, 0, (uint64_t)round, 0);
  for (int64_t k = 0; k < f->clients.count; k++) {
    ((float *)part(f, BRIM_PART_SECONDS))[k] = f->has_world ? draw_column(f, SECONDS, k, round, 90, 1e9) : NAN;
    ((float *)part(f, BRIM_PART_JOULES))[k] = f->has_world ? draw_column(f, JOULES, k, round, 500, 1e9) : NAN;
  }
  f->asked_wrongly = false;
  f->query = (brim_selection_query){.size = sizeof f->query,
                                    .round = round,
                                    .wanted = f->most < candidates ? f->most : candidates,
                                    .deadline_seconds = f->has_world && f->number % 4 == 1 ? DEADLINE : 0,
                                    .clients = &f->clients,
                                    .candidate = part(f, BRIM_PART_CANDIDATE),
                                    .candidates = candidates,
                                    .seed = (uint64_t)seed.v[0] << 32 | seed.v[1],
                                    .own = part(f, BRIM_PART_OWN),
                                    .of_client = part(f, BRIM_PART_OF_CLIENT),
                                    .losses = ask_losses,
                                    .host = f};
  note_parts(f);
  brim_made_federation_repeat(f);
}

void brim_made_federation_repeat(brim_made_federation *f)
{
  for (int i = BRIM_PART_OWN; i < BRIM_PARTS; i++) {
    brim_made_part *p = &f->part[i];
    if (p->memory) memcpy(p->memory + GUARD, p->before + GUARD, p->bytes);
  }
  memset(part(f, BRIM_PART_OUT), 0xFF, f->part[BRIM_PART_OUT].bytes);
  f->room = part(f, BRIM_PART_OUT);
  f->out = (brim_selection){f->room, 0};
}

void brim_made_federation_end(brim_made_federation *f)
{
  uint8_t *arrived = part(f, BRIM_PART_ARRIVED);
  const int64_t round = f->query.round;
  double seconds = f->has_world ? 0 : NAN;
  for (int64_t i = 0; i < f->out.count; i++) {
    const int64_t k = f->out.client[i];
    arrived[i] = f->number != NOTHING_KNOWN && draw(f, ARRIVES, k, round) < 0.8;
    ((int32_t *)part(f, BRIM_PART_LAST_ROUND))[k] = (int32_t)round;
    ((int32_t *)part(f, BRIM_PART_TIMES))[k]++;
    if (arrived[i]) train(f, k, round);
    if ((double)f->clients.seconds[k] > seconds) seconds = (double)f->clients.seconds[k];
  }
  f->result = (brim_selection_result){.size = sizeof f->result,
                                      .round = round,
                                      .count = f->out.count,
                                      .client = f->out.client,
                                      .arrived = arrived,
                                      .accuracy = round == 0 ? (double)NAN : (double)round / (double)(round + 10),
                                      .seconds = seconds,
                                      .clients = &f->clients,
                                      .own = f->query.own,
                                      .of_client = f->query.of_client};
  note_parts(f);
}

void brim_made_federation_print(const brim_made_federation *f, brim_text *out)
{
  brim_text_printf(out, "%lld client%s with %lld classes, %lld of them available and %lld wanted, in round %lld",
                   (long long)f->clients.count, brim_plural(f->clients.count), (long long)f->clients.classes,
                   (long long)f->query.candidates, (long long)f->query.wanted, (long long)f->query.round + 1);
}
