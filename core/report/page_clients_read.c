/* Reads the clients of a federation from its folder: partition.csv has the client of each sample, participants.jsonl
 * the clients of each round. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/page_parts.h"

#define CLIENTS_MAX 10000000 /* maximum that a page counts */

static int64_t count_clients(const brim_page_run *page)
{
  const long long count = strtoll(brim_yaml_get_path(page->run->config, "total_clients")->scalar, NULL, 10);
  return count <= CLIENTS_MAX ? count : 0;
}

/* Returns the client's place in the picture; -1: not drawn. */
static int64_t place_of(const brim_page_clients *c, int64_t client)
{
  const int64_t place = (client * c->shown + c->count - 1) / c->count;
  return place < c->shown && place * c->count / c->shown == client ? place : -1;
}

/* ---- partition.csv ---- */

/* Reads the number at *s and advances; false if it is not in 0 to `most`. */
static bool read_number(const char **s, int64_t most, int64_t *out)
{
  char *end;
  errno = 0;
  const long long value = strtoll(*s, &end, 10);
  if (end == *s || errno || value < 0 || value > most) return false;
  *s = *end == ',' ? end + 1 : end;
  *out = value;
  return true;
}

/* Sets a bit of a client; false if out of memory. */
static bool mark_class(brim_page_clients *c, brim_arena *arena, int64_t client, int64_t class)
{
  uint64_t **has = &c->has[class / 64];
  if (!*has) {
    *has = brim_arena_try(arena, (size_t)c->count * sizeof **has);
    if (!*has) return false;
    memset(*has, 0, (size_t)c->count * sizeof **has);
  }
  (*has)[client] |= UINT64_C(1) << (class % 64);
  return true;
}

static void add_sample(brim_page_clients *c, brim_arena *arena, const char *line)
{
  int64_t client, sample, class;
  if (!read_number(&line, c->count - 1, &client) || !read_number(&line, INT64_MAX, &sample)) return;
  c->samples[client]++;
  if (!c->of_class || !read_number(&line, INT32_MAX, &class)) return;
  if (class >= c->classes) c->classes = class + 1;
  if (class >= BRIM_PAGE_CLASSES_MAX || !mark_class(c, arena, client, class)) c->coverage = NAN;
  const int64_t place = place_of(c, client);
  if (place >= 0 && class < BRIM_PAGE_CLASSES_MAX) c->of_class[place * BRIM_PAGE_CLASSES_MAX + class]++;
}

static void read_partition(brim_page_run *page, brim_page_clients *c)
{
  char *line = NULL;
  size_t room = 0;
  FILE *file = brim_page_open(page, "partition.csv");
  if (!file) return;
  c->samples = brim_arena_try(&page->all->arena, (size_t)c->count * sizeof *c->samples);
  if (c->samples) memset(c->samples, 0, (size_t)c->count * sizeof *c->samples);
  if (c->samples && getline(&line, &room, file) >= 0 && strstr(line, ",class"))
    c->of_class = BRIM_ARENA_NEW(&page->all->arena, double, (size_t)c->shown *BRIM_PAGE_CLASSES_MAX);
  while (c->samples && getline(&line, &room, file) >= 0) add_sample(c, &page->all->arena, line);
  free(line);
  fclose(file);
}

/* ---- participants.jsonl ---- */

static double count_bits(const uint64_t *word)
{
  double bits = 0;
  for (size_t i = 0; i < BRIM_PAGE_CLASS_WORDS; i++) bits += __builtin_popcountll(word[i]);
  return bits;
}

static void add_classes(const brim_page_clients *c, int64_t client, uint64_t *word)
{
  for (size_t i = 0; i < BRIM_PAGE_CLASS_WORDS; i++)
    if (c->has[i]) word[i] |= c->has[i][client];
}

/* Returns the value of `name` in a line, after the colon and blanks, or NULL. brim wrote the lines
 * (train/participants.h). They are read in place, because building a tree for a million clients would take longer than
 * their rounds. */
static const char *value_of(const char *line, const char *name)
{
  const char *at = strstr(line, name);
  if (!at) return NULL;
  at += strlen(name);
  return at + strspn(at, ": ");
}

/* Returns the next item of a list, or NULL; `at` is at first the list's bracket. */
static const char *next_item(const char *at)
{
  if (!at || *at == '\0' || *at == ']') return NULL;
  at += strspn(at, "[, ");
  return *at == '\0' || *at == ']' ? NULL : at;
}

/* Adds a round. Returns the number of different classes of all clients that trained in it. */
static double add_round(brim_page_clients *c, const char *line)
{
  const char *arrived = next_item(value_of(line, "\"arrived\""));
  uint64_t classes[BRIM_PAGE_CLASS_WORDS] = {0};
  for (const char *at = next_item(value_of(line, "\"client\"")); at; at = next_item(at)) {
    const bool has_arrived = arrived && *arrived == 't';
    char *end;
    const int64_t client = strtoll(at, &end, 10);
    if (end == at) break;
    at = end;
    if (arrived) arrived = next_item(arrived + strcspn(arrived, ",]"));
    if (client < 0 || client >= c->count) continue;
    if (!has_arrived) {
      c->left_out++;
      continue;
    }
    c->rounds[client]++;
    add_classes(c, client, classes);
  }
  return count_bits(classes);
}

/* Returns the number of different classes of all clients. */
static double count_classes(const brim_page_clients *c)
{
  uint64_t classes[BRIM_PAGE_CLASS_WORDS] = {0};
  for (int64_t i = 0; i < c->count; i++) add_classes(c, i, classes);
  return count_bits(classes);
}

/* A round that was repeated after a resume has the same clients, and counts once. */
static void read_participants(brim_page_run *page, brim_page_clients *c)
{
  char *line = NULL;
  size_t room = 0;
  double last = -1, rounds = 0, classes = 0;
  FILE *file = brim_page_open(page, "participants.jsonl");
  if (!file) return;
  c->rounds = brim_arena_try(&page->all->arena, (size_t)c->count * sizeof *c->rounds);
  if (c->rounds) memset(c->rounds, 0, (size_t)c->count * sizeof *c->rounds);
  for (ssize_t length; c->rounds && (length = getline(&line, &room, file)) >= 0;) {
    const char *round = line[length - (length > 0)] == '\n' ? value_of(line, "\"round\"")
                                                            : NULL; /* a line without a newline is truncated */
    const double number = round ? strtod(round, NULL) : NAN;
    if (!(number > last)) continue;
    classes += add_round(c, line);
    rounds++;
    last = number;
  }
  c->coverage += classes / (rounds * count_classes(c)); /* NAN if there are no rounds or no classes */
  free(line);
  fclose(file);
}

brim_page_clients *brim_page_read_clients(brim_page_run *page)
{
  if (!brim_compare_is_federated(page->run)) return NULL;
  const int64_t count = count_clients(page);
  brim_page_clients *c = BRIM_ARENA_NEW(&page->all->arena, brim_page_clients, 1);
  *c = (brim_page_clients){.count = count, .shown = count < BRIM_PAGE_CLIENTS_MAX ? count : BRIM_PAGE_CLIENTS_MAX};
  if (count > 0) read_partition(page, c);
  if (count > 0) read_participants(page, c);
  if (!c->rounds) c->coverage = NAN;
  return c;
}
