/* Writes the manual pages: make_pages FOLDER makes FOLDER/man1/brim.1, a page for each command, and
 * FOLDER/man5/brim.yaml.5. Runs when brim is built; brim-plugin(7) beside it is written by hand. */
#include <errno.h>
#include <string.h>

#include "base/file.h"
#include "builtin/builtin.h"
#include "pages.h"

void page_text_n(FILE *page, const char *text, size_t length)
{
  static const struct {
    char plain;
    const char *escaped;
  } special[] = {{'\\', "\\e"}, {'-', "\\-"}, {'\'', "\\(aq"}, {'`', "\\(ga"}, {'^', "\\(ha"}, {'~', "\\(ti"}};
  if (length > 0 && text[0] == '.') fputs("\\&", page);
  for (size_t i = 0; i < length; i++) {
    size_t k = 0;
    while (k < sizeof special / sizeof special[0] && special[k].plain != text[i]) k++;
    if (k < sizeof special / sizeof special[0])
      fputs(special[k].escaped, page);
    else
      fputc(text[i], page);
  }
}

void page_text(FILE *page, const char *text)
{
  page_text_n(page, text, strlen(text));
}

void page_begin(FILE *page, const char *name, int section, const char *help)
{
  fputs(".TH \"", page);
  for (const char *s = name; *s; s++) fputc(*s >= 'a' && *s <= 'z' ? *s - 'a' + 'A' : *s, page);
  fprintf(page, "\" %d \"\" \"brim %s\" \"brim\"\n.SH NAME\n", section, BRIM_VERSION);
  page_text(page, name);
  fputs(" \\- ", page);
  page_text(page, help);
  fputs("\n", page);
}

static FILE *open_page(const char *folder, const char *name, int section)
{
  char path[BRIM_PATH_MAX];
  snprintf(path, sizeof path, "%s/man%d/%s.%d", folder, section, name, section);
  FILE *page = brim_make_folders_for(path) == BRIM_OK ? fopen(path, "w") : NULL;
  if (!page) brim_fail(BRIM_EIO, "cannot write %s: %s", path, strerror(errno));
  return page;
}

static brim_status close_page(FILE *page)
{
  const bool failed = ferror(page) != 0;
  return fclose(page) == 0 && !failed ? BRIM_OK : brim_fail(BRIM_EIO, "cannot write a page: %s", strerror(errno));
}

static brim_status make_command(const char *folder, const brim_command *command)
{
  char name[64];
  snprintf(name, sizeof name, "brim-%s", command->name);
  FILE *page = open_page(folder, name, 1);
  if (!page) return BRIM_EIO;
  page_command(page, command);
  return close_page(page);
}

static brim_status make_pages(const char *folder)
{
  brim_registry *registry = NULL;
  FILE *page = open_page(folder, "brim", 1);
  if (!page) return BRIM_EIO;
  page_program(page);
  BRIM_TRY(close_page(page));
  for (const brim_command *const *c = brim_commands; *c; c++) BRIM_TRY(make_command(folder, *c));
  page = open_page(folder, "brim.yaml", 5);
  if (!page) return BRIM_EIO;
  BRIM_TRY(brim_registry_open(brim_core_plugins, NULL, 0, &registry));
  page_configuration(page, registry);
  brim_registry_free(registry);
  return close_page(page);
}

int main(int argc, char **argv)
{
  if (argc != 2) return brim_cli_fail(brim_fail(BRIM_ECONFIG, "usage: make_pages FOLDER"));
  const brim_status status = make_pages(argv[1]);
  return status == BRIM_OK ? 0 : brim_cli_fail(status);
}
