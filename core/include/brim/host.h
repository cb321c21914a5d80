/* Host services: memory and processors within the limits of this process's control groups (versions 1 and 2), files,
 * caches, and injected faults for tests. */
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
  uint64_t memory_limit;    /* bytes; UINT64_MAX: no limit */
  uint64_t memory_headroom; /* the limit minus used memory that cannot be reclaimed at once */
  double processors;        /* CPU quota divided by its period; 0: no quota */
} brim_cgroup;
/* [any thread] Reads the limits of this process's control groups. mount: "/sys/fs/cgroup"; membership:
 * "/proc/self/cgroup". Limits that cannot be read count as absent. */
BRIM_EXPORT brim_cgroup brim_cgroup_read(const char *mount, const char *membership);

/* [any thread] The number of threads that this process can keep busy, at least 1: the processors that it may run on,
 * within the control group's quota, divided among the ranks that share them. Since ABI 1.4. */
BRIM_EXPORT int32_t brim_host_threads(void);

typedef struct brim_host_memory {
  uint64_t total_bytes, available_bytes; /* UINT64_MAX: unknown */
  int32_t is_grouped;                    /* 1: the limit is the control group's, not the machine's */
} brim_host_memory;
/* [any thread] The memory of the machine or of the control group, whichever is less. */
BRIM_EXPORT brim_host_memory brim_host_memory_now(void);

/* [any thread] Allocates zeroed memory, to be freed with free(). NULL if there is not enough, or a test injects that
 * fault. Plugins should allocate with it. Since ABI 1.3. */
BRIM_EXPORT void *brim_try_calloc(size_t count, size_t bytes);

/* [any thread] Reads the next `bytes` bytes of an open file into `out`. ELOAD, with the reason, also if the file ends
 * before; `path` is for the message. Since ABI 1.5. */
BRIM_EXPORT brim_status brim_read_whole(const char *path, int fd, size_t bytes, void *out);

/* [any thread] Reads a regular file of at most `most` bytes. *out has its *bytes bytes and a '\0' after them, until the
 * caller frees it; NULL on failure. ELOAD, ENOMEM_HOST. Since ABI 1.13. */
BRIM_EXPORT brim_status brim_read_file(const char *path, size_t most, char **out, size_t *bytes);

/* [any thread] Reads the tokenizer in a GGUF file as the texts of Hugging Face's tokenizer.json and
 * tokenizer_config.json (which has the chat template, if any). The caller frees both, which end in '\0'. ELOAD, with
 * the reason, also for a kind of tokenizer that brim does not know. Since ABI 1.12. */
BRIM_EXPORT brim_status brim_gguf_tokenizer(const char *path, char **tokenizer, char **config);

/* [any thread] Creates the missing folders on the path to `file`. ECONFIG if a part of the path cannot be a folder, EIO
 * otherwise; both name that part. Since ABI 1.5. */
BRIM_EXPORT brim_status brim_make_folders_for(const char *file);

/* [any thread] Begins a file in a cache that all processes of a user share: creates the folders of `path`, and opens an
 * empty temporary file beside it for writing. *fd is -1 if another process is writing the same file. The temporary file
 * is locked (flock) while it is open; those of killed processes are removed. EIO, ECONFIG. Since ABI 1.7. */
BRIM_EXPORT brim_status brim_cache_begin(const char *path, int *fd);
/* [any thread] Ends the file, and closes *fd and sets it to -1; does nothing if *fd is -1. `keep`: the file is complete
 * and is moved to `path`. Otherwise it is removed, and the thread's error text does not change. EIO: the file is
 * removed. Since ABI 1.7. */
BRIM_EXPORT brim_status brim_cache_end(const char *path, int *fd, bool keep);

/* [any thread] True if the process was asked to stop (Ctrl-C, SIGTERM). Long operations of a plugin, such as open() of
 * a dataset, should call it regularly and return BRIM_EINTERRUPTED if it is true. Costs one load. Since ABI 1.7. */
BRIM_EXPORT bool brim_stop_wanted(void);

/* Fault points: the environment variable BRIM_FAULT selects the calls that fail (docs/faults.md). */
#define BRIM_FAULT_ALLOC "alloc"   /* allocation of host memory by brim */
#define BRIM_FAULT_PLACE "place"   /* placing an arena on a device */
#define BRIM_FAULT_LIB "lib"       /* a call of a library; the name is the kind of operation: "conv", "linear" */
#define BRIM_FAULT_BEGIN "begin"   /* the beginning of a step */
#define BRIM_FAULT_CLIENT "client" /* the beginning of a client's training */
#define BRIM_FAULT_UPDATE "update" /* the end of a step, after parameters changed and before the commit */

/* [any thread] True if the next call must fail as if memory had run out: then skip the call and handle the failure.
 * `point` is one of the above; `name` is a static string or NULL. brim counts these calls, so call it exactly once per
 * call that can fail. Costs one load if no fault is set. Does not allocate. Since ABI 1.3. */
BRIM_EXPORT bool brim_fault_hit(const char *point, const char *name);

#ifdef __cplusplus
}
#endif
#endif
