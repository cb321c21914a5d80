/* Checks of selectors, called with the limits of a run (federate/selection_call.h) to choose clients of synthetic
 * federations: their choices must be valid, the same when they are asked again and when a run is resumed, and fast
 * enough. See check.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/check/check.h"
#include "cli/check/federations.h"
#include "federate/selection_call.h"

#define FEDERATIONS 40
#define FEDERATIONS_FEW 10 /* per value of a parameter */
#define ROUNDS 21
#define RESUMED 10         /* the round in which a run resumes from its checkpoint */
#define OLD_ROUND 20       /* the round of federations that have run for a while */
#define SIZE_SECONDS 3.0   /* limit for the rounds of one size of federation */
#define DRAWN UINT64_C(11) /* a federation in which all columns are known, for measuring time */

/* ---- a selector in a synthetic federation ---- */

typedef struct asked {
  const char *id;
  brim_config *config;
  const brim_config_choice *choice;
  const brim_selector_ops *ops;
  brim_guard *guard;
  void *self;
  bool is_made;
  int64_t own, of_client; /* size of its state, in numbers: for the federation, and for each client */
  brim_made_federation f;
  double seconds; /* seconds of the longest selection */
} asked;

static brim_status configure(brim_check *c, const char *further, asked *a)
{
  static const char *const word[] = {"total_clients=100", "server_optimizer=sgd", NULL};
  BRIM_TRY(brim_check_config(c, word, further, &a->config));
  a->id = c->plugin->id;
  a->choice = brim_config_method(a->config);
  a->ops = c->plugin->ops;
  return BRIM_OK;
}

static brim_status call(asked *a, const char *function, bool decides, brim_guard_work work)
{
  const brim_plugin_call about = {a->choice, function, decides};
  return brim_selection_call(a->guard, &about, work, a);
}

static brim_status call_create(void *context)
{
  asked *a = context;
  return a->choice->plugin->create(a->choice->params, &a->self);
}
static brim_status call_destroy(void *context)
{
  asked *a = context;
  a->choice->plugin->destroy(a->self);
  return BRIM_OK;
}
static brim_status call_state(void *context)
{
  asked *a = context;
  a->ops->state(a->self, &a->f.clients, &a->own, &a->of_client);
  return BRIM_OK;
}
static brim_status call_select(void *context)
{
  asked *a = context;
  return a->ops->select(a->self, &a->f.query, &a->f.out);
}
static brim_status call_learn(void *context)
{
  asked *a = context;
  return a->ops->learn(a->self, &a->f.result);
}

static brim_status make_instance(asked *a)
{
  BRIM_TRY(brim_guard_open(&a->guard));
  a->self = a->choice->params;
  if (a->choice->plugin->create) BRIM_TRY(call(a, "create", false, call_create));
  a->is_made = true;
  return BRIM_OK;
}

/* Asks the selector for the size of its state in the current federation. */
static brim_status make_state(asked *a)
{
  a->own = a->of_client = 0;
  if (a->ops->state) BRIM_TRY(call(a, "state", false, call_state));
  BRIM_TRY(brim_selection_check_state(a->id, a->own, a->of_client));
  return brim_made_federation_state(&a->f, a->own, a->of_client);
}

static brim_status open_asked(asked *a, uint64_t number, int64_t clients, bool is_old)
{
  a->seconds = 0;
  BRIM_TRY(brim_made_federation_open(&a->f, number, a->ops->needs, clients, is_old));
  BRIM_TRY(make_instance(a));
  return make_state(a);
}

/* Releases the selector; false if its thread was abandoned and may still run, so that its arguments are not freed. */
static bool close_asked(asked *a)
{
  if (a->guard && brim_guard_is_lost(a->guard)) return false;
  if (a->is_made && a->choice->plugin->destroy) (void)call(a, "destroy", false, call_destroy);
  if (a->guard && brim_guard_is_lost(a->guard)) return false;
  brim_guard_close(a->guard);
  brim_made_federation_close(&a->f);
  a->guard = NULL;
  a->is_made = false;
  a->f = (brim_made_federation){0};
  return true;
}

static void free_asked(asked *a)
{
  if (!close_asked(a)) return;
  brim_config_free(a->config);
  free(a);
}

/* ---- rounds ---- */

