/* The whole page: its head with all styles, and its sections. See page.h. */
#include "report/page.h"

#include <stdio.h>

#include "base/file.h"
#include "report/page_parts.h"
#include "report/plan_svg.h"
#include "store/rundir.h"

/* ---- style ---- */

static const char light[] =
    ":root{color-scheme:light dark;--ground:#fff;--card:#f5f6f8;--ink:#1b2025;--faint:#65707b;--line:#dde1e6;"
    "--good:#00734f;--bad:#b3261e;--warn:#8a5a00;--blue:#5aa5d6;--deep:#0b5a8f;--amber:#e69f00;--right:0,114,178;--"
    "wrong:213,94,0}";
static const char dark[] = ":root{--ground:#14171a;--card:#1e2328;--ink:#e4e8eb;--faint:#97a2ac;--line:#343b43;"
                           "--good:#2cc79c;--bad:#ff8a80;--warn:#f0b93a;--blue:#3f86bd;--deep:#a9d6f5;--amber:#f0b93a;-"
                           "-right:36,124,184;--wrong:235,120,50}";
static const char rules[] =
    "*{box-sizing:border-box}"
    "html{scroll-padding-top:3.2rem}"
    "body{margin:0 auto;max-width:78rem;padding:1.5rem;background:var(--ground);color:var(--ink);"
    "font:15px/1.5 system-ui,'Segoe UI','DejaVu Sans',sans-serif;print-color-adjust:exact;"
    "-webkit-print-color-adjust:exact}"
    "h1{margin:0;font-size:1.7rem;overflow-wrap:anywhere}h2{margin:0 0 .6rem;font-size:1.25rem}"
    "h3{margin:1.4rem 0 .4rem;font-size:1rem}section{margin:2.4rem 0 0}p{max-width:60rem}"
    ".what{margin:.2rem 0 1rem;color:var(--faint)}.age{margin:.3rem 0 1rem;color:var(--faint);font-size:.85rem}"
    ".status{vertical-align:middle;padding:.1rem .55rem;border:1px solid currentColor;border-radius:1rem;"
    "font-size:.8rem;font-weight:500;color:var(--good);white-space:nowrap}.failed{color:var(--bad)}"
    ".going::before{content:'';display:inline-block;width:.55em;height:.55em;margin-right:.4em;border-radius:50%;"
    "background:currentColor}"
    ".notice{padding:.6rem .9rem;border-left:.25rem solid currentColor;border-radius:.2rem;background:var(--card)}"
    ".bad{color:var(--bad)}.when-stale{display:none}.stale .when-stale{display:block}.stale "
    ".going{color:var(--bad)}.stale .follows{display:none}"
    "code{font:.9em ui-monospace,'DejaVu Sans Mono',monospace;overflow-wrap:anywhere}"
    "pre{margin:.5rem 0;padding:.8rem;overflow-x:auto;border-radius:.4rem;background:var(--card);"
    "font:13px/1.45 ui-monospace,'DejaVu Sans Mono',monospace}.error{color:var(--bad);white-space:pre-wrap}"
    "nav{position:sticky;top:0;z-index:2;display:flex;gap:1.3rem;margin:1.4rem -1.5rem 0;padding:.55rem 1.5rem;"
    "overflow-x:auto;border-bottom:1px solid var(--line);background:var(--ground);font-size:.9rem;white-space:nowrap}"
    "nav a{color:var(--faint);text-decoration:none}nav a:hover,nav a:focus{color:var(--ink);text-decoration:underline}"
    ".progress{height:.5rem;margin:.2rem 0 1rem;border-radius:.25rem;overflow:hidden;background:var(--line)}"
    ".progress i{display:block;height:100%;background:var(--good)}"
    ".cards{display:flex;flex-wrap:wrap;gap:.7rem}.card{min-width:8.7rem;padding:.7rem "
    ".9rem;border-radius:.5rem;background:var(--card)}"
    ".card b{display:block;font-size:1.25rem;font-variant-numeric:tabular-nums;white-space:nowrap}"
    ".card span{color:var(--faint);font-size:.85rem}"
    ".charts{display:flex;flex-wrap:wrap;gap:1rem}"
    ".chart{flex:1 1 20rem;min-width:0;max-width:24.6rem;height:auto;font-size:12px}"
    ".chart text,.map text,.time text{fill:var(--ink)}.grid{stroke:var(--line)}.axis{stroke:var(--faint);fill:none}"
    ".legend{display:flex;flex-wrap:wrap;gap:.2rem 1.4rem;margin:.4rem 0 .8rem}"
    ".sample{width:28px;height:8px;margin-right:.45rem;vertical-align:middle}"
    ".swatch{display:inline-block;width:.8em;height:.8em;margin-right:.45rem;border-radius:.15em;"
    "background:currentColor}"
    ".bar{display:block;width:100%;height:1.5rem;border-radius:.3rem}.bar rect{fill:currentColor}"
    ".wide{overflow-x:auto}.tall{max-height:34rem;overflow-y:auto}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "th,td{padding:.25rem .7rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:bottom}"
    "th:first-child,td:first-child{padding-left:0}"
    "th{font-weight:600}thead "
    "th{position:sticky;top:0;background:var(--ground)}.number{text-align:right}td.number{white-space:nowrap}"
    ".confusion th,.confusion td{padding:.15rem .3rem;border:1px solid var(--line);text-align:center;"
    "font-size:.85rem}.confusion th{border:0;font-weight:400}.confusion "
    "th[scope=row]{text-align:right;white-space:nowrap}"
    ".confusion th[scope=col] span{writing-mode:vertical-rl;transform:rotate(180deg)}"
    ".confusion td{min-width:2.3rem}.confusion tr:first-child td{border:0}"
    ".ground{fill:var(--card)}"
    "details{margin:.5rem 0}summary{cursor:pointer;font-weight:600}";

