/* Reads the text files of tests/images: pairs of a line with a name and a line of bytes as hexadecimal digits. */
#ifndef TESTS_PICTURE_FILES_H
#define TESTS_PICTURE_FILES_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PICTURE_TITLE_ROOM 128
#define PICTURE_BYTES_MAX 65536

typedef struct picture_lines {
  FILE *file;
  char title[PICTURE_TITLE_ROOM];
  uint8_t bytes[PICTURE_BYTES_MAX];
  size_t count;
} picture_lines;

static inline void picture_lines_open(picture_lines *p, const char *name)
{
  char path[4096];
  snprintf(path, sizeof path, "%s/images/%s", BRIM_TESTS_DIR, name);
  p->file = fopen(path, "re");
  if (!p->file) fail_msg("no %s", path);
}

/* Reads the next pair of lines; returns 0 at the end, after closing the file. */
static inline int picture_lines_next(picture_lines *p)
{
  int digit[2];
  p->count = 0;
  if (!fgets(p->title, sizeof p->title, p->file)) {
    fclose(p->file);
    return 0;
  }
  p->title[strcspn(p->title, "\n")] = '\0';
  while ((digit[0] = fgetc(p->file)) != '\n' && digit[0] != EOF) {
    digit[1] = fgetc(p->file);
    const char text[3] = {(char)digit[0], (char)digit[1], '\0'};
    assert_true(p->count < sizeof p->bytes);
    p->bytes[p->count++] = (uint8_t)strtoul(text, NULL, 16);
  }
  return 1;
}
#endif