/* Gets the selector's answer to the current query. */
static brim_status select_once(asked *a)
{
  const double from = brim_now();
  const brim_status status = call(a, "select", true, call_select);
  const double seconds = brim_now() - from;
  if (seconds > a->seconds) a->seconds = seconds;
  if (a->f.asked_wrongly && status != BRIM_EPLUGIN)
    return brim_fail(BRIM_EPLUGIN,
                     "selector '%s' asks for losses of clients that do not exist, or without BRIM_NEED_LOSSES in its "
                     "needs",
                     a->id);
  BRIM_TRY(status);
  BRIM_TRY(brim_selection_check(a->id, &a->f.query, &a->f.out, a->f.room, a->f.is_chosen));
  return brim_made_federation_check(&a->f, a->id, "select");
}

static brim_status learn(asked *a)
{
  brim_made_federation_end(&a->f);
  if (!a->ops->learn) return BRIM_OK;
  BRIM_TRY(call(a, "learn", true, call_learn));
  return brim_made_federation_check(&a->f, a->id, "learn");
}

static brim_status play_round(asked *a, int64_t round)
{
  brim_made_federation_begin(&a->f, round);
  BRIM_TRY(select_once(a));
  return learn(a);
}

/* Hashes the last answer, and the state after it. */
static uint64_t hash_answer(const asked *a)
{
  const brim_made_federation *f = &a->f;
  uint64_t hash = brim_hash(BRIM_HASH_START, f->out.client, (size_t)f->out.count * sizeof *f->out.client);
  if (!f->query.own) return hash;
  hash = brim_hash(hash, f->query.own, (size_t)a->own * sizeof(double));
  return brim_hash(hash, f->query.of_client, (size_t)(a->of_client * f->clients.count) * sizeof(double));
}

static brim_status play_plainly(asked *a)
{
  for (int64_t round = 0; round < ROUNDS; round++) BRIM_TRY(play_round(a, round));
  return BRIM_OK;
}

static brim_status play_with_questions_twice(asked *a)
{
  for (int64_t round = 0; round < ROUNDS; round++) {
    brim_made_federation_begin(&a->f, round);
    BRIM_TRY(select_once(a));
    const uint64_t first = hash_answer(a);
    brim_made_federation_repeat(&a->f);
    BRIM_TRY(select_once(a));
    if (hash_answer(a) != first)
      return brim_fail(BRIM_EPLUGIN, "selector '%s' gives another answer to the same query with the same state", a->id);
    BRIM_TRY(learn(a));
  }
  return BRIM_OK;
}

/* Runs the second half of the rounds again with another instance, from the state that brim would have saved after the
 * first half. */
static brim_status resume(asked *a, const brim_made_federation *kept, const uint64_t *answer)
{
  if (a->choice->plugin->destroy) BRIM_TRY(call(a, "destroy", false, call_destroy));
  a->is_made = false;
  a->self = a->choice->params;
  if (a->choice->plugin->create) BRIM_TRY(call(a, "create", false, call_create));
  a->is_made = true;
  brim_made_federation_copy(&a->f, kept);
  for (int64_t round = RESUMED; round < ROUNDS; round++) {
    BRIM_TRY(play_round(a, round));
    if (hash_answer(a) != answer[round])
      return brim_fail(BRIM_EPLUGIN,
                       "selector '%s' continues differently from a checkpoint of round %d: it keeps state outside of "
                       "`own` and `of_client`",
                       a->id, RESUMED);
  }
  return BRIM_OK;
}

static brim_status play_and_resume(asked *a)
{
  uint64_t answer[ROUNDS] = {0};
  brim_made_federation kept;
  brim_status status = brim_made_federation_open(&kept, a->f.number, a->f.needs, 0, false);
  if (status == BRIM_OK) status = brim_made_federation_state(&kept, a->own, a->of_client);
  for (int64_t round = 0; round < ROUNDS && status == BRIM_OK; round++) {
    if (round == RESUMED) brim_made_federation_copy(&kept, &a->f);
    status = play_round(a, round);
    if (status == BRIM_OK) answer[round] = hash_answer(a);
  }
  if (status == BRIM_OK) status = resume(a, &kept, answer);
  brim_made_federation_close(&kept);
  return status;
}

/* ---- in many federations ---- */

/* Counts results; a selector may reject a federation with a message of its own. */
typedef struct tally {
  int played, refused;
  char refusal[256]; /* the first one */
} tally;

static void count_refusal(tally *t)
{
  const char *text = brim_error_text();
  if (t->refused++ == 0) snprintf(t->refusal, sizeof t->refusal, "%.*s", (int)strcspn(text, "\n"), text);
}

