/* Replaces malloc and its family, and mmap, in a test program and in every library it loads, and can record the
 * callers.
 *
 * A request is attributed to the first caller outside the C and C++ runtime: a request by brim through fopen or
 * std::string counts as brim's. All threads count. */
#ifndef FAULT_INTERPOSE_H
#define FAULT_INTERPOSE_H
#include <stdbool.h>
#include <stddef.h>

typedef struct memory_request {
  const char *call; /* "malloc" */
  size_t bytes;
  bool brim;        /* requested by this program or by one of brim's plugins; else by a library */
  char object[256]; /* the caller's file */
  char symbol[128]; /* its nearest exported name, "" if there is none */
} memory_request;

void interpose_prepare(void); /* call it once, before anything else */
void interpose_start(void);   /* clears the records and starts recording */
void interpose_stop(void);
size_t interpose_count(void); /* number of requests between start and stop */
size_t interpose_kept(void);  /* number of recorded requests */
memory_request interpose_at(size_t i);
#endif
