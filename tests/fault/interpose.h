/* Takes the place of malloc and its kin, and of mmap, in a test program and in every library it loads, and can write
 * down who asks for memory.
 *
 * A request is put down to the first caller that is not of the C or C++ runtime: brim asking through fopen or through
 * std::string is brim asking. All threads count. */
#ifndef FAULT_INTERPOSE_H
#define FAULT_INTERPOSE_H
#include <stdbool.h>
#include <stddef.h>

typedef struct memory_request {
  const char *call; /* "malloc" */
  size_t bytes;
  bool brim;        /* asked by this program or by one of brim's plugins; else by some library */
  char object[256]; /* file of the asker */
  char symbol[128]; /* its nearest exported name, "" if there is none */
} memory_request;

void interpose_prepare(void); /* once, before anything else */
void interpose_start(void);   /* forgets what was written down and goes on writing */
void interpose_stop(void);
size_t interpose_count(void); /* requests between start and stop */
size_t interpose_kept(void);  /* of which so many can be looked at */
memory_request interpose_at(size_t i);
#endif
