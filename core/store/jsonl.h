/* Appends JSON lines without allocating: a record is formatted into a fixed buffer and appended with one write(), so
 * that readers see whole lines and a killed run leaves at most one partial line, at the end. */
#ifndef BRIM_STORE_JSONL_H
#define BRIM_STORE_JSONL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"

typedef struct brim_jsonl {
  int fd;
  int64_t bytes;   /* length of the file */
  int64_t records; /* lines in it */
  char path[4096];
  char line[4096];
  size_t length;
  bool overflow;
} brim_jsonl;

/* [init] Opens for appending, one writer per file; keeps the first `keep_records` lines (0 for a new run), or with
 * BRIM_JSONL_ALL all complete lines, and truncates the rest. The count is in records, not bytes, because checkpoints
 * store it and the lengths of records differ with their timings. If the file has fewer lines, adds padding lines, with
 * a warning. EIO with the path and the system's reason. */
#define BRIM_JSONL_ALL (-1)
brim_status brim_jsonl_open(brim_jsonl *log, const char *path, int64_t keep_records);
/* [step] Write a record: begin, its fields in order, end. Keys must be string literals. */
void brim_jsonl_begin(brim_jsonl *log);
void brim_jsonl_int(brim_jsonl *log, const char *key, int64_t value);
/* Writes the shortest form that reads back as the same number; NaN and infinities as null. */
void brim_jsonl_number(brim_jsonl *log, const char *key, double value);
/* Writes a text with escapes; bytes that are not UTF-8 become U+FFFD. A long text is truncated and ends in "...", so
 * that at least 512 bytes of the line are left for other fields. */
void brim_jsonl_string(brim_jsonl *log, const char *key, const char *value);
/* [step] Appends the record. On EIO, removes its written part. EINVAL for a record longer than the buffer, which is
 * dropped. */
brim_status brim_jsonl_end(brim_jsonl *log);
/* [step] Appends a complete line, which ends in a newline, for records longer than the buffer. EIO as above. */
brim_status brim_jsonl_append(brim_jsonl *log, const char *line, size_t bytes);
void brim_jsonl_close(brim_jsonl *log); /* does nothing for a zeroed or closed log */
#endif
