/* See strict.h. */
#include "planner/strict.h"

#include "base/error.h"
#include "graph/plan_json.h"

void brim_strict_print_precision(const brim_setup *s, const brim_device_info *device, brim_text *out)
{
  const int32_t precision = brim_setup_precision(s);
  const char *name = brim_precision_names[precision];
  if (brim_setup_multiplies(s, device, precision)) return;
  brim_text_printf(out,
                   "precision=%s: activations are kept in %s and computed in fp32, as this device has no instructions "
                   "that multiply %s: this saves memory, but a step takes the time of fp32 or more",
                   name, name, name);
}

static brim_status refuse(brim_text *text)
{
  brim_text_add(text, "\nbackend.strict=false only prints this");
  (void)brim_fail(BRIM_ECONFIG, "%s", brim_text_str(text));
  brim_text_release(text);
  return BRIM_ECONFIG;
}

brim_status brim_strict_check_precision(const brim_setup *s, const brim_device_info *device)
{
  brim_text text = {0}, slower = {0};
  if (!s->settings->backend.strict) return BRIM_OK;
  brim_strict_print_precision(s, device, &slower);
  if (slower.length == 0) return BRIM_OK;
  brim_text_printf(&text, "backend.strict=true refuses precision=%s on %s\n%s\nset precision=fp32 or precision=auto",
                   brim_precision_names[brim_setup_precision(s)], device->name, slower.s);
  brim_text_release(&slower);
  return refuse(&text);
}

brim_status brim_strict_check_plan(const brim_setup *s, const brim_plan *plan)
{
  brim_text text = {0}, slower = {0};
  if (!s->settings->backend.strict) return BRIM_OK;
  brim_plan_print_refused(plan, &slower);
  if (slower.length == 0) return BRIM_OK;
  brim_text_printf(&text, "backend.strict=true refuses operations that are slower than they could be\n%s", slower.s);
  brim_text_release(&slower);
  return refuse(&text);
}
