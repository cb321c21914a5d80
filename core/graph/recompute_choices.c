/* See recompute_choices.h. */
#include "graph/recompute_choices.h"

#define PERIOD_MAX 4 /* longest period, in blocks, with which blocks may repeat */
#define STEPS 12     /* steps into which the range of kept bytes is divided */
#define CHOICES_MAX (2 * BRIM_PRICES + STEPS)
#define CANDIDATES_MAX 1024
_Static_assert(CHOICES_MAX *CHOICES_MAX <= CANDIDATES_MAX && 1 << BRIM_ATOMS_MAX <= CANDIDATES_MAX, "there is room");

static int64_t needs(const brim_choice *c)
{
  return c->alive > c->peak ? c->alive : c->peak;
}

static bool is_better(const brim_choice *x, const brim_choice *y)
{
  return x->work != y->work ? x->work < y->work : needs(x) < needs(y);
}

/* Marks the choices that are best at some price per byte. */
static void mark_priced(const brim_chain *b, const brim_choice *from, int count, bool *taken)
{
  static const double weight[2][2] = {{1, 0}, {1, 1}}; /* weights of bytes kept, and of bytes alive */
  for (int p = 0; p < 2 * BRIM_PRICES; p++) {
    int best = 0;
    double least = 0;
    for (int i = 0; i < count; i++) {
      const double bytes = weight[p % 2][0] * (double)from[i].kept + weight[p % 2][1] * (double)needs(&from[i]);
      const double cost = (double)from[i].work + b->price[p / 2] * bytes;
      if (i > 0 && cost >= least) continue;
      least = cost;
      best = i;
    }
    taken[best] = true;
  }
}

/* Marks, for each step of bytes kept, the choice with the least work, to fill the gaps between the priced choices. */
static void mark_stepped(const brim_choice *from, int count, bool *taken)
{
  int best[STEPS];
  int64_t least = INT64_MAX, most = 0;
  for (int i = 0; i < STEPS; i++) best[i] = -1;
  for (int i = 0; i < count; i++) {
    if (from[i].kept < least) least = from[i].kept;
    if (from[i].kept > most) most = from[i].kept;
  }
  for (int i = 0; i < count; i++) {
    int *at = &best[(from[i].kept - least) * STEPS / (most - least + 1)];
    if (*at < 0 || is_better(&from[i], &from[*at])) *at = i;
  }
  for (int i = 0; i < STEPS; i++)
    if (best[i] >= 0) taken[best[i]] = true;
}

/* Removes choices if another one is better in every respect. */
static brim_choices choose(const brim_chain *b, const brim_choice *from, int count)
{
  bool taken[CANDIDATES_MAX] = {false};
  brim_choices out = {.item = BRIM_ARENA_NEW(b->arena, brim_choice, CHOICES_MAX)};
  if (count > 0) mark_priced(b, from, count, taken);
  mark_stepped(from, count, taken);
  for (int i = 0; i < count; i++) {
    bool beaten = !taken[i];
    for (int k = 0; k < count && !beaten; k++)
      beaten = taken[k] && k != i && from[k].kept <= from[i].kept && needs(&from[k]) <= needs(&from[i]) &&
               from[k].early <= from[i].early && from[k].late <= from[i].late &&
               (from[k].work < from[i].work || (from[k].work == from[i].work && k < i));
    if (!beaten) out.item[out.count++] = from[i];
  }
  return out;
}

static int64_t larger(int64_t a, int64_t b)
{
  return a > b ? a : b;
}

/* The moments at which the dropped atoms of a block are recomputed: each before the first node that reads its results,
 * or before the recomputation of an atom that reads them. `to` of the block: the atom is not recomputed. */
typedef struct moments {
  uint32_t of[BRIM_ATOMS_MAX];
  uint32_t asks; /* the node before which results from before the block are needed */
} moments;

static void ask(moments *m, const brim_chain_block *k, uint32_t atom, uint32_t when)
{
  for (uint32_t a = 0; a < atom; a++)
    if (k->reads[atom] & 1u << a && when < m->of[a]) m->of[a] = when;
}

