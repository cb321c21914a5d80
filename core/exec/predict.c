/* See predict.h. */
#include "exec/predict.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "graph/signature.h"

/* Rates for one host thread and for a GPU, correct only to an order of magnitude, which are used when nothing is
 * known. */
#define HOST_FLOPS 2e10
#define HOST_BYTES 5e9
#define HOST_NODE 2e-6
#define GPU_FLOPS 2e13
#define GPU_BYTES 1e12
#define GPU_NODE 4e-6

brim_rates brim_rates_of(const brim_device_info *device)
{
  const double threads = device->threads > 0 ? device->threads : 1;
  if (!device->on_host) return (brim_rates){GPU_FLOPS, GPU_BYTES, GPU_NODE, true};
  return (brim_rates){HOST_FLOPS * threads, HOST_BYTES * threads, HOST_NODE, false};
}

double brim_rates_seconds(const brim_rates *r, brim_cost cost)
{
  const double flops = (double)cost.flops / r->flops, bytes = (double)cost.bytes / r->bytes;
  return r->node_seconds + (flops > bytes ? flops : bytes);
}

/* Interpolates between two times for other n. Extrapolates in proportion to n, because kernels work sample by sample;
 * below the smallest n the result is at least a node's minimum. */
static double between(const brim_profile_entry *below, const brim_profile_entry *above, int64_t n)
{
  if (below && above) {
    const double share = (double)(n - below->n) / (double)(above->n - below->n);
    return below->seconds + share * (above->seconds - below->seconds);
  }
  const brim_profile_entry *only = below ? below : above;
  return only->n > 0 ? only->seconds * (double)n / (double)only->n : only->seconds;
}

static double guess(brim_profile *profile, const char *what, double rated)
{
  char op[128];
  const size_t length = strcspn(what, " ");
  snprintf(op, sizeof op, "%.*s", (int)(length < sizeof op ? length : sizeof op - 1), what);
  double ratio = brim_profile_ratio(profile, op);
  if (ratio <= 0) ratio = brim_profile_ratio(profile, NULL);
  return ratio > 0 ? ratio * rated : rated;
}

/* The time of a part, and its basis. */
typedef struct part_time {
  double seconds;
  enum { EXACT, DERIVED, GUESSED } from;
} part_time;

static part_time find_time(brim_profile *profile, const char *what, int64_t n, double rated)
{
  const brim_profile_entry *exact = brim_profile_find(profile, what, n), *below = NULL, *above = NULL;
  if (exact) return (part_time){exact->seconds, EXACT};
  brim_profile_neighbours(profile, what, n, &below, &above);
  if (below || above) return (part_time){between(below, above, n), DERIVED};
  return (part_time){guess(profile, what, rated), GUESSED};
}

static void add_time(const part_time *t, double times, brim_prediction *out)
{
  const double seconds = times * t->seconds;
  out->seconds += seconds;
  if (t->from == DERIVED) out->derived_seconds += seconds;
  if (t->from == GUESSED) out->guessed_seconds += seconds;
}

void brim_predict_other(brim_profile *profile, const char *what, int64_t n, double rated, double times,
                        brim_prediction *out)
{
  const part_time t = find_time(profile, what, n, rated);
  add_time(&t, times, out);
}

void brim_predict_whole_name(const brim_program *p, brim_text *out)
{
  brim_text nodes = {0};
  for (size_t i = 0; i < p->graph->node_count; i++) {
    brim_signature_print(p, p->graph->node[i], &nodes);
    brim_text_add(&nodes, "\n");
  }
  brim_text_printf(out, BRIM_TIMED_WHOLE " %016" PRIx64,
                   brim_hash(BRIM_HASH_START, brim_text_str(&nodes), nodes.length));
  brim_text_release(&nodes);
}

/* The ratio of a whole program's time to the sum of its nodes: as timed with this micro-batch, with the nearest ones,
 * or for any program. */
static double share_of_whole(brim_profile *profile, const brim_program *p)
{
  brim_text name = {0};
  const brim_profile_entry *below = NULL, *above = NULL;
  brim_predict_whole_name(p, &name);
  const brim_profile_entry *e = brim_profile_find(profile, brim_text_str(&name), p->info.batch);
  if (!e) brim_profile_neighbours(profile, brim_text_str(&name), p->info.batch, &below, &above);
  if (!e) e = below ? below : above;
  brim_text_release(&name);
  const double share = e && e->rated > 0 ? e->seconds / e->rated : brim_profile_ratio(profile, BRIM_TIMED_WHOLE);
  return share > 0 ? share : 1;
}

/* Layers repeat, so most nodes of a large program are like an earlier node. */
#define KNOWN 1024 /* nodes by hash; a power of two */
#define PROBES 8

typedef struct known_node {
  const brim_node *node; /* NULL: free */
  double rated;
  part_time time;
} known_node;

/* The entry of a node like this one, or a free one; NULL if there is no room. */
static known_node *find_known(known_node *known, const brim_program *p, const brim_node *n, double rated)
{
  const uint64_t hash = brim_signature_hash(n);
  for (uint64_t i = 0; i < PROBES; i++) {
    known_node *k = &known[(hash + i) % KNOWN];
    if (!k->node || (k->rated == rated && brim_signature_equal(p, k->node, n))) return k;
  }
  return NULL;
}

void brim_predict_program(brim_profile *profile, const brim_rates *rates, const brim_program *p, double times,
                          brim_prediction *out)
{
  brim_text what = {0};
  known_node known[KNOWN] = {{0}};
  const double share = rates->whole ? share_of_whole(profile, p) : 1;
  for (size_t i = 0; i < p->graph->node_count; i++) {
    const brim_node *n = p->graph->node[i];
    const double rated = brim_rates_seconds(rates, brim_op_cost(n));
    known_node *k = find_known(known, p, n, rated), other;
    if (!k) *(k = &other) = (known_node){0};
    if (!k->node) {
      brim_text_clear(&what);
      brim_signature_print(p, n, &what);
      *k = (known_node){n, rated, find_time(profile, brim_text_str(&what), p->info.batch, rated)};
    }
    add_time(&k->time, share * brim_program_times(p, i, times), out);
  }
  brim_text_release(&what);
}
