/* Client states of a federation: their size, and whether the disk has room. See setup.h. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/file.h"
#include "base/text.h"
#include "brim/optimizer.h"
#include "setup/setup_parts.h"

bool brim_setup_keeps(const brim_setup *s, const brim_parameter *p)
{
  return p->is_local || (s->settings->federate.norm_buffers == BRIM_NORM_BUFFERS_KEEP && p->is_buffer && !p->is_frozen);
}

void brim_setup_count_kept(brim_setup *s, const brim_graph *g)
{
  const bool has_controls = brim_setup_is_federated(s) && brim_setup_has_controls(s),
             has_feedback = brim_setup_is_federated(s) && brim_setup_has_feedback(s),
             is_ditto = brim_setup_is_federated(s) && brim_setup_is_ditto(s);
  uint64_t largest = 0; /* FedDyn's server needs memory for the sum of a parameter */
  s->buffer_bytes = s->kept_bytes = s->kept_scratch_bytes = s->control_bytes = 0;
  for (size_t i = 0; i < g->parameter_count; i++) {
    const brim_parameter *p = &g->parameter[i];
    if (p->is_buffer && !p->is_frozen) s->buffer_bytes += p->value->bytes;
    if (brim_setup_keeps(s, p)) {
      s->kept_bytes += p->value->bytes;
      if (p->value->bytes > s->kept_scratch_bytes) s->kept_scratch_bytes = p->value->bytes;
    }
    if (is_ditto && !p->is_frozen) { /* the personal model's */
      s->kept_bytes += p->value->bytes;
      if (p->value->bytes > s->kept_scratch_bytes) s->kept_scratch_bytes = p->value->bytes;
    }
    if (has_feedback && brim_parameter_is_controlled(p)) {
      /* memory for the parameter's change in double precision, and a copy of it while it is read or written */
      const uint64_t room = 2 * (uint64_t)brim_shape_count(&p->value->shape) * sizeof(double);
      s->kept_bytes += p->value->bytes;
      if (room > s->kept_scratch_bytes) s->kept_scratch_bytes = room;
    }
    if (!has_controls || !brim_parameter_is_controlled(p)) continue;
    /* memory for a client's control; for the server's current and next control; and for three tensors of a client that
     * trains, as doubles */
    const uint64_t wide = (uint64_t)brim_shape_count(&p->value->shape) * sizeof(double);
    s->kept_bytes += p->value->bytes;
    s->control_bytes += 2 * wide;
    if (brim_setup_is_feddyn(s) && wide > largest) largest = wide;
    if (3 * wide > s->kept_scratch_bytes) s->kept_scratch_bytes = 3 * wide;
  }
  s->control_bytes += largest;
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

/* A client that will have trained has one slot; each client that trained since the last checkpoint has a second one,
 * and each client of the current round one more. */
uint64_t brim_setup_states_bytes(const brim_setup *s)
{
  const brim_settings *t = s->settings;
  const brim_states_layout l = brim_setup_states_layout(s);
  if (l.bytes == 0) return 0;
  const int64_t trained = product_below(t->rounds, l.places, l.clients),
                recent = product_below(t->federate.checkpoint_every_rounds, l.places, trained);
  return brim_states_file_bytes(&l, trained + recent + l.places);
}

/* Bytes that the run's file of states occupies; 0 without the file. */
static uint64_t occupied_bytes(const char *folder)
{
  char path[BRIM_PATH_MAX];
  struct stat info;
  if (!folder[0] || snprintf(path, sizeof path, "%s/" BRIM_STATES_NAME, folder) >= (int)sizeof path) return 0;
  return stat(path, &info) == 0 ? (uint64_t)info.st_blocks * 512 : 0;
}

/* Finds the nearest existing folder above a path. */
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
    return brim_fail(BRIM_EIO, "cannot determine the free disk space for '%s': %s", path, strerror(errno));
  const uint64_t free = (uint64_t)disk.f_bavail * disk.f_frsize, had = occupied_bytes(folder);
  if (bytes <= free + had) return BRIM_OK;
  return brim_fail(BRIM_EBUDGET,
                   "client states take up to %s on the disk of '%s' (%s for each of %" PRId64
                   " clients, up to twice, in " BRIM_STATES_NAME "), which has %s free\nchoose another run.dir, fewer "
                   "clients or rounds, or settings with smaller client states",
                   brim_format_bytes(need, sizeof need, bytes), path,
                   brim_format_bytes(each, sizeof each, brim_setup_kept_bytes(s)), s->settings->total_clients,
                   brim_format_bytes(left, sizeof left, free + had));
}

