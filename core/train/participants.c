#include "train/participants.h"

#include <math.h>
#include <stdio.h>

brim_status brim_participants_open(brim_participants *p, const char *dir, int64_t rounds)
{
  char path[sizeof p->log.path];
  const int length = snprintf(path, sizeof path, "%s/" BRIM_PARTICIPANTS_NAME, dir);
  if (length < 0 || (size_t)length >= sizeof path) return brim_fail(BRIM_EINVAL, "path '%.200s...' is too long", dir);
  return brim_jsonl_open(&p->log, path, rounds);
}

void brim_participants_close(brim_participants *p)
{
  brim_jsonl_close(&p->log);
  brim_text_release(&p->line);
}

enum column { CLIENT, SAMPLES, LOSS, ARRIVED, MALICIOUS, VERSION, SECONDS, LEFT_OUT, COLUMNS };

static bool is_shown(enum column k, const brim_round_result *r)
{
  return k < MALICIOUS || (k == MALICIOUS ? r->has_attack : k == VERSION ? r->is_async : r->has_world);
}

static void add_value(brim_text *line, enum column k, const brim_client_result *c)
{
  const bool diverged = !c->arrived && c->fate.outcome == BRIM_OUTCOME_ARRIVES;
  if (k == CLIENT) brim_text_int(line, c->client);
  if (k == SAMPLES) brim_text_int(line, c->samples);
  if (k == LOSS) {
    const double loss = c->loss / c->counted; /* counted is 0 where no sample counts */
    if (isfinite(loss))
      brim_text_printf(line, "%.9g", loss);
    else
      brim_text_add(line, "null");
  }
  if (k == ARRIVED) brim_text_add(line, c->arrived ? "true" : "false");
  if (k == MALICIOUS) brim_text_add(line, c->is_malicious ? "true" : "false");
  if (k == VERSION) brim_text_int(line, c->version);
  if (k == SECONDS) brim_text_printf(line, "%.9g", c->fate.spent.seconds);
  if (k == LEFT_OUT) {
    brim_text_add(line, "\"");
    brim_text_add(line, diverged ? "diverged" : brim_outcome_name(c->fate.outcome));
    brim_text_add(line, "\"");
  }
}

brim_status brim_participants_add(brim_participants *p, int64_t round, const brim_round_result *r)
{
  static const char *const names[COLUMNS] = {"client",    "samples", "loss",    "arrived",
                                             "malicious", "version", "seconds", "left_out"};
  brim_text *line = &p->line;
  brim_text_clear(line);
  brim_text_printf(line, "{\"round\":%lld", (long long)round);
  for (int k = 0; k < COLUMNS; k++) {
    if (!is_shown(k, r)) continue;
    brim_text_printf(line, ",\"%s\":[", names[k]);
    for (int64_t i = 0; i < r->clients; i++) {
      if (i > 0) brim_text_add(line, ",");
      add_value(line, k, &r->client[i]);
    }
    brim_text_add(line, "]");
  }
  brim_text_add(line, "}\n");
  return brim_jsonl_append(&p->log, brim_text_str(line), line->length);
}
