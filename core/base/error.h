/* Passes a thread's error text to another thread. */
#ifndef BRIM_BASE_ERROR_H
#define BRIM_BASE_ERROR_H

typedef struct brim_error {
  char text[4096], origin[256];
} brim_error;

/* [any thread] brim_error_take copies the calling thread's last error; brim_error_put makes such a copy, of any thread,
 * the calling thread's last error. */
void brim_error_take(brim_error *out);
void brim_error_put(const brim_error *error);
#endif
