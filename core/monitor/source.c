/* See source.h. */
#include "monitor/source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "base/text.h"
#include "monitor/remote.h"
#include "monitor/this_host.h"

#define PAUSE_NANOSECONDS 10000000 /* between two checks for answers */

struct brim_source {
  brim_this_host *local; /* NULL: the source does not include this host */
  brim_remote *remote;
  size_t remotes;
  double wait_seconds;
  FILE *file; /* NULL: no file */
  const char *from;
  size_t read; /* looks of the file */
  json_t *last;
  bool is_over;
};

static brim_status open_file(brim_source *s, const char *from)
{
  s->from = from;
  s->file = brim_fopen_to_read(from);
  return s->file ? BRIM_OK : brim_fail(BRIM_ELOAD, "cannot read '%s': %s", from, brim_open_reason(errno));
}

static brim_status open_hosts(brim_source *s, const brim_source_options *o, const brim_registry *registry)
{
  bool is_local = o->hosts == 0;
  if (o->hosts > BRIM_LOOK_HOSTS_MAX)
    return brim_fail(BRIM_ECONFIG, "%zu hosts are more than the maximum, %d", o->hosts, BRIM_LOOK_HOSTS_MAX);
  for (size_t i = 0; i < o->hosts; i++) BRIM_TRY(brim_remote_check(o->host[i]));
  s->remote = brim_xcalloc(o->hosts + 1, sizeof *s->remote);
  for (size_t i = 0; i < o->hosts; i++) {
    if (strcmp(o->host[i], "localhost") == 0)
      is_local = true;
    else
      brim_remote_open(&s->remote[s->remotes++], o->host[i], o->every);
  }
  if (is_local) s->local = brim_this_host_open(registry);
  return BRIM_OK;
}

brim_status brim_source_open(const brim_source_options *o, const brim_registry *registry, brim_source **out)
{
  brim_source *s = brim_xcalloc(1, sizeof *s);
  s->wait_seconds = o->wait_seconds;
  const brim_status status = o->from ? open_file(s, o->from) : open_hosts(s, o, registry);
  if (status == BRIM_OK)
    *out = s;
  else
    brim_source_close(s);
  return status;
}

void brim_source_close(brim_source *s)
{
  if (!s) return;
  brim_this_host_close(s->local);
  for (size_t i = 0; i < s->remotes; i++) brim_remote_close(&s->remote[i]);
  free(s->remote);
  if (s->file) fclose(s->file);
  json_decref(s->last);
  free(s);
}

/* Whether only white space is left. */
static bool is_at_end(FILE *file)
{
  int c;
  do {
    c = getc(file);
  } while (c == ' ' || c == '\n' || c == '\r' || c == '\t');
  if (c != EOF) ungetc(c, file);
  return c == EOF;
}

static brim_status look_at_file(brim_source *s, brim_look *look)
{
  json_error_t error;
  if (s->last && is_at_end(s->file)) {
    s->is_over = true;
    return brim_look_add_json(s->last, look);
  }
  json_t *root = json_loadf(s->file, JSON_DISABLE_EOF_CHECK, &error);
  if (!root)
    return brim_fail(BRIM_ELOAD, "snapshot %zu of '%s', in its line %d: %s", s->read + 1, s->from, error.line,
                     error.text);
  json_decref(s->last);
  s->last = root;
  s->read++;
  const brim_status status = brim_look_add_json(root, look);
  s->is_over = status == BRIM_OK && is_at_end(s->file);
  if (status == BRIM_OK) return BRIM_OK;
  char why[1024];
  snprintf(why, sizeof why, "%s", brim_error_text());
  return brim_fail(status, "snapshot %zu of '%s': %s", s->read, s->from, why);
}

static void wait_for_hosts(brim_source *s)
{
  const double end = brim_now() + s->wait_seconds;
  for (;;) {
    bool is_settled = true;
    for (size_t i = 0; i < s->remotes; i++) {
      brim_remote_update(&s->remote[i]);
      is_settled = is_settled && brim_remote_is_settled(&s->remote[i]);
    }
    if (is_settled || brim_now() >= end) break;
    nanosleep(&(struct timespec){0, PAUSE_NANOSECONDS}, NULL);
  }
  s->wait_seconds = 0; /* only the first look waits */
}

brim_status brim_source_look(brim_source *s, brim_look *look)
{
  brim_look_release(look);
  if (s->file) {
    const brim_status status = look_at_file(s, look);
    if (status != BRIM_OK) brim_look_release(look);
    return status;
  }
  if (s->local) {
    brim_this_host_look(s->local, look);
    brim_look_expect(look);
    brim_look_advise(look);
  }
  wait_for_hosts(s);
  for (size_t i = 0; i < s->remotes; i++) brim_remote_add(&s->remote[i], look);
  return BRIM_OK;
}

bool brim_source_is_over(const brim_source *s)
{
  return s->is_over;
}