static enum brim_finding fail_in_federation(brim_check *c, const asked *a)
{
  brim_text text = {0};
  brim_check_fail_short(c, "");
  brim_made_federation_print(&a->f, &text);
  if (a->f.query.size > 0) brim_text_printf(&c->text, "\nin a synthetic federation of %s", brim_text_str(&text));
  brim_text_release(&text);
  return BRIM_FOUND_FAILED;
}

/* Each federation gets its own instance. */
static enum brim_finding play_all(brim_check *c, const char *further, uint64_t federations,
                                  brim_status (*play)(asked *a), tally *t)
{
  enum brim_finding finding = BRIM_FOUND_OK;
  asked *a = brim_xcalloc(1, sizeof *a);
  if (configure(c, further, a) != BRIM_OK)
    finding = brim_check_say(c, BRIM_FOUND_WARNING, "not tried: there is no instance");
  for (uint64_t i = 0; i < federations && finding == BRIM_FOUND_OK; i++) {
    brim_status status = open_asked(a, i, 0, false);
    if (status == BRIM_OK) status = play(a);
    if (status == BRIM_OK)
      t->played++;
    else if (status == BRIM_EPLUGIN)
      finding = fail_in_federation(c, a);
    else
      count_refusal(t);
    if (!close_asked(a) && finding == BRIM_FOUND_OK)
      finding = brim_check_say(c, BRIM_FOUND_FAILED, "destroy crashes or does not return");
  }
  free_asked(a);
  return finding;
}

static enum brim_finding check_play(brim_check *c, brim_status (*play)(asked *a), const char *what)
{
  tally t = {.played = 0};
  const enum brim_finding finding = play_all(c, NULL, FEDERATIONS, play, &t);
  if (finding != BRIM_FOUND_OK) return finding;
  if (t.played == 0)
    return brim_check_say(c, BRIM_FOUND_FAILED, "rejects all %d synthetic federations, the first with: %s", t.refused,
                          t.refusal);
  brim_check_say(c, BRIM_FOUND_OK, "%s: %d rounds of %d federation%s", what, ROUNDS, t.played, brim_plural(t.played));
  if (t.refused > 0) brim_text_printf(&c->text, "; %d others rejected, the first with: %s", t.refused, t.refusal);
  return BRIM_FOUND_OK;
}

static enum brim_finding check_select(brim_check *c)
{
  return check_play(c, play_plainly, "only available clients, each at most once");
}
static enum brim_finding check_repeats(brim_check *c)
{
  return check_play(c, play_with_questions_twice, "the same answer to the same query");
}
static enum brim_finding check_resumes(brim_check *c)
{
  return check_play(c, play_and_resume, "another instance continues in the same way from the same state");
}

/* ---- creating and destroying, and state ---- */

static enum brim_finding check_create(brim_check *c)
{
  enum brim_finding finding = BRIM_FOUND_OK;
  uint64_t before = 0;
  asked *a = brim_xcalloc(1, sizeof *a);
  if (configure(c, NULL, a) != BRIM_OK) {
    finding = brim_check_untried(c);
    free_asked(a);
    return finding;
  }
  for (int i = 0; i < BRIM_CHECK_WARM_TIMES + BRIM_CHECK_MANY_TIMES && finding == BRIM_FOUND_OK; i++) {
    if (i == BRIM_CHECK_WARM_TIMES) before = brim_check_allocated();
    if (make_instance(a) != BRIM_OK) finding = brim_check_fail_short(c, "");
    if (!close_asked(a) && finding == BRIM_FOUND_OK)
      finding = brim_check_say(c, BRIM_FOUND_FAILED, "destroy crashes or does not return");
  }
  if (finding == BRIM_FOUND_OK) finding = brim_check_created(c, before);
  free_asked(a);
  return finding;
}

static enum brim_finding check_state(brim_check *c)
{
  enum brim_finding finding = BRIM_FOUND_OK;
  asked *a = brim_xcalloc(1, sizeof *a);
  if (configure(c, NULL, a) != BRIM_OK)
    finding = brim_check_say(c, BRIM_FOUND_WARNING, "not tried: there is no instance");
  else if (open_asked(a, DRAWN, 100, false) != BRIM_OK)
    finding = brim_check_fail_short(c, "");
  else
    brim_check_say(c, BRIM_FOUND_OK, "%lld number%s, and %lld for each of 100 clients", (long long)a->own,
                   brim_plural(a->own), (long long)a->of_client);
  free_asked(a);
  return finding;
}

