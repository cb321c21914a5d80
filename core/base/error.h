/* A thread's error text on its way to another thread. */
#ifndef BRIM_BASE_ERROR_H
#define BRIM_BASE_ERROR_H

typedef struct brim_error {
  char text[4096], origin[256];
} brim_error;

/* [any thread] The calling thread's last error, and another's as its own. */
void brim_error_take(brim_error *out);
void brim_error_put(const brim_error *error);
#endif
