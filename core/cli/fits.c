#include "cli/fits.h"

#include <stdio.h>
#include <string.h>

brim_status brim_cli_find_fits(const brim_cli *cli, brim_drive *d, bool others, brim_fits *out)
{
  brim_cli_hush(cli, true);
  const brim_status status = brim_fits_add(out, d);
  if (status == BRIM_OK && others) brim_fits_add_others(out, d);
  brim_cli_hush(cli, false);
  return status;
}

/* "64 x 2      44.6 MiB", or dashes. */
static void add_fit(const brim_fit *fit, brim_text *out)
{
  char bytes[32], cut[48];
  snprintf(cut, sizeof cut, "%lld x %lld", (long long)fit->micro_batch, (long long)fit->accumulation);
  brim_format_bytes(bytes, sizeof bytes, fit->peak_bytes);
  const bool fits = fit->micro_batch > 0;
  brim_text_printf(out, "  %12s  %10s", fits ? cut : "-", fits ? bytes : "-");
}

void brim_cli_print_fits(const brim_fits *fits, brim_text *out)
{
  char a[32], b[32];
  int width = (int)strlen("device");
  for (size_t i = 0; i < fits->count; i++)
    if ((int)strlen(fits->device[i].name) > width) width = (int)strlen(fits->device[i].name);
  brim_text_printf(out, "  %-*s  %10s  %10s  %12s  %10s  %12s  %10s\n", width, "device", "free", "total", "fits now",
                   "peak", "if empty", "peak");
  for (size_t i = 0; i < fits->count; i++) {
    const brim_device_fit *d = &fits->device[i];
    brim_text_printf(out, "%c %-*s  %10s  %10s", d->chosen ? '*' : ' ', width, d->name,
                     brim_format_bytes(a, sizeof a, d->info.free_bytes),
                     brim_format_bytes(b, sizeof b, d->info.total_bytes));
    add_fit(&d->now, out);
    add_fit(&d->empty, out);
    brim_text_add(out, "\n");
  }
}

/* null: none fits. */
static json_t *fit_json(const brim_fit *fit)
{
  if (fit->micro_batch == 0) return json_null();
  return json_pack("{s:I, s:I, s:I}", "batch_size", (json_int_t)fit->micro_batch, "gradient_accumulation_steps",
                   (json_int_t)fit->accumulation, "peak_bytes", (json_int_t)fit->peak_bytes);
}

json_t *brim_cli_fits_json(const brim_fits *fits)
{
  json_t *rows = json_array();
  for (size_t i = 0; i < fits->count; i++) {
    const brim_device_fit *d = &fits->device[i];
    json_array_append_new(rows,
                          json_pack("{s:s, s:s, s:s, s:I, s:I, s:b, s:o, s:o}", "device", d->name, "backend",
                                    d->backend, "name", d->info.name, "free_bytes", (json_int_t)d->info.free_bytes,
                                    "total_bytes", (json_int_t)d->info.total_bytes, "chosen", d->chosen, "fits_now",
                                    fit_json(&d->now), "fits_empty", fit_json(&d->empty)));
  }
  return rows;
}