/* ---- time and memory ---- */

/* Runs rounds of a large federation, as many as the time limit allows. */
static brim_status play_large(asked *a, int64_t clients)
{
  const double end = brim_now() + SIZE_SECONDS;
  BRIM_TRY(open_asked(a, DRAWN, clients, true));
  for (int64_t round = OLD_ROUND; round < OLD_ROUND + ROUNDS && brim_now() < end; round++)
    BRIM_TRY(play_round(a, round));
  return BRIM_OK;
}

/* A selector that is not made for so large a federation may reject it or be too slow, except for the smallest size. */
static enum brim_finding check_time(brim_check *c)
{
  static const int64_t size[] = {1000, 10000, 100000};
  enum brim_finding finding = BRIM_FOUND_OK;
  brim_text text = {0};
  asked *a = brim_xcalloc(1, sizeof *a);
  if (configure(c, NULL, a) != BRIM_OK)
    finding = brim_check_say(c, BRIM_FOUND_WARNING, "not tried: there is no instance");
  for (size_t i = 0; i < sizeof size / sizeof size[0] && finding == BRIM_FOUND_OK; i++) {
    const brim_status status = play_large(a, size[i]);
    const bool is_beyond = status != BRIM_EPLUGIN || a->f.query.size == 0 || brim_guard_is_lost(a->guard);
    const bool is_limit = i > 0 && status != BRIM_OK && is_beyond; /* query.size 0: no round began */
    if (status == BRIM_OK)
      brim_text_printf(&text, "%s%.*f ms of %lld clients", i ? ", " : "a selection takes at most ",
                       a->seconds < 0.01 ? 2 : 0, 1e3 * a->seconds, (long long)size[i]);
    else if (is_limit)
      brim_text_printf(&text, "; of %lld clients: %.*s", (long long)size[i], (int)strcspn(brim_error_text(), "\n"),
                       brim_error_text());
    if (status != BRIM_OK) finding = is_limit ? BRIM_FOUND_WARNING : fail_in_federation(c, a);
    if (!close_asked(a)) break;
  }
  if (text.length > 0 && finding != BRIM_FOUND_FAILED) brim_check_say(c, finding, "%s", brim_text_str(&text));
  brim_text_release(&text);
  free_asked(a);
  return finding;
}

/* Repeats the same round, because C libraries cache memory of each size that was requested. */
static enum brim_finding check_leaks(brim_check *c)
{
  enum brim_finding finding = BRIM_FOUND_OK;
  uint64_t before = 0;
  asked *a = brim_xcalloc(1, sizeof *a);
  brim_check_say(c, BRIM_FOUND_OK, "rounds leak no memory");
  if (configure(c, NULL, a) != BRIM_OK || open_asked(a, DRAWN, 0, true) != BRIM_OK)
    finding = brim_check_say(c, BRIM_FOUND_WARNING, "not tried: there is no instance");
  for (int i = 0; i < BRIM_CHECK_WARM_TIMES + BRIM_CHECK_MANY_TIMES && finding == BRIM_FOUND_OK; i++) {
    if (i == BRIM_CHECK_WARM_TIMES) before = brim_check_allocated();
    (void)play_round(a, OLD_ROUND);
  }
  const uint64_t kept = brim_check_kept(before);
  if (finding == BRIM_FOUND_OK && kept > 0)
    finding = brim_check_say(c, BRIM_FOUND_WARNING, "rounds leak %" PRIu64 " bytes each time", kept);
  free_asked(a);
  return finding;
}

/* ---- parameters ---- */

static enum brim_check_trial try_word(brim_check *c, const char *word)
{
  tally t = {.played = 0};
  const enum brim_finding finding = play_all(c, word, FEDERATIONS_FEW, play_plainly, &t);
  if (finding == BRIM_FOUND_FAILED) {
    brim_text_printf(&c->text, "\nwith %s", word);
    return BRIM_TRIAL_FAILED;
  }
  return t.played > 0 ? BRIM_TRIAL_DONE : BRIM_TRIAL_REFUSED;
}

const brim_check_kind brim_selector_checks[] = {
    {"create", check_create},      {"state", check_state},          {"select", check_select},
    {"repeats", check_repeats},    {"resumes", check_resumes},      {"time", check_time},
    {"memory", check_leaks, true}, BRIM_CHECK_PARAMETERS(try_word), {NULL}};
