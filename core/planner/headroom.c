#include "planner/headroom.h"

bool brim_taken_is_measured(const brim_backend_ops *ops)
{
  return BRIM_HAS(brim_backend_ops, ops, takes);
}

bool brim_headroom_grows(const brim_planner *p)
{
  return !p->model && brim_taken_is_measured(p->setup->backend_ops);
}

static uint64_t less(uint64_t bytes, uint64_t by)
{
  return bytes > by ? bytes - by : 0;
}

uint64_t brim_planner_headroom(const brim_planner *p, const brim_device_info *device)
{
  const uint64_t set = p->setup->settings->memory.headroom_mb;
  brim_device_takes takes = {0};
  const bool grows = !device->on_host && (p->model || brim_headroom_grows(p));
  const uint64_t growth = p->growth_bytes > BRIM_HEADROOM_LEAST_BYTES ? p->growth_bytes : BRIM_HEADROOM_LEAST_BYTES;
  const uint64_t bytes = set != UINT64_MAX ? set << 20 : grows ? growth : 0;
  const uint64_t lanes = p->lanes > 1 && grows ? (uint64_t)p->lanes * p->lane_taken_bytes : 0;
  if (brim_headroom_grows(p)) p->setup->backend_ops->takes(p->setup->backend, &takes);
  return less(bytes, takes.grown_bytes) + less(p->ranks_bytes, p->comm_bytes) + less(lanes, takes.lanes_bytes);
}
