/* Makes a page follow its run: the text about its age, and the script that refreshes it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/page_parts.h"
#include "store/rundir.h"

/* Reloads the page when its next version is due. The reader's place is kept as the section at the top of the window,
 * because earlier sections may have grown; open details and scrolled tables stay as they were. If the page's stamp has
 * not changed for three intervals, the page reports that it is stale, and stops. The first check uses this computer's
 * clock, later ones only time differences. The script contains no '<' and '&', so that the page is well-formed XML. */
static const char script[] =
    "(function(){"
    "var d=document,b=d.body,every=1000*b.dataset.every,stamp=1000*b.dataset.written,old=history.state,now=Date.now(),"
    "s=old;"
    "if(!s||s.stamp!==stamp)s={stamp:stamp,since:s?now:Math.min(now,stamp),looks:0};"
    "s.looks++;"
    "history.scrollRestoration='manual';"
    "function all(q){return Array.prototype.slice.call(d.querySelectorAll(q))}"
    "function top(e){return e.getBoundingClientRect().top}"
    "function name(e){return e.querySelector('summary').textContent}"
    "function back(){"
    "all('details').forEach(function(e){e.open=old.open.indexOf(name(e))>=0});"
    "all('.tall,.wide,nav').forEach(function(e,i){if(old.at[i]){e.scrollTop=old.at[i][0];e.scrollLeft=old.at[i][1]}});"
    "var e=old.id?d.getElementById(old.id):null;"
    "scrollTo(old.x,e?scrollY+top(e)-old.off:old.y)}"
    "if(old){back();addEventListener('load',back)}"
    "function keep(){"
    "var id='',off=0;"
    "all('section').forEach(function(e){if(80>top(e)){id=e.id;off=top(e)}});"
    "s.id=id;s.off=off;s.x=scrollX;s.y=scrollY;"
    "s.open=all('details').filter(function(e){return e.open}).map(name);"
    "s.at=all('.tall,.wide,nav').map(function(e){return e.scrollTop||e.scrollLeft?[e.scrollTop,e.scrollLeft]:0});"
    "history.replaceState(s,'')}"
    "addEventListener('pagehide',keep);"
    "var stale=now-s.since>Math.max(3*every,20000);"
    "if(stale){b.className='stale';d.querySelector('.status').textContent='stale'}"
    "if(stale){if(s.looks>1)return}"
    "function again(){"
    "if(d.hidden||String(getSelection()))return setTimeout(again,1000);"
    "keep();location.reload()}"
    "var due=stamp+every+1000-now;"
    "setTimeout(again,due>500?Math.min(due,every+1000):every)"
    "})()";

/* The hash of the script above, for the page's content security policy; a test compares it. */
#define SCRIPT_HASH "sha256-95ZlGPxJ2Wb6dsfLrjTnJgMyran9OdgMeVdThWOEBvc="

bool brim_page_refreshes(const brim_page_run *page)
{
  return page->live && page->live->every_seconds > 0 && page->state == BRIM_PAGE_RUNNING;
}

/* Whether the newest event says that a process waits for its device. */
static bool is_waiting(const brim_page_run *page)
{
  const json_t *last = json_array_get(page->events, json_array_size(page->events) - 1);
  return strcmp(brim_json_string(last, "event"), "waiting") == 0;
}

const char *brim_page_status(const brim_page_run *page)
{
  if (page->state == BRIM_PAGE_LOST) return "stopped";
  if (page->state == BRIM_PAGE_RUNNING) return is_waiting(page) ? "waiting" : "running";
  return page->run->summary.status;
}

void brim_page_head(const brim_page_run *page, brim_text *out)
{
  brim_text_printf(out,
                   "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
                   "'unsafe-inline'; img-src data:%s\"/>\n",
                   brim_page_refreshes(page) ? "; script-src '" SCRIPT_HASH "'" : "");
  if (brim_page_refreshes(page))
    brim_text_printf(out, "<noscript><meta http-equiv=\"refresh\" content=\"%.0f\"/></noscript>\n",
                     ceil(page->live->every_seconds));
}

void brim_page_age(const brim_page_run *page, brim_text *out)
{
  char time[32], every[32];
  if (page->state == BRIM_PAGE_LOST) {
    brim_text_add(out,
                  "<p class=\"notice bad\">The run stopped without recording its end: its process was killed or "
                  "crashed, or the machine stopped. It continues from its last checkpoint, to the same bits, with ");
    brim_text_printf(out, "<code>%s ", brim_run_resume_words(page->run->dir));
    brim_svg_escape(out, BRIM_QUOTED(page->run->dir));
    brim_text_add(out, "</code>");
    brim_text_add(out, "</p>\n");
  }
  if (page->state != BRIM_PAGE_RUNNING || !page->live) return;
  brim_page_format_time(time, sizeof time, page->live->written);
  brim_text_printf(out, "<p class=\"age follows\">Made at %s UTC, while the run was going on", time);
  if (brim_page_refreshes(page))
    brim_text_printf(out, "; brim rewrites it every %s, and this page reloads itself",
                     brim_figure_seconds(every, sizeof every, page->live->every_seconds));
  brim_text_add(out, ".</p>\n");
  if (!brim_page_refreshes(page)) return;
  brim_text_add(out,
                "<p class=\"notice bad when-stale\">This page is stale: brim did not rewrite it when that was due. "
                "The run, or the machine it ran on, has probably been stopped. <code>brim report ");
  brim_svg_escape(out, BRIM_QUOTED(page->run->dir));
  brim_text_add(out, "</code> makes a page of the files as they are.</p>\n");
}

void brim_page_script(const brim_page_run *page, brim_text *out)
{
  if (!brim_page_refreshes(page)) return;
  brim_text_add(out, "<script>");
  brim_text_add(out, script);
  brim_text_add(out, "</script>\n");
}
