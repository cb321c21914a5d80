/* Passes a thread's error text to another thread. */
#ifndef BRIM_BASE_ERROR_H
#define BRIM_BASE_ERROR_H

typedef struct brim_error {
  char text[4096], origin[256];
} brim_error;

/* [any thread] Takes the calling thread's last error, and sets another thread's as the calling thread's. */
void brim_error_take(brim_error *out);
void brim_error_put(const brim_error *error);
#endif
