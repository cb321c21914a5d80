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

static void add_loss(brim_text *line, const brim_client_result *c)
{
  const double loss = c->loss / c->counted; /* counted is 0 where no sample counts */
  if (isfinite(loss))
    brim_text_printf(line, "%.9g", loss);
  else
    brim_text_add(line, "null");
}

brim_status brim_participants_add(brim_participants *p, int64_t round, const brim_round_result *r)
{
  static const char *const names[] = {"client", "samples", "loss", "arrived"};
  brim_text *line = &p->line;
  brim_text_clear(line);
  brim_text_printf(line, "{\"round\":%lld", (long long)round);
  for (int k = 0; k < 4; k++) {
    brim_text_printf(line, ",\"%s\":[", names[k]);
    for (int64_t i = 0; i < r->clients; i++) {
      const brim_client_result *c = &r->client[i];
      if (i > 0) brim_text_add(line, ",");
      if (k < 2) brim_text_printf(line, "%lld", (long long)(k == 0 ? c->client : c->samples));
      if (k == 2) add_loss(line, c);
      if (k == 3) brim_text_add(line, c->arrived ? "true" : "false");
    }
    brim_text_add(line, "]");
  }
  brim_text_add(line, "}\n");
  return brim_jsonl_append(&p->log, brim_text_str(line), line->length);
}