/* ---- federate.local_parameters ---- */

enum { NEAREST = 3, NAME_BYTES = 256 };
typedef struct nearest {
  char name[NEAREST][NAME_BYTES];
  int distance[NEAREST], count;
} nearest;

/* Inserts a name if it is among the nearest, in order and only once. */
static void add_name(nearest *n, const char *pattern, const char *name)
{
  const int distance = brim_typo_distance(pattern, name);
  int at = n->count;
  for (int i = 0; i < n->count; i++)
    if (strcmp(n->name[i], name) == 0) return;
  while (at > 0 && distance < n->distance[at - 1]) at--;
  if (at == NEAREST) return;
  n->count += n->count < NEAREST;
  for (int i = n->count - 1; i > at; i--) {
    memcpy(n->name[i], n->name[i - 1], NAME_BYTES);
    n->distance[i] = n->distance[i - 1];
  }
  snprintf(n->name[at], NAME_BYTES, "%s", name);
  n->distance[at] = distance;
}

/* Rejects a pattern, and lists the nearest names, and patterns of whole layers. */
static brim_status refuse_pattern(const brim_setup *s, const brim_graph *g, const char *pattern)
{
  nearest n = {.count = 0};
  brim_text text = {0};
  for (size_t i = 0; i < g->parameter_count; i++) {
    char name[NAME_BYTES];
    if (g->parameter[i].is_frozen) continue;
    add_name(&n, pattern, g->parameter[i].value->name);
    snprintf(name, sizeof name, "%s", g->parameter[i].value->name);
    for (char *dot; (dot = strrchr(name, '.')) && (size_t)(dot - name) + 3 < sizeof name;) {
      snprintf(dot, 3, ".*");
      add_name(&n, pattern, name);
      *dot = '\0';
    }
  }
  for (int i = 0; i < n.count; i++) brim_text_printf(&text, "%s'%s'", i ? ", " : "", n.name[i]);
  const brim_status status = brim_fail(
      BRIM_ECONFIG, "'federate.local_parameters': '%s' matches no parameter that model=%s trains\nthe nearest: %s",
      pattern, brim_config_choice_of(s->config, "model")->plugin->id, brim_text_str(&text));
  brim_text_release(&text);
  return brim_setup_add_origin(s, status);
}

static brim_status check_pattern(const brim_setup *s, const brim_graph *g, const char *pattern)
{
  for (size_t i = 0; i < g->parameter_count; i++)
    if (!g->parameter[i].is_frozen && brim_matches_any(pattern, g->parameter[i].value->name)) return BRIM_OK;
  return refuse_pattern(s, g, pattern);
}

brim_status brim_setup_check_local(const brim_setup *s, const brim_graph *g)
{
  static const char parts[] = ", \t\n";
  const char *patterns = s->settings->federate.local_parameters;
  bool sends = false;
  if (!brim_setup_is_federated(s) || !patterns[0]) return BRIM_OK;
  for (const char *at = patterns + strspn(patterns, parts); *at; at += strspn(at, parts)) {
    char pattern[NAME_BYTES];
    const size_t length = strcspn(at, parts);
    snprintf(pattern, sizeof pattern, "%.*s", (int)length, at);
    BRIM_TRY(check_pattern(s, g, pattern));
    at += length;
  }
  for (size_t i = 0; i < g->parameter_count; i++)
    sends = sends || (brim_parameter_is_trained(&g->parameter[i]) && brim_parameter_is_sent(&g->parameter[i]));
  if (sends) return BRIM_OK;
  return brim_setup_add_origin(
      s,
      brim_fail(BRIM_ECONFIG, "'federate.local_parameters': '%s' leaves no parameter of model=%s for the global model",
                patterns, brim_config_choice_of(s->config, "model")->plugin->id));
}
