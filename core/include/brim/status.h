/* Status codes and error text.
 *
 * Every function that can fail returns a brim_status. The text belongs to the host: brim_fail() records what went
 * wrong, with the file and line of the failure, in a buffer of the calling thread, and returns the code, so that a
 * function fails in one line:
 *
 *     if (count < 1) return brim_fail(BRIM_EINVAL, "count must be at least 1, got %d", count);
 *
 * Callers return the code, and may add a line of context with brim_fail_add(). */
#ifndef BRIM_STATUS_H
#define BRIM_STATUS_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#define BRIM_EXPORT __attribute__((visibility("default")))
#if defined(__GNUC__)
#define BRIM_PRINTF(text, first) __attribute__((format(printf, text, first)))
#define BRIM_MUST_USE __attribute__((warn_unused_result))
#else
#define BRIM_PRINTF(text, first)
#define BRIM_MUST_USE
#endif

/* name, value, process exit status, text. Values are part of the ABI and never change. */
#define BRIM_STATUS_MAP(X)                                                                                             \
  X(OK, 0, 0, "success")                                                                                               \
  X(EINVAL, 1, 2, "invalid argument")                                                                                  \
  X(ECONFIG, 2, 2, "invalid configuration")                                                                            \
  X(ENOMEM_HOST, 3, 5, "out of host memory")                                                                           \
  X(ENOMEM_DEVICE, 4, 4, "out of device memory")                                                                       \
  X(EBUDGET, 5, 4, "over the memory budget")                                                                           \
  X(EDEVICE, 6, 5, "device error")                                                                                     \
  X(EIO, 7, 5, "input/output error")                                                                                   \
  X(ECOMM, 8, 5, "communicator error")                                                                                 \
  X(ENOTSUP, 9, 5, "not supported")                                                                                    \
  X(ELOAD, 10, 3, "could not be loaded")                                                                               \
  X(ENUMERIC, 11, 5, "not a finite number")                                                                            \
  X(EINTERRUPTED, 12, 6, "interrupted")                                                                                \
  X(EINTERNAL, 13, 5, "internal error")                                                                                \
  X(ENODEVICE, 14, 4, "no such device")                                                                                \
  X(EPEER, 15, 5, "another rank has failed")                                                                           \
  X(EPLUGIN, 16, 5, "a plugin has failed") /* the plugin crashed or hung; since ABI 1.6 */

typedef int32_t brim_status;
enum {
#define X(name, value, exit_status, text) BRIM_##name = value,
  BRIM_STATUS_MAP(X)
#undef X
};

/* [any thread] The code's name without prefix ("EINVAL") and its text; static strings. */
BRIM_EXPORT const char *brim_status_name(brim_status status);
BRIM_EXPORT const char *brim_status_text(brim_status status);
/* [any thread] The exit status of a process that ends with this code, 0..6; `brim --help` lists them. */
BRIM_EXPORT int brim_status_exit(brim_status status);
/* [any thread] True if device or host memory ran out, so that the operation may succeed later or with less memory.
 * Depends only on the code. Since ABI 1.3. */
static inline int brim_status_is_want(brim_status status)
{
  return status == BRIM_ENOMEM_DEVICE || status == BRIM_ENOMEM_HOST;
}

/* [any thread] Sets the calling thread's error text and returns `status`. The text replaces the previous one. At most
 * 4095 bytes are kept. Do not end it with a full stop or a newline; further lines (separated by '\n') are shown
 * indented below the first. */
BRIM_EXPORT brim_status brim_fail_at(const char *file, int line, brim_status status, const char *format, ...)
    BRIM_PRINTF(4, 5);
#define brim_fail(status, ...) brim_fail_known((status), brim_fail_at(__FILE__, __LINE__, (status), __VA_ARGS__))
/* Shows compilers that the status is the given one, so that they can tell which variables are initialised after a
 * check. */
static inline brim_status brim_fail_known(brim_status status, brim_status returned)
{
  (void)returned;
  return status;
}

/* [any thread] Appends a line to the calling thread's error text. Returns `status` for chaining. */
BRIM_EXPORT brim_status brim_fail_add(brim_status status, const char *format, ...) BRIM_PRINTF(2, 3);

/* [any thread] The calling thread's last error: text ("" if none), and the source position of the
 * brim_fail() that set it ("file.c:12"). Valid until the thread's next brim_fail(). */
BRIM_EXPORT const char *brim_error_text(void);
BRIM_EXPORT const char *brim_error_origin(void);

/* Evaluates an expression of type brim_status and returns it from the function unless it is OK. */
#define BRIM_TRY(expression)                                                                                           \
  do {                                                                                                                 \
    const brim_status brim_try_status = (expression);                                                                  \
    if (brim_try_status != BRIM_OK) return brim_try_status;                                                            \
  } while (0)

/* Log levels, most important first. The host sets the level to show (--quiet, --verbose). */
enum brim_level { BRIM_LOG_ERROR = 0, BRIM_LOG_WARN = 1, BRIM_LOG_INFO = 2, BRIM_LOG_DEBUG = 3 };
/* [any thread] Writes a line to standard error, with a prefix such as "warning: ". The text must not end with a
 * newline. */
BRIM_EXPORT void brim_log(enum brim_level level, const char *format, ...) BRIM_PRINTF(2, 3);
/* [any thread] Formats a number of bytes for messages, "4.7 MiB". Writes at most `room` bytes to `out` and returns
 * it. */
BRIM_EXPORT const char *brim_format_bytes(char *out, size_t room, uint64_t bytes);

#ifdef __cplusplus
}
#endif
#endif