/* Bytes of the dropped atoms that do not exist at this moment, when `upto` atoms have been recomputed. */
static int64_t missing_bytes(const brim_chain_block *k, uint32_t atoms, const moments *m, uint32_t when, uint32_t upto)
{
  int64_t bytes = 0;
  for (uint32_t a = 0; a < k->atoms; a++)
    if (atoms & 1u << a && (m->of[a] > when || (m->of[a] == when && a >= upto))) bytes += k->waits_of[a];
  return bytes;
}

/* Finds the peaks of a block in which these atoms are dropped. */
static void find_peaks(const brim_chain *b, const brim_chain_block *k, const moments *m, brim_choice *c)
{
  for (uint32_t i = k->first; i <= k->end; i++) {
    int64_t bytes = b->during[i] - k->before;
    for (uint32_t a = 0; a < k->atoms; a++)
      if (c->atoms & 1u << a && k->used[a] < i) bytes -= k->waits_of[a];
    c->early = larger(c->early, bytes);
  }
  for (uint32_t i = k->from; i < k->to; i++) {
    int64_t *peak = i < m->asks ? &c->early : &c->late;
    *peak = larger(*peak, b->during[i] - k->before - missing_bytes(k, c->atoms, m, i, k->atoms));
  }
  for (uint32_t a = 0; a < k->atoms; a++) {
    const uint32_t when = m->of[a];
    if (!(c->atoms & 1u << a) || when == k->to) continue;
    int64_t *peak = when < m->asks ? &c->early : &c->late;
    *peak = larger(*peak, b->before[when] - k->before - missing_bytes(k, c->atoms, m, when, a + 1) + k->scratch_of[a]);
  }
}

/* Computes the effect of dropping these atoms of a block. */
static brim_choice weigh(const brim_chain *b, const brim_chain_block *k, uint32_t atoms)
{
  brim_choice c = {.kept = k->waits, .atoms = atoms, .before = -1};
  const uint32_t last = k->atoms - 1;
  moments m = {.asks = k->asks};
  /* asked: atoms that recomputed nodes read; way: atoms recomputed on the path to the end. */
  uint32_t asked = 0, way = 0;
  for (uint32_t a = 0; a < k->atoms; a++) m.of[a] = atoms & 1u << a ? k->wanted[a] : k->to;
  for (uint32_t a = k->atoms; a-- > 0;) {
    const uint32_t bit = 1u << a;
    const bool end = k->end_drops && a == last;
    if (!(atoms & bit)) {
      if (asked & bit) c.kept += k->others_of[a];
      continue;
    }
    c.kept -= k->waits_of[a];
    if (k->waits_of[a] == 0 && !end && !(asked & bit)) continue;
    asked |= k->reads[a];
    c.work += (int64_t)k->work_of[a];
    ask(&m, k, a, m.of[a]);
    if (k->outside & bit && m.of[a] < m.asks) m.asks = m.of[a];
    if (!end && !(way & bit)) continue;
    way |= k->reads[a];
    c.alive += k->waits_of[a];
  }
  c.alive += c.kept;
  if (k->end_drops && atoms & 1u << last) m.asks = 0; /* whatever the later blocks need */
  find_peaks(b, k, &m, &c);
  return c;
}

void brim_choices_find_inside(const brim_chain *b, brim_chain_block *k)
{
  brim_choice *all = BRIM_ARENA_NEW(b->arena, brim_choice, 1u << k->atoms);
  for (int drop_end = 0; drop_end <= k->end_drops; drop_end++) {
    const uint32_t end = k->end_drops ? 1u << (k->atoms - 1) : 0;
    int count = 0;
    for (uint32_t atoms = 0; atoms < 1u << k->atoms; atoms++)
      if (!(atoms & end) == !drop_end) all[count++] = weigh(b, k, atoms);
    k->inside[drop_end] = choose(b, all, count);
  }
}

/* The peak of segment x extended by a block's choice. Tensors dropped on the path to the block are recomputed when they
 * are needed. */
static int64_t peak_of(const brim_choice *x, const brim_choice *y)
{
  return larger(x->peak, larger(x->kept + y->early, x->alive + y->late));
}

