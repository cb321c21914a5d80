/* Fuzzes a run's folder as brim report reads it: every input gives a page that contains no markup from the files. The
 * first byte selects the file that the rest replaces; the others are as a small run leaves them. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/page.h"
#include "scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct {
  const char *name, *text;
} files[] = {
    {"metrics.jsonl", "{\"step\":1,\"epoch\":0.5,\"split\":\"train\",\"loss\":2}\n"
                      "{\"step\":2,\"epoch\":1,\"split\":\"train\",\"loss\":1}\n"},
    {"summary.json", "{\"status\":\"finished\",\"steps\":2,\"test_loss\":1}"},
    {"plan.json", "{\"peak_bytes\":4096,\"classes\":{\"parameters\":4096}}"},
    {"plugins.json", "{\"model\":{\"id\":\"mlp\"}}"},
    {"events.jsonl", "{\"time\":1,\"event\":\"started\",\"step\":0}\n"},
    {"overrides.yaml", "[]\n"},
    {"environment.jsonl",
     "{\"host\":\"lab\",\"command\":[\"brim\",\"train\"],\"libraries\":{\"z\":\"1\"},\"steps\":9}\n"},
    {"operations.json", "{\"steps\":[1,2],\"operations\":[{\"op\":\"relu\",\"name\":\"r\",\"seconds\":1}]}"},
    {"buffers.json", "{\"persistent_bytes\":8,\"peak_bytes\":16,\"parts\":[[0,8],[8,0],[8,0],[8,0]],\"operations\":1,"
                     "\"forward\":1,\"live_operation\":0,\"buffers\":1,\"alive\":[8],"
                     "\"pieces\":[[8,8,0,0,4,-1,0,\"t\",\"relu\",\"r\"]]}"},
};
#define FILES (sizeof files / sizeof files[0])

static void check(int condition, const char *what)
{
  if (condition) return;
  fprintf(stderr, "fuzz_report: %s: %s\n", what, brim_error_text());
  abort();
}

static void delete_folder(void)
{
  scratch_delete(scratch_root);
}

static void begin(void)
{
  static bool begun;
  if (begun) return;
  begun = true;
  scratch_setup(NULL);
  atexit(delete_folder);
  scratch_write(scratch("%s", "config.yaml"), "model: {id: mlp}\n", 17);
  for (size_t i = 0; i < FILES; i++) scratch_write(scratch("%s", files[i].name), files[i].text, strlen(files[i].text));
}

/* Tags of a page are lower case and known; markup characters of the inputs are escaped. */
static void check_page(const char *page)
{
  for (const char *s = page; (s = strchr(s, '<')); s++)
    check((s[1] >= 'a' && s[1] <= 'z') || s[1] == '/' || strncmp(s, "<!DOCTYPE", 9) == 0, "a stray <");
  check(!strstr(page, "<script") && !strstr(page, "<x"), "markup of a file");
  check(brim_ends_with(page, "</html>\n"), "half a page");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  if (size == 0) return 0;
  const size_t file = (uint8_t)(data[0] - '0') % FILES;
  brim_comparison c = {0};
  brim_text page = {0};
  begin();
  scratch_write(scratch("%s", files[file].name), data + 1, size - 1);
  check(brim_compare_add(&c, scratch_root) == BRIM_OK, "the folder was refused");
  brim_compare_finish(&c);
  brim_page_print(&c, NULL, &page);
  check(strlen(page.s) == page.length, "a page with NULs");
  check_page(page.s);
  brim_text_release(&page);
  brim_compare_release(&c);
  scratch_write(scratch("%s", files[file].name), files[file].text, strlen(files[file].text));
  return 0;
}
