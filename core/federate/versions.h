/* Earlier versions of the global model, from which clients in flight started (federate.async), in host memory. Version
 * v is the global model after v rounds. A client trains in the round in which its update arrives: brim then writes that
 * client's version to the server's arena, in place of the global model. Buffers are not part of a version: a client's
 * running statistics start from the current ones, so that the global model's statistics are means of clients'
 * statistics. Changes relative to older statistics could make a variance negative. Internal to core/federate. */
#ifndef BRIM_FEDERATE_VERSIONS_H
#define BRIM_FEDERATE_VERSIONS_H
#include "exec/exec.h"
#include "setup/setup.h"
#include "store/safetensors.h"

#define BRIM_VERSION_TENSORS 2

typedef struct brim_versions brim_versions;

/* [init] `serve`: the server's update program, from any plan of the setup. *out is NULL if clients always start from
 * the current version (brim_setup_versions is 0). ENOMEM_HOST. */
brim_status brim_versions_open(const brim_setup *setup, const brim_program *serve, brim_versions **out);
void brim_versions_close(brim_versions *versions); /* NULL: nothing */
/* [step] Copies the global model from the arena as version `version`. It replaces a version for which `is_used` returns
 * false. Errors of the backend. */
typedef bool (*brim_version_used_fn)(void *context, int64_t version);
brim_status brim_versions_keep(brim_versions *versions, brim_exec *exec, const brim_program *serve, int64_t version,
                               brim_version_used_fn is_used, void *context);
/* [step] Writes a kept version to the arena. EINTERNAL if it was not kept, and errors of the backend. */
brim_status brim_versions_load(const brim_versions *versions, brim_exec *exec, const brim_program *serve,
                               int64_t version);
/* [any] Lists all versions as tensors of a checkpoint, in memory of `versions`, to be written, or to be read between
 * two rounds. Returns their number, 0 if versions is NULL. If out is NULL, only counts them. */
size_t brim_versions_tensors(brim_versions *versions, brim_safetensor *out);
#endif
