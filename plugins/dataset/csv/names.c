#include "names.h"

#include <stdlib.h>
#include <string.h>

#include "brim/host.h"

#define DIGITS_MAX 18 /* maximum digits of a number that surely fits into 64 bits */

void csv_names_free(csv_names *n)
{
  for (int32_t i = 0; i < n->count; i++) free(n->item[i]);
  free(n->item);
  free(n->slot);
  *n = (csv_names){0};
}

/* 64-bit FNV-1a. */
static uint64_t hash_of(const char *name)
{
  uint64_t hash = 0xcbf29ce484222325u;
  for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
  return hash ^ hash >> 32;
}

/* Returns the slot of a name, or a free slot for it. */
static int32_t *slot_of(const csv_names *n, const char *name)
{
  size_t i = (size_t)hash_of(name) & (n->slots - 1);
  while (n->slot[i] != 0 && strcmp(n->item[n->slot[i] - 1], name) != 0) i = (i + 1) & (n->slots - 1);
  return &n->slot[i];
}

int32_t csv_names_find(const csv_names *n, const char *name)
{
  return n->slots ? *slot_of(n, name) - 1 : -1;
}

static void fill_slots(csv_names *n)
{
  memset(n->slot, 0, n->slots * sizeof *n->slot);
  for (int32_t i = 0; i < n->count; i++) *slot_of(n, n->item[i]) = i + 1;
}

/* Doubles the room for names. Each name has two slots. */
static brim_status grow(csv_names *n)
{
  const int32_t room = n->room ? 2 * n->room : 16;
  if (room > CSV_NAMES_MAX) return brim_fail(BRIM_ELOAD, "more than %d different names", CSV_NAMES_MAX / 2);
  char **item = brim_try_calloc((size_t)room, sizeof *item);
  int32_t *slot = brim_try_calloc(2 * (size_t)room, sizeof *slot);
  if (!item || !slot) {
    free(item);
    free(slot);
    return brim_fail(BRIM_ENOMEM_HOST, "no memory for %d names", room);
  }
  if (n->count) memcpy(item, n->item, (size_t)n->count * sizeof *item);
  free(n->item);
  free(n->slot);
  *n = (csv_names){item, n->count, room, slot, 2 * (size_t)room};
  fill_slots(n);
  return BRIM_OK;
}

brim_status csv_names_add(csv_names *n, const char *name, int32_t *out)
{
  *out = csv_names_find(n, name);
  if (*out >= 0) return BRIM_OK;
  if (n->count == n->room) BRIM_TRY(grow(n));
  const size_t bytes = strlen(name) + 1;
  char *copy = brim_try_calloc(bytes, 1);
  if (!copy) return brim_fail(BRIM_ENOMEM_HOST, "no memory for the name '%.100s'", name);
  memcpy(copy, name, bytes);
  *slot_of(n, name) = n->count + 1;
  *out = n->count;
  n->item[n->count++] = copy;
  return BRIM_OK;
}

static bool is_whole_number(const char *s)
{
  s += *s == '-';
  const size_t digits = strspn(s, "0123456789");
  return digits >= 1 && digits <= DIGITS_MAX && s[digits] == '\0';
}

static int compare_bytes(const void *a, const void *b)
{
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Compares as numbers. Equal numbers (1 and 01) are compared by their bytes. */
static int compare_numbers(const void *a, const void *b)
{
  const long long x = strtoll(*(char *const *)a, NULL, 10), y = strtoll(*(char *const *)b, NULL, 10);
  return x != y ? (x > y) - (x < y) : compare_bytes(a, b);
}

brim_status csv_names_sort(csv_names *n, int32_t *to)
{
  bool numbers = true;
  if (n->count == 0) return BRIM_OK;
  char **before = brim_try_calloc((size_t)n->count, sizeof *before);
  if (!before) return brim_fail(BRIM_ENOMEM_HOST, "no memory to sort %d names", n->count);
  for (int32_t i = 0; i < n->count; i++) {
    before[i] = n->item[i];
    numbers = numbers && is_whole_number(n->item[i]);
  }
  qsort(n->item, (size_t)n->count, sizeof *n->item, numbers ? compare_numbers : compare_bytes);
  fill_slots(n);
  for (int32_t i = 0; i < n->count; i++) to[i] = csv_names_find(n, before[i]);
  free(before);
  return BRIM_OK;
}
