/* Selects equally from all groups (Fraboni, Vidal, Kameni, Lorenzi: Clustered Sampling, ICML 2021). Similar clients
 * form clusters. The selector takes one client from each cluster in turn, drawn in proportion to samples.
 *
 *     clusters = k-means of x(k), from centres drawn by k-means++ (Arthur, Vassilvitskii, 2007)
 *     x(k)     = the shares of the classes in the samples of client k; with by=loss its last loss
 *
 * The paper groups clients by similar updates or by samples. This selector uses class counts, because they are known
 * from the start. Centres are computed from at most 2,048 random clients, then all clients are assigned. Tasks without
 * classes use losses.
 *
 * With by=labels a client never seen is treated like any other; with by=loss it has the average loss of the clients
 * seen. */
#include "brim/brim.h"

#define SAMPLE 2048
#define PASSES 10

typedef struct settings {
  int64_t clusters;
  int32_t by;
} settings;

static const brim_param table[] = {
    BRIM_PARAM(I64, settings, clusters, "10", "[1,256]", "number of clusters of similar clients"),
    BRIM_PARAM(ENUM, settings, by, "labels", "labels|loss",
               "clusters have similar class shares (labels) or similar last losses (loss)"),
    BRIM_PARAMS_END,
};

typedef struct work {
  const brim_selection_query *q;
  int64_t dims, clusters;
  bool by_labels;
  double mean_loss;
  double *centre, *sum, *size; /* centre, sum: [clusters, dims]; size: [clusters] */
  double *distance;            /* for each sampled client, the distance to the nearest centre */
  brim_best *sample, *best;    /* sample: [SAMPLE]; best: [clusters, wanted] */
  int64_t *held, sampled;      /* [clusters] */
} work;

static double entry(const work *w, int64_t k, int64_t d)
{
  const brim_clients *c = w->q->clients;
  if (w->by_labels) return (double)c->labels[k * c->classes + d] / (double)c->samples[k];
  return isfinite(c->loss[k]) ? (double)c->loss[k] : w->mean_loss;
}

static double distance(const work *w, int64_t k, int64_t cluster)
{
  double sum = 0;
  for (int64_t d = 0; d < w->dims; d++) {
    const double away = entry(w, k, d) - w->centre[cluster * w->dims + d];
    sum += away * away;
  }
  return sum;
}

static int64_t nearest(const work *w, int64_t k)
{
  int64_t best = 0;
  double least = INFINITY;
  for (int64_t c = 0; c < w->clusters; c++) {
    const double away = distance(w, k, c);
    if (away < least) best = c;
    if (away < least) least = away;
  }
  return best;
}

static void add_centre(work *w, int64_t client)
{
  for (int64_t d = 0; d < w->dims; d++) w->centre[w->clusters * w->dims + d] = entry(w, client, d);
  w->clusters++;
  for (int64_t i = 0; i < w->sampled; i++) {
    const double away = distance(w, w->sample[i].client, w->clusters - 1);
    if (w->clusters == 1 || away < w->distance[i]) w->distance[i] = away;
  }
}

/* Draws the centres after the first one, in proportion to squared distances. Stops early if every sampled client is at
 * a centre. */
static void draw_centres(work *w, int64_t clusters)
{
  add_centre(w, w->sample[0].client);
  while (w->clusters < clusters) {
    double sum = 0;
    int64_t drawn = -1;
    for (int64_t i = 0; i < w->sampled; i++) sum += w->distance[i];
    double left = brim_selection_draw(w->q, 1, w->clusters) * sum;
    for (int64_t i = 0; i < w->sampled && left >= 0; i++) {
      if (w->distance[i] > 0) drawn = i;
      left -= w->distance[i];
    }
    if (drawn < 0) return;
    add_centre(w, w->sample[drawn].client);
  }
}

