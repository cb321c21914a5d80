/* What clients of a federation keep between rounds: its size, and whether the disk has room. See setup.h. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/file.h"
#include "base/text.h"
#include "setup/setup_parts.h"

bool brim_setup_keeps(const brim_setup *s, const brim_parameter *p)
{
  return s->settings->federate.norm_buffers == BRIM_NORM_BUFFERS_KEEP && p->is_buffer && !p->is_frozen;
}

void brim_setup_count_kept(brim_setup *s, const brim_graph *g)
{
  s->buffer_bytes = s->kept_bytes = s->kept_largest = 0;
  for (size_t i = 0; i < g->parameter_count; i++) {
    const brim_parameter *p = &g->parameter[i];
    if (p->is_buffer && !p->is_frozen) s->buffer_bytes += p->value->bytes;
    if (!brim_setup_keeps(s, p)) continue;
    s->kept_bytes += p->value->bytes;
    if (p->value->bytes > s->kept_largest) s->kept_largest = p->value->bytes;
  }
}

uint64_t brim_setup_kept_bytes(const brim_setup *s)
{
  return brim_setup_is_federated(s) && s->settings->federate.train ? s->kept_bytes : 0;
}

brim_states_layout brim_setup_states_layout(const brim_setup *s)
{
  return (brim_states_layout){
      .clients = s->settings->total_clients, .places = brim_setup_round_clients(s), .bytes = brim_setup_kept_bytes(s)};
}

static int64_t product_below(int64_t a, int64_t b, int64_t most)
{
  return a < most / b ? a * b : most;
}

/* Each client that will have trained has a slot, those that trained since the last checkpoint a second one, and those
 * of the present round one more. */
uint64_t brim_setup_states_bytes(const brim_setup *s)
{
  const brim_settings *t = s->settings;
  const brim_states_layout l = brim_setup_states_layout(s);
  if (l.bytes == 0) return 0;
  const int64_t trained = product_below(t->rounds, l.places, l.clients),
                recent = product_below(t->federate.checkpoint_every_rounds, l.places, trained);
  return brim_states_file_bytes(&l, trained + recent + l.places);
}

/* Bytes that a file occupies; 0: there is none. */
static uint64_t occupied_bytes(const char *folder)
{
  char path[BRIM_PATH_MAX];
  struct stat info;
  if (!folder[0] || snprintf(path, sizeof path, "%s/" BRIM_STATES_NAME, folder) >= (int)sizeof path) return 0;
  return stat(path, &info) == 0 ? (uint64_t)info.st_blocks * 512 : 0;
}

/* The nearest folder above a path that exists. */
static void find_existing(char *path)
{
  struct stat info;
  while (stat(path, &info) != 0) {
    char *slash = strrchr(path, '/');
    if (!slash || slash == path) {
      snprintf(path, BRIM_PATH_MAX, "%s", slash ? "/" : ".");
      return;
    }
    *slash = '\0';
  }
}

brim_status brim_setup_check_disk(const brim_setup *s)
{
  char path[BRIM_PATH_MAX], need[32], each[32], left[32];
  struct statvfs disk;
  const uint64_t bytes = brim_setup_states_bytes(s);
  const char *folder = s->options.resume ? s->options.resume : s->settings->run.dir[0] ? s->settings->run.dir : "runs";
  if (bytes == 0 || s->world.rank > 0) return BRIM_OK;
  snprintf(path, sizeof path, "%s", folder);
  find_existing(path);
  if (statvfs(path, &disk) != 0)
    return brim_fail(BRIM_EIO, "cannot tell how full the disk of '%s' is: %s", path, strerror(errno));
  const uint64_t free = (uint64_t)disk.f_bavail * disk.f_frsize, had = occupied_bytes(folder);
  if (bytes <= free + had) return BRIM_OK;
  return brim_fail(BRIM_EBUDGET,
                   "what clients keep between rounds takes up to %s on the disk of '%s' (%s for each of %" PRId64
                   " clients, up to twice, in " BRIM_STATES_NAME "), which has %s free\nchoose another run.dir, fewer "
                   "clients or rounds, or settings with which clients keep less",
                   brim_format_bytes(need, sizeof need, bytes), path,
                   brim_format_bytes(each, sizeof each, brim_setup_kept_bytes(s)), s->settings->total_clients,
                   brim_format_bytes(left, sizeof left, free + had));
}
