/* See hub.h. A process has one hub, so the hub has no instance. */
#include "dist/hub.h"

#include <stdlib.h>

#include "dist/line.h"
#include "dist/started.h"

bool brim_hub_is_there(void)
{
  const char *number = getenv(BRIM_LINE_FD);
  return number && number[0];
}

static brim_status join(void *self, brim_world *out)
{
  (void)self;
  BRIM_TRY(brim_line_open());
  const int32_t rank = brim_dist_started_rank(), ranks = brim_dist_started();
  *out = (brim_world){rank, ranks, rank, ranks}; /* all on this host */
  return BRIM_OK;
}

/* If a rank is late, the launcher reports that, once for all ranks. */
static brim_status exchange(void *self, const void *own, uint32_t bytes, void *all, double seconds, int32_t *late)
{
  (void)self;
  *late = -1;
  return brim_line_exchange(own, bytes, all, brim_dist_started(), seconds);
}

/* The line sends its own BYE when the process ends. */
static void leave(void *self)
{
  (void)self;
}

static void end_all(void *self, int32_t exit_status)
{
  (void)self;
  brim_line_end(exit_status);
}

static const brim_comm_ops ops = {
    .size = sizeof ops, .join = join, .exchange = exchange, .leave = leave, .end_all = end_all};
const brim_plugin brim_comm_hub = {.size = sizeof(brim_plugin),
                                   .kind = BRIM_COMM,
                                   .id = "hub",
                                   .help = "messages of ranks that brim has started without MPI",
                                   .ops = &ops};