/* Extends the segments `from` by the block k. */
static brim_choices append_block(const brim_chain *b, const brim_choices *from, const brim_chain_block *k,
                                 bool drop_end)
{
  brim_choice all[CANDIDATES_MAX];
  const brim_choices *with = &k->inside[drop_end];
  int count = 0;
  for (int i = 0; i < from->count; i++)
    for (int n = 0; n < with->count; n++) {
      const brim_choice *x = &from->item[i], *y = &with->item[n];
      all[count++] = (brim_choice){.kept = x->kept + y->kept,
                                   .alive = drop_end ? x->alive + y->alive : 0,
                                   .peak = peak_of(x, y),
                                   .work = x->work + y->work,
                                   .before = (int16_t)i,
                                   .last = (int16_t)n};
    }
  return choose(b, all, count);
}

static int64_t smaller(int64_t a, int64_t b)
{
  return a < b ? a : b;
}

static void list_needs(const brim_chain *b, brim_choices *c)
{
  c->need = BRIM_ARENA_NEW(b->arena, brim_choice_need, c->count);
  c->least = (brim_choice_need){INT64_MAX, INT64_MAX, INT64_MAX, -1};
  for (int i = 0; i < c->count; i++) {
    const brim_choice *x = &c->item[i];
    const brim_choice_need n = {x->peak > x->kept ? x->peak : x->kept, x->kept, x->work, (int16_t)i};
    int to = i;
    for (; to > 0 && c->need[to - 1].needs > n.needs; to--) c->need[to] = c->need[to - 1];
    c->need[to] = n;
    c->least = (brim_choice_need){smaller(c->least.needs, n.needs), smaller(c->least.kept, n.kept),
                                  smaller(c->least.work, n.work), -1};
  }
}

void brim_choices_find_segments(brim_chain *b, size_t first, const brim_chain_block *like, size_t alike)
{
  static brim_choice nothing = {.before = -1};
  brim_chain_block *k = &b->block[first];
  k->open[0] = (brim_choices){.item = &nothing, .count = 1};
  for (size_t n = 1; n <= BRIM_SEGMENT_MAX && first + n <= b->count && k->open[n - 1].count > 0; n++) {
    const brim_chain_block *last = &b->block[first + n - 1];
    k->open[n] = n <= alike ? like->open[n] : append_block(b, &k->open[n - 1], last, true);
    k->closed[n] = n <= alike ? like->closed[n] : append_block(b, &k->open[n - 1], last, false);
    if (n > alike) list_needs(b, &k->closed[n]);
  }
}

static bool same_atoms(const brim_chain_block *x, const brim_chain_block *y)
{
  bool same = x->atoms == y->atoms && x->end_drops == y->end_drops && x->outside == y->outside;
  for (uint32_t a = 0; same && a < x->atoms; a++)
    same = x->waits_of[a] == y->waits_of[a] && x->others_of[a] == y->others_of[a] && x->reads[a] == y->reads[a] &&
           x->work_of[a] == y->work_of[a] && x->scratch_of[a] == y->scratch_of[a] &&
           x->used[a] - x->first == y->used[a] - y->first && x->wanted[a] - x->from == y->wanted[a] - y->from;
  return same;
}

/* Whether the nodes of one block have as many bytes alive as those of the other. */
static bool same_bytes(const brim_chain *b, const brim_chain_block *x, const brim_chain_block *y)
{
  bool same = x->end - x->first == y->end - y->first && x->to - x->from == y->to - y->from;
  for (uint32_t i = 0; same && i <= x->end - x->first; i++)
    same = b->during[x->first + i] - x->before == b->during[y->first + i] - y->before;
  for (uint32_t i = 0; same && i < x->to - x->from; i++)
    same = b->during[x->from + i] - x->before == b->during[y->from + i] - y->before &&
           b->before[x->from + i] - x->before == b->before[y->from + i] - y->before;
  return same;
}

static bool is_like(const brim_chain *b, const brim_chain_block *x, const brim_chain_block *y)
{
  return x->waits == y->waits && x->asks - x->from == y->asks - y->from && same_atoms(x, y) && same_bytes(b, x, y);
}

size_t brim_choices_find_period(const brim_chain *b, size_t first, size_t *alike)
{
  size_t best = 0;
  *alike = 0;
  for (size_t period = 1; period <= PERIOD_MAX; period++) {
    size_t n = 0;
    while (n < BRIM_SEGMENT_MAX && first + period + n < b->count &&
           is_like(b, &b->block[first + n], &b->block[first + period + n]))
      n++;
    if (n <= *alike) continue;
    *alike = n;
    best = period;
  }
  return best;
}
