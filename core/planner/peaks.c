/* See peaks.h. */
#include "planner/peaks.h"

#include <stdlib.h>

#include "base/alloc.h"

#define REMEMBERED 512 /* micro-batches that may be chosen, by some budgets */

typedef struct peak {
  brim_choice choice;
  int device;
  uint64_t bytes;
} peak;

struct brim_peaks {
  peak item[REMEMBERED];
  size_t count, next; /* next: the one that is forgotten */
};

brim_peaks *brim_peaks_create(void)
{
  return brim_xcalloc(1, sizeof(brim_peaks));
}

void brim_peaks_free(brim_peaks *p)
{
  free(p);
}

bool brim_peaks_find(const brim_peaks *p, int device, const brim_choice *choice, uint64_t *bytes)
{
  for (size_t i = 0; p && i < p->count; i++) {
    if (p->item[i].device != device || !brim_choice_equal(&p->item[i].choice, choice)) continue;
    *bytes = p->item[i].bytes;
    return true;
  }
  return false;
}

void brim_peaks_keep(brim_peaks *p, int device, const brim_choice *choice, uint64_t bytes)
{
  if (!p) return;
  if (p->count < REMEMBERED) p->count++;
  p->item[p->next] = (peak){*choice, device, bytes};
  p->next = (p->next + 1) % REMEMBERED;
}

void brim_peaks_forget(brim_peaks *p)
{
  if (p) p->count = p->next = 0;
}