/* Styles of the sections "What happened", "Environment" and "Time by operation". */
static const char parts[] =
    ".time{display:block;width:100%;min-width:44rem;font-size:13px}.t-small{font-size:11px}"
    ".time .t-small{fill:var(--faint)}.time .t-good{fill:var(--good)}.time .t-warn{fill:var(--warn)}"
    ".time .t-bad{fill:var(--bad)}.t-work{fill:var(--blue);color:var(--blue)}"
    ".t-wait{fill:var(--amber);color:var(--amber)}.t-redo{fill:var(--bad);color:var(--bad)}"
    ".t-gap{stroke:var(--faint);stroke-dasharray:3 4}.t-steps{fill:none;stroke:var(--blue);stroke-width:1.6}"
    ".t-saved{stroke:var(--blue);stroke-width:6;stroke-linecap:round}.t-dot{color:var(--blue);border-radius:50%}"
    ".events td{vertical-align:top}.event{font-weight:600;white-space:nowrap}.event.good{color:var(--good)}"
    ".event.warn{color:var(--warn)}.event.bad{color:var(--bad)}.when{white-space:nowrap;color:var(--faint)}"
    ".pairs td{overflow-wrap:anywhere}.pairs th{white-space:nowrap;vertical-align:top}"
    ".meter{width:16rem;min-width:8rem}.meter svg{display:block;width:100%;height:.9rem}"
    ".o-all{fill:var(--blue);color:var(--blue)}.o-least{fill:var(--deep);color:var(--deep)}"
    ".o-plan{fill:var(--amber);color:var(--amber)}";

/* On a narrow screen an event is a paragraph, because a row of a table would be too wide. */
static const char narrow[] =
    "@media (max-width:40rem){body{padding:1rem}nav{margin:1rem -1rem 0;padding:.55rem 1rem}.card{flex:1 1 8.7rem}"
    ".events,.events tbody,.events tr{display:block}.events thead{display:none}"
    ".events tr{padding:.5rem 0;border-bottom:1px solid var(--line)}"
    ".events td{display:inline-block;padding:0 .7rem 0 0;border:0}.events td.number:not(:empty)::before{content:'step "
    "'}"
    ".events td:last-child{display:block}"
    ".pairs th,.pairs td{display:block;border:0;padding:0}.pairs td{padding-bottom:.5rem}}";

/* Paper cannot scroll, so wide elements must wrap or shrink. */
static const char paper[] =
    "@media print{@page{margin:14mm}body{max-width:none;padding:0;font-size:10px}nav,.age,.progress{display:none}"
    ".tall{max-height:none}.tall,.wide{overflow:visible}section{margin-top:1.4rem}"
    "h1{font-size:17px}h2{font-size:14px;break-after:avoid}h3{font-size:11px;break-after:avoid}"
    ".card{min-width:0;padding:.35rem .6rem}.card b{font-size:13px}"
    "th,td{padding:.1rem .45rem}thead th{position:static}td,th{overflow-wrap:break-word}.card span{font-size:.85em}"
    ".confusion td{min-width:0}.confusion th,.confusion td{padding:.05rem .15rem;font-size:.75em}"
    "pre{font-size:8px;white-space:pre-wrap;overflow-wrap:anywhere}.charts{display:grid;grid-template-columns:1fr 1fr}"
    ".chart{max-width:100%}svg{max-width:100%;height:auto}.bar{height:1.5rem}.sample{height:8px}"
    ".chart,.card,tr,.time{break-inside:avoid}}";

