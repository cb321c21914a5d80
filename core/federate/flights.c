/* See flights.h. */
#include "federate/flights.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static size_t bytes_of(int64_t places)
{
  return sizeof(brim_flights) + (size_t)places * sizeof(brim_flight);
}

brim_status brim_flights_open(const brim_setup *setup, brim_flight_queue *out)
{
  const int64_t places = setup->settings->federate.concurrency;
  *out = (brim_flight_queue){.now = brim_try_calloc(bytes_of(places), 1),
                             .next = brim_try_calloc(bytes_of(places), 1),
                             .places = places,
                             .is_flying = brim_try_calloc((size_t)setup->partition.clients, 1),
                             .clients = setup->partition.clients};
  if (out->now && out->next && out->is_flying) return BRIM_OK;
  brim_flights_close(out);
  return brim_fail(BRIM_ENOMEM_HOST, "no host memory for %lld clients in flight", (long long)places);
}

void brim_flights_close(brim_flight_queue *q)
{
  free(q->now);
  free(q->next);
  free(q->is_flying);
  *q = (brim_flight_queue){0};
}

void brim_flights_begin(brim_flight_queue *q)
{
  memcpy(q->next, q->now, bytes_of(q->places));
  memset(q->is_flying, 0, (size_t)q->clients);
  for (int64_t i = 0; i < (int64_t)q->next->count; i++) q->is_flying[(int64_t)q->next->flight[i].client] = 1;
}

void brim_flights_commit(brim_flight_queue *q)
{
  brim_flights *const before = q->now;
  q->now = q->next;
  q->next = before;
}

void brim_flights_add(brim_flight_queue *q, const brim_flight *flight)
{
  q->next->flight[(int64_t)q->next->count++] = *flight;
  q->is_flying[(int64_t)flight->client] = 1;
}

static int64_t find_first(const brim_flights *all)
{
  int64_t first = -1;
  for (int64_t i = 0; i < (int64_t)all->count; i++) {
    const brim_flight *a = &all->flight[i], *b = &all->flight[first < 0 ? i : first];
    if (first < 0 || a->end < b->end || (a->end <= b->end && a->client < b->client)) first = i;
  }
  return first;
}

const brim_flight *brim_flights_first(const brim_flight_queue *q)
{
  const int64_t first = find_first(q->next);
  return first < 0 ? NULL : &q->next->flight[first];
}

/* Zeroes unused places, so that checkpoints do not depend on earlier rounds. */
brim_flight brim_flights_take(brim_flight_queue *q)
{
  brim_flight *const all = q->next->flight, *const at = &all[find_first(q->next)],
                     *const last = &all[(int64_t)--q->next->count];
  const brim_flight taken = *at;
  *at = *last;
  *last = (brim_flight){0};
  q->is_flying[(int64_t)taken.client] = 0;
  return taken;
}

int64_t brim_flights_leave_out(const brim_flight_queue *q, int64_t *client, int64_t count)
{
  int64_t left = 0;
  for (int64_t i = 0; i < count; i++)
    if (!q->is_flying[client[i]]) client[left++] = client[i];
  return left;
}

void brim_flights_tensor(const brim_flight_queue *q, brim_safetensor *out)
{
  *out = (brim_safetensor){.name = "clients.flights",
                           .dtype = BRIM_DTYPE_F64,
                           .shape = {1, {(int64_t)(bytes_of(q->places) / sizeof(double))}},
                           .data = q->now};
}
