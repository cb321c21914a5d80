/* The device profile: how long what a step is made of takes on a device, found by short timings once. A file of JSON
 * lines: the first says what the times are of, each other one is a time:
 *
 *     {"brim_profile": 1, "backend": "cpu", "device": "AMD EPYC", "threads": 2, "build": "5c6f..."}
 *     {"what": "relu f32[N,128] > f32[N,128] 0 g16 t", "n": 64, "seconds": 1.9e-06, "at": 1790000000, "rated": 3.1e-06}
 *
 *     {"takes": "context", "bytes": 415236096, "at": 1790000000}
 *
 * "what" is a node's signature (graph/signature.h) or a name of the core's, and n the samples, or bytes, that it is
 * done for. "at" is when it was timed, in seconds since 1970. "doubted": steps took another time than such times say,
 * so it is to be timed again; "sure": it was, and came out the same. "rated" is what common rates say (exec/predict.h),
 * from which times of the same operation in other shapes are guessed. "takes": what a process was measured to take of
 * the device besides arenas (planner/taken.h). Processes side by side may have the same file: each writes the whole
 * file again, with the times that it found there, aside and renamed, so at worst something is timed twice. */
#ifndef BRIM_EXEC_PROFILE_H
#define BRIM_EXEC_PROFILE_H
#include "base/text.h"
#include "brim/backend.h"

#define BRIM_PROFILE_VERSION 1

typedef struct brim_profile brim_profile;

/* What times are of. */
typedef struct brim_profile_subject {
  const char *backend, *device; /* "cpu", "AMD EPYC" */
  int32_t threads;              /* of the host; 0 where that means nothing */
  uint64_t build;               /* hash of the backend's file; 0: not known */
} brim_profile_subject;

typedef struct brim_profile_entry {
  const char *what;
  int64_t n;
  double seconds, rated;
  int64_t at;         /* seconds since 1970; 0: not known */
  bool doubted, sure; /* see above */
} brim_profile_entry;

/* [plan] Of a device, by a backend whose file is `file`; "" if it has none. */
brim_profile_subject brim_profile_subject_of(const char *backend, const char *file, const brim_device_info *info);
/* [plan] Where a subject's profile is kept without being told: below $XDG_CACHE_HOME/brim, or ~/.cache/brim. False if
 * there is no such folder to be had. */
bool brim_profile_default_path(const brim_profile_subject *subject, char *out, size_t room);
/* [plan] Reads a file; one that is not there is empty. NULL for a path: times are kept in memory only. EINVAL for a
 * damaged file, ECONFIG for one that is of something else. */
brim_status brim_profile_open(const char *path, const brim_profile_subject *subject, brim_profile **out);
void brim_profile_close(brim_profile *profile);
/* [plan] NULL: not timed. What is found counts as used. */
const brim_profile_entry *brim_profile_find(brim_profile *profile, const char *what, int64_t n);
/* [plan] Those nearest to n of the same `what`: the largest n below it and the smallest above it; NULL: none. */
void brim_profile_neighbours(brim_profile *profile, const char *what, int64_t n, const brim_profile_entry **below,
                             const brim_profile_entry **above);
/* [plan] Median of seconds / rated of what begins with `op` and a space; 0: nothing of it was timed. NULL: of all. */
double brim_profile_ratio(brim_profile *profile, const char *op);
/* [plan] Is it still to be timed: it never was, or is doubted? */
bool brim_profile_lacks(brim_profile *profile, const char *what, int64_t n);
/* [plan] Doubts the times that were used, unless they are sure; returns how many. */
size_t brim_profile_doubt(brim_profile *profile);
#define BRIM_PROFILE_APART 0.15 /* times that differ by more of the larger are not the same */
bool brim_profile_agree(double a, double b);
/* [plan] Deletes all profiles in the cache; *count: how many. EIO. */
brim_status brim_profile_forget_all(size_t *count);
/* [plan] Takes a time in, in the place of one that is there. */
void brim_profile_add(brim_profile *profile, const char *what, int64_t n, double seconds, double rated);
/* [plan] Bytes that a process takes, as they were measured last; BRIM_PROFILE_UNKNOWN: never. */
#define BRIM_PROFILE_UNKNOWN UINT64_MAX
uint64_t brim_profile_bytes(const brim_profile *profile, const char *takes);
/* [plan] The most of all whose name begins so; BRIM_PROFILE_UNKNOWN: none does. */
uint64_t brim_profile_most_bytes(const brim_profile *profile, const char *begins);
void brim_profile_add_bytes(brim_profile *profile, const char *takes, uint64_t bytes);
/* [plan] Writes the file if anything was added. Nothing without a path, or after a first EIO. */
brim_status brim_profile_save(brim_profile *profile);
/* [plan] The file of the times that were used, for a run's folder; nothing if nothing was. The same times give the same
 * bytes. */
void brim_profile_print_used(const brim_profile *profile, brim_text *out);
#endif
