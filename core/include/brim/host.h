/* What this host has, within the limits of this process's control groups (versions 1 and 2), its files, and which of
 * its calls are to fail for a test. */
#ifndef BRIM_HOST_H
#define BRIM_HOST_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "brim/status.h"
#ifdef __cplusplus
extern "C" {
#endif

typedef struct brim_cgroup {
  uint64_t memory_limit;    /* bytes; UINT64_MAX: none */
  uint64_t memory_headroom; /* the limit less what is used and cannot be given back at once */
  double processors;        /* CPU quota over its period; 0: none */
} brim_cgroup;
/* [any thread] mount: "/sys/fs/cgroup"; membership: "/proc/self/cgroup". What cannot be read sets no limit. */
BRIM_EXPORT brim_cgroup brim_cgroup_read(const char *mount, const char *membership);

/* [any thread] Threads that this process can keep busy: of the processors that it may run on and the control group's
 * quota, its share where ranks of a job have them in common. At least 1. Since ABI 1.4. */
BRIM_EXPORT int32_t brim_host_threads(void);

typedef struct brim_host_memory {
  uint64_t total_bytes, available_bytes; /* UINT64_MAX: not known */
  int32_t is_grouped;                    /* 1: it is a control group that leaves so much, not the machine */
} brim_host_memory;
/* [any thread] The machine's memory, or the control group's, whichever is less. */
BRIM_EXPORT brim_host_memory brim_host_memory_now(void);

/* [any thread] Zeroed memory, freed with free(); NULL if there is none, or a test wants none to be there. Plugins ask
 * for their own with it. Since ABI 1.3. */
BRIM_EXPORT void *brim_try_calloc(size_t count, size_t bytes);

/* [any thread] Reads the next `bytes` of an open file to `out`. ELOAD with `path`, which is for messages, and the
 * reason: also if there are fewer. Since ABI 1.5. */
BRIM_EXPORT brim_status brim_read_whole(const char *path, int fd, size_t bytes, void *out);

/* [any thread] Makes the folder that a file is to lie in, and its parents, as far as they are not there. ECONFIG where
 * there can be none, EIO; both name the part that could not be made. Since ABI 1.5. */
BRIM_EXPORT brim_status brim_make_folders_for(const char *file);

/* [any thread] Files that are kept for later runs, in a cache that all of a user's processes share. Begins the file
 * `path`: makes its folders, and opens an empty file beside it to write into. *fd is -1 if another process is making
 * the same file now. The file is locked (flock) while it is open; files that killed makers have left in the folder
 * are removed. EIO, ECONFIG. Since ABI 1.7. */
BRIM_EXPORT brim_status brim_cache_begin(const char *path, int *fd);
/* [any thread] Ends it and closes *fd, which becomes -1; with -1 a no-op. `keep`: it is whole, and from now on is at
 * `path`; otherwise it is removed, and the thread's error text is left alone. EIO, and then it is removed too. Since
 * ABI 1.7. */
BRIM_EXPORT brim_status brim_cache_end(const char *path, int *fd, bool keep);

/* [any thread] Has this process been asked to end its work (Ctrl-C, SIGTERM)? Long work in a plugin, such as open()
 * of a dataset, calls this now and then, and returns BRIM_EINTERRUPTED if so. Costs a load. Since ABI 1.7. */
BRIM_EXPORT bool brim_stop_wanted(void);

/* Points at which calls can be made to fail: BRIM_FAULT in the environment says which (docs/faults.md). */
#define BRIM_FAULT_ALLOC "alloc"   /* memory of the host, asked for by brim */
#define BRIM_FAULT_PLACE "place"   /* an arena on a device */
#define BRIM_FAULT_LIB "lib"       /* a library's call; the name says for what kind of operation: "conv", "linear" */
#define BRIM_FAULT_BEGIN "begin"   /* the beginning of a step */
#define BRIM_FAULT_CLIENT "client" /* a client of a federation begins to train */
#define BRIM_FAULT_UPDATE "update" /* the end of a step, when parameters have changed and nothing is committed */

/* [any thread] True where the call that would follow is to fail for want of memory: leave it out, and do as if it had
 * said so. `point` is one of the above; `name` a static string, or NULL. Counts the call, so ask once for each. Costs a
 * load where nothing is to fail. Takes no memory. Since ABI 1.3. */
BRIM_EXPORT bool brim_fault_hit(const char *point, const char *name);

#ifdef __cplusplus
}
#endif
#endif
