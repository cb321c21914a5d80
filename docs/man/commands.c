/* The pages of the program and its commands. A command's text is that of `brim COMMAND --help`: a usage line, then
 * blocks with an empty line between; lines of a block that are indented are examples. */
#include <ctype.h>
#include <string.h>

#include "pages.h"

/* Takes the next line of the text, without its line break; false at the end. */
static bool next_line(const char **text, const char **line, size_t *length)
{
  if (!**text) return false;
  *line = *text;
  *length = strcspn(*text, "\n");
  *text += *length + ((*text)[*length] == '\n');
  return true;
}

static size_t indent_of(const char *line, size_t length)
{
  size_t n = 0;
  while (n < length && line[n] == ' ') n++;
  return n;
}

/* Writes "usage: brim train [...]", its continuation lines and further usage lines. Returns the text after them. */
static const char *put_synopsis(FILE *page, const brim_command *command)
{
  const char *text = command->usage, *line;
  size_t length;
  fputs(".SH SYNOPSIS\n", page);
  while (next_line(&text, &line, &length) && length > 0) {
    size_t skip = line == command->usage ? strlen("usage: ") : indent_of(line, length);
    const char *program = line + skip;
    if (strncmp(program, "brim ", 5) == 0) {
      fprintf(page, "%s.B brim %s\n", line == command->usage ? "" : ".br\n", command->name);
      skip += strlen("brim ") + strlen(command->name);
      if (skip < length) skip++; /* the space */
    }
    if (skip == length) continue;
    page_text_n(page, line + skip, length - skip);
    fputs("\n", page);
  }
  return text;
}

static void put_description(FILE *page, const char *text)
{
  const char *line;
  size_t length;
  const char *before = ".SH DESCRIPTION\n"; /* written before the next paragraph */
  while (next_line(&text, &line, &length)) {
    if (length > 0 && line[0] != ' ') {
      fputs(before, page);
      page_text_n(page, line, length);
      fputs("\n", page);
      before = "";
    } else if (!before[0]) {
      before = ".PP\n";
    }
  }
}

/* Offset of the comment in "brim plan -o x   also write a picture"; `length` without a comment. */
static size_t comment_of(const char *line, size_t length)
{
  for (size_t i = 0; i + 1 < length; i++)
    if (line[i] == ' ' && line[i + 1] == ' ') return i + indent_of(line + i, length - i);
  return length;
}

static void put_examples(FILE *page, const char *text)
{
  const char *line;
  size_t length;
  fputs(".SH EXAMPLES\n", page);
  while (next_line(&text, &line, &length)) {
    const size_t indent = indent_of(line, length);
    if (indent == 0) continue;
    line += indent;
    length -= indent;
    size_t comment = 0; /* a continuation line is all comment */
    if (length > 5 && strncmp(line, "brim ", 5) == 0) {
      comment = comment_of(line, length);
      size_t end = comment;
      while (end > 0 && line[end - 1] == ' ') end--;
      fputs(".TP\n.B ", page);
      page_text_n(page, line, end);
      fputs("\n", page);
    } else if (indent == 2) {
      fputs(".PP\n", page);
    }
    page_text_n(page, line + comment, length - comment);
    fputs(comment < length ? "\n" : "", page);
  }
}

static void put_options(FILE *page, const brim_command *command)
{
  const brim_option *row = brim_cli_options(command);
  const char *help;
  brim_text name = {0};
  fputs(".SH OPTIONS\n", page);
  for (; (help = brim_cli_format_option(&row, &name)); brim_text_clear(&name)) {
    fputs(".TP\n.B ", page);
    page_text(page, brim_text_str(&name));
    fputs("\n", page);
    page_text(page, help);
    fputs("\n", page);
  }
  brim_text_release(&name);
  fputs(".TP\n.B \\-h, \\-\\-help\nshow a summary of this page", page);
  fputs(command && strstr(command->usage, "key=value") ? ", and every key\n" : "\n", page);
  if (command) fputs(".PP\nOptions of every command are in\n.BR brim (1).\n", page);
}

static void put_exit_status(FILE *page)
{
  fputs(".SH EXIT STATUS\n"
        ".TP\n.B 0\ndone\n"
        ".TP\n.B 2\nusage or configuration\n"
        ".TP\n.B 3\na plugin or file could not be loaded\n"
        ".TP\n.B 4\nno device or plan fits\n"
        ".TP\n.B 5\ntraining failed\n"
        ".TP\n.B 6\ninterrupted; can be resumed\n",
        page);
}

void page_command(FILE *page, const brim_command *command)
{
  char name[64];
  snprintf(name, sizeof name, "brim-%s", command->name);
  page_begin(page, name, 1, command->help);
  const char *text = put_synopsis(page, command);
  put_description(page, text);
  put_options(page, command);
  put_examples(page, text);
  fputs(".SH SEE ALSO\n.BR brim (1),\n.BR brim.yaml (5)\n", page);
}

static void put_environment(FILE *page)
{
  static const struct {
    const char *name, *help;
  } variable[] = {
      {"BRIM_PLUGIN_PATH", "folders to search for plugins, separated by colons, after those of --plugin-path"},
      {"GPU_DEVICE_ID", "the only GPU or device with a limit that runs may use"},
      {"CUDA_VISIBLE_DEVICES", "the GPUs that this process may use"},
      {"TF_GPU_MEMORY_FRACTION", "share of a device's memory that runs may use, unless memory.limit is set"},
      {"CLIENT_ID", "user of the run, for policy=capped"},
      {"XDG_CACHE_HOME", "folder of cached features, tokens and times of kernels (default: ~/.cache)"},
      {"NO_COLOR", "if set, messages have no colors"},
      {"BRIM_FAULT", "calls that must fail as if memory had run out, for tests"},
  };
  fputs(".SH ENVIRONMENT\n", page);
  for (size_t i = 0; i < sizeof variable / sizeof variable[0]; i++) {
    fprintf(page, ".TP\n.B %s\n", variable[i].name);
    page_text(page, variable[i].help);
    fputs("\n", page);
  }
}

void page_program(FILE *page)
{
  page_begin(page, "brim", 1, "train neural networks within a memory budget that is planned exactly before the run");
  fputs(".SH SYNOPSIS\n.B brim\n[options] COMMAND [...]\n"
        ".SH DESCRIPTION\n"
        "A training step is a static graph, so its memory can be planned before it runs. brim computes the place of "
        "every\n"
        "tensor, allocates exactly the planned memory once, and nothing after that. If a run does not fit, brim\n"
        "reports it before the run starts, together with settings that would fit.\n.PP\n"
        "Configurations are YAML files, see\n.BR brim.yaml (5);\n"
        "the command line overrides them: key=value sets a value, group=option chooses an option.\n"
        ".SH COMMANDS\n",
        page);
  for (const brim_command *const *c = brim_commands; *c; c++) {
    fprintf(page, ".TP\n.BR brim\\-%s (1)\n", (*c)->name);
    page_text(page, (*c)->help);
    fputs("\n", page);
  }
  put_options(page, NULL);
  fputs(".TP\n.B \\-\\-version\nshow the version\n", page);
  put_exit_status(page);
  put_environment(page);
  fputs(".SH SEE ALSO\n.BR brim.yaml (5),\n.BR brim\\-plugin (7)\n", page);
}