/* Adds the shades; a shade's number is ten times the fraction. */
static void add_shades(brim_text *out)
{
  for (int i = 1; i <= BRIM_PAGE_SHADES; i++) {
    const double strength = 0.08 + 0.092 * i;
    brim_text_printf(out,
                     "td.right%d{background:rgba(var(--right),%.3f)}td.wrong%d{background:rgba(var(--wrong),%.3f)}"
                     "path.right%d{fill:rgba(var(--right),%.3f)}path.wrong%d{fill:rgba(var(--wrong),%.3f)}",
                     i, strength, i, strength, i, strength, i, strength);
    if (i > BRIM_PAGE_SHADES / 2) brim_text_printf(out, "td.right%d{color:#fff}", i);
  }
}

/* ---- the page ---- */

static void begin(brim_text *out, const char *title)
{
  brim_text_add(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
                     "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>");
  brim_svg_escape(out, title);
  brim_text_add(out, "</title>\n");
  brim_text_add(out, "<style>");
  brim_text_add(out, light);
  brim_text_add(out, rules);
  brim_text_add(out, parts);
  brim_text_add(out, brim_page_samples_style);
  brim_text_add(out, brim_page_histograms_style);
  add_shades(out);
  brim_svg_style(out, false);
  brim_plan_svg_style(out, false);
  brim_text_add(out, "@media screen and (prefers-color-scheme:dark){");
  brim_text_add(out, dark);
  brim_svg_style(out, true);
  brim_plan_svg_style(out, true);
  brim_text_add(out, "}");
  brim_text_add(out, narrow);
  brim_text_add(out, paper);
  brim_text_add(out, "</style>\n");
}

static void begin_body(const brim_page_run *page, brim_text *out)
{
  brim_text_add(out, "</head>\n<body");
  if (page && brim_page_refreshes(page))
    brim_text_printf(out, " data-every=\"%.3f\" data-written=\"%.3f\"", page->live->every_seconds, page->live->written);
  brim_text_add(out, ">\n");
}

/* The sections of a run's page, in their order. A section without data adds nothing. */
static void (*const sections[])(const brim_page_run *page, brim_text *out) = {
    brim_page_results,         brim_page_curves,  brim_page_timeline,    brim_page_reached,    brim_page_epochs,
    brim_page_clients_section, brim_page_classes, brim_page_samples,     brim_page_histograms, brim_page_plan,
    brim_page_operations,      brim_page_ranks,   brim_page_environment, brim_page_inputs};

static void print_one(brim_comparison *c, const brim_page_live *live, brim_text *out)
{
  brim_page_run page;
  brim_text body = {0};
  brim_page_read(c, &c->run[0], live, &page);
  for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++) sections[i](&page, &body);
  begin(out, c->run[0].name);
  brim_page_head(&page, out);
  begin_body(&page, out);
  brim_page_headline(&page, out);
  brim_page_jumps(&body, out);
  brim_text_add(out, brim_text_str(&body));
  brim_page_script(&page, out);
  brim_text_release(&body);
  brim_page_release(&page);
}

static void print_several(brim_comparison *c, brim_text *out)
{
  const brim_table figures = brim_compare_figures(c), keys = brim_compare_keys(c), seeds = brim_compare_seeds(c);
  char title[64];
  snprintf(title, sizeof title, "%zu runs", c->count);
  begin(out, title);
  begin_body(NULL, out);
  brim_text_printf(out, "<header>\n<h1>%s</h1>\n</header>\n", title);
  brim_page_begin(out, "Figures");
  brim_page_table(out, &figures);
  brim_page_end(out);
  if (!brim_page_methods(c, out) && seeds.count > 0) {
    brim_page_begin(out, "Over seeds");
    brim_text_add(out, "<p>Means, and standard deviations where there are several seeds.</p>\n");
    brim_page_table(out, &seeds);
    brim_page_end(out);
  }
  brim_page_reached_of_all(c, out);
  brim_page_curves_of_all(c, out);
  if (keys.count > 0) {
    brim_page_begin(out, "Keys that differ");
    brim_page_table(out, &keys);
    brim_page_end(out);
  }
}

void brim_page_print(brim_comparison *c, const brim_page_live *live, brim_text *out)
{
  if (c->count == 1)
    print_one(c, live, out);
  else
    print_several(c, out);
  brim_text_add(out, "</body>\n</html>\n");
}

brim_status brim_page_write(const char *dir)
{
  char path[BRIM_PATH_MAX];
  brim_comparison c = {0};
  brim_text text = {0};
  brim_status status = brim_path_join(path, dir, BRIM_REPORT_NAME);
  if (status == BRIM_OK) status = brim_compare_add(&c, dir);
  if (status == BRIM_OK) {
    brim_compare_finish(&c);
    brim_page_print(&c, NULL, &text);
    status = brim_file_write_atomic(path, brim_text_str(&text), text.length);
  }
  brim_text_release(&text);
  brim_compare_release(&c);
  return status;
}