/* Runs Lloyd's algorithm. An empty cluster keeps its centre. */
static void move_centres(work *w)
{
  for (int64_t i = 0; i < w->clusters * w->dims; i++) w->sum[i] = 0;
  for (int64_t c = 0; c < w->clusters; c++) w->size[c] = 0;
  for (int64_t i = 0; i < w->sampled; i++) {
    const int64_t k = w->sample[i].client, c = nearest(w, k);
    for (int64_t d = 0; d < w->dims; d++) w->sum[c * w->dims + d] += entry(w, k, d);
    w->size[c]++;
  }
  for (int64_t c = 0; c < w->clusters; c++)
    for (int64_t d = 0; d < w->dims && w->size[c] > 0; d++)
      w->centre[c * w->dims + d] = w->sum[c * w->dims + d] / w->size[c];
}

/* Takes clients from the clusters in turn, beginning with a random cluster. Each cluster gives its clients in the order
 * in which they were drawn. */
static void take_turns(work *w, brim_selection *out)
{
  const brim_selection_query *q = w->q;
  const int64_t first = (int64_t)(brim_selection_draw(q, 2, 0) * (double)w->clusters);
  for (int64_t i = 0; i < q->candidates; i++) {
    const int64_t k = q->candidate[i], c = nearest(w, k);
    brim_best_add(w->best + c * q->wanted, &w->held[c], q->wanted, k,
                  brim_score_drawn(q, 3, k, (double)q->clients->samples[k]));
  }
  for (int64_t c = 0; c < w->clusters; c++) brim_best_sort(w->best + c * q->wanted, w->held[c]);
  for (int64_t turn = 0; out->count < q->wanted; turn++)
    for (int64_t i = 0; i < w->clusters && out->count < q->wanted; i++) {
      const int64_t c = (first + i) % w->clusters;
      if (turn < w->held[c]) out->client[out->count++] = w->best[c * q->wanted + turn].client;
    }
}

static bool allocate(work *w, int64_t clusters)
{
  w->centre = brim_selection_alloc(clusters * w->dims, sizeof *w->centre);
  w->sum = brim_selection_alloc(clusters * w->dims, sizeof *w->sum);
  w->size = brim_selection_alloc(clusters, sizeof *w->size);
  w->distance = brim_selection_alloc(SAMPLE, sizeof *w->distance);
  w->sample = brim_selection_alloc(SAMPLE, sizeof *w->sample);
  w->best = brim_selection_alloc(clusters * w->q->wanted, sizeof *w->best);
  w->held = brim_selection_alloc(clusters, sizeof *w->held);
  return w->centre && w->sum && w->size && w->distance && w->sample && w->best && w->held;
}

static void choose(work *w, int64_t clusters, brim_selection *out)
{
  const brim_selection_query *q = w->q;
  const int64_t room = q->candidates < SAMPLE ? q->candidates : SAMPLE;
  for (int64_t i = 0; i < q->candidates; i++)
    brim_best_add(w->sample, &w->sampled, room, q->candidate[i], brim_selection_draw(q, 0, q->candidate[i]));
  brim_best_sort(w->sample, w->sampled);
  draw_centres(w, clusters);
  for (int pass = 0; pass < PASSES; pass++) move_centres(w);
  take_turns(w, out);
}

static brim_status select_clients(void *self, const brim_selection_query *q, brim_selection *out)
{
  const settings *s = self;
  work w = {.q = q, .by_labels = s->by == 0 && q->clients->labels};
  const double mean = brim_mean_known(q, q->clients->loss);
  w.mean_loss = isfinite(mean) ? mean : 0;
  w.dims = w.by_labels ? q->clients->classes : 1;
  const brim_status status = allocate(&w, s->clusters) ? BRIM_OK : BRIM_ENOMEM_HOST;
  if (status == BRIM_OK) choose(&w, s->clusters, out);
  void *const all[] = {w.centre, w.sum, w.size, w.distance, w.sample, w.best, w.held};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) free(all[i]);
  return status;
}

static const brim_selector_ops ops = {.size = sizeof ops, .needs = BRIM_NEED_LABELS, .select = select_clients};
static const brim_plugin plugin = {.size = sizeof plugin,
                                   .kind = BRIM_SELECTOR,
                                   .id = "cluster_balanced",
                                   .help = "clusters of similar clients take turns",
                                   .params_size = sizeof(settings),
                                   .params = table,
                                   .ops = &ops};
static const brim_plugin *const plugins[] = {&plugin, NULL};
BRIM_MODULE("brim-selectors", "1.0", plugins)
