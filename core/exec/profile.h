/* The device profile: how long the parts of a step take on a device, found once by short timings. A file of JSON lines:
 * the first names the device, each other one is a time:
 *
 *     {"brim_profile": 1, "backend": "cpu", "device": "AMD EPYC", "threads": 2, "build": "5c6f..."}
 *     {"what": "relu f32[N,128] > f32[N,128] 0 g16 t", "n": 64, "seconds": 1.9e-06, "at": 1790000000, "rated": 3.1e-06}
 *
 *     {"takes": "context", "bytes": 415236096, "at": 1790000000}
 *
 * "what" is a node's signature (graph/signature.h) or a name that the core defines, and n the number of samples or
 * bytes. "at" is when it was timed, in seconds since 1970. "doubted": steps took longer or shorter than predicted from
 * this time, so it must be timed again; "sure": it was timed again, with the same result. "rated" is the time by common
 * rates (exec/predict.h), from which times of the same operation in other shapes are estimated. "takes": device memory
 * that a process used besides arenas (planner/taken.h). Processes may share a file: each writes the whole file, with
 * the times that it found there, to a temporary file and renames it, so at worst something is timed twice. */
#ifndef BRIM_EXEC_PROFILE_H
#define BRIM_EXEC_PROFILE_H
#include "base/text.h"
#include "brim/backend.h"

#define BRIM_PROFILE_VERSION 1

typedef struct brim_profile brim_profile;

/* The device and the software that the times belong to. */
typedef struct brim_profile_subject {
  const char *backend, *device; /* "cpu", "AMD EPYC" */
  int32_t threads;              /* threads of the host; 0 where that does not apply */
  uint64_t build;               /* hash of the backend's file; 0 if unknown */
} brim_profile_subject;

typedef struct brim_profile_entry {
  const char *what;
  int64_t n;
  double seconds, rated;
  int64_t at;         /* seconds since 1970; 0 if unknown */
  bool doubted, sure; /* see above */
} brim_profile_entry;

/* [plan] The subject for a device, with a backend whose file is `file`; "" if it has none. */
brim_profile_subject brim_profile_subject_of(const char *backend, const char *file, const brim_device_info *info);
/* [plan] The default path of a subject's profile: below $XDG_CACHE_HOME/brim, or ~/.cache/brim. False if there is no
 * such folder. */
bool brim_profile_default_path(const brim_profile_subject *subject, char *out, size_t room);
/* [plan] Reads a file; a missing one is empty. With a NULL path times are kept in memory only. EINVAL for a damaged
 * file, ECONFIG for one of another subject. */
brim_status brim_profile_open(const char *path, const brim_profile_subject *subject, brim_profile **out);
void brim_profile_close(brim_profile *profile);
/* [plan] Finds a time and marks it as used; NULL if it was not measured. */
const brim_profile_entry *brim_profile_find(brim_profile *profile, const char *what, int64_t n);
/* [plan] Finds the nearest entries of the same `what`: the one with the largest n below, and the one with the smallest
 * n above; NULL if there is none. */
void brim_profile_neighbours(brim_profile *profile, const char *what, int64_t n, const brim_profile_entry **below,
                             const brim_profile_entry **above);
/* [plan] Median of seconds / rated over entries whose name begins with `op` and a space, or over all if NULL; 0 if none
 * was timed. */
double brim_profile_ratio(brim_profile *profile, const char *op);
/* [plan] Whether `what` must be timed: it never was, or its time is doubted. */
bool brim_profile_lacks(brim_profile *profile, const char *what, int64_t n);
/* [plan] Marks the times that were used as doubted, unless they are sure; returns how many were marked. */
size_t brim_profile_doubt(brim_profile *profile);
#define BRIM_PROFILE_APART 0.15 /* times that differ by more than this share of the larger one do not agree */
bool brim_profile_agree(double a, double b);
/* [plan] Deletes all profiles in the cache; *count: how many. EIO. */
brim_status brim_profile_forget_all(size_t *count);
/* [plan] Adds a time; replaces an existing one. */
void brim_profile_add(brim_profile *profile, const char *what, int64_t n, double seconds, double rated);
/* [plan] The last measured bytes under the name `takes`; BRIM_PROFILE_UNKNOWN if never measured. */
#define BRIM_PROFILE_UNKNOWN UINT64_MAX
uint64_t brim_profile_bytes(const brim_profile *profile, const char *takes);
/* [plan] The most bytes measured under any name with the prefix `begins`; BRIM_PROFILE_UNKNOWN if never measured. */
uint64_t brim_profile_most_bytes(const brim_profile *profile, const char *begins);
void brim_profile_add_bytes(brim_profile *profile, const char *takes, uint64_t bytes);
/* [plan] Writes the file if anything was added. Does nothing without a path, or after EIO once. */
brim_status brim_profile_save(brim_profile *profile);
/* [plan] Prints the times that were used, as a profile file for a run's folder; nothing if none were used. The same
 * times give the same bytes. */
void brim_profile_print_used(const brim_profile *profile, brim_text *out);
#endif
