/* Simulates compressed updates (federate.compression): after a client's training, changes its parameters so that their
 * difference from the global model is the update that a server would receive. Buffers are not compressed. Random
 * numbers depend only on the seed, the client, the round and the position of a value. */
#ifndef BRIM_FEDERATE_COMPRESS_H
#define BRIM_FEDERATE_COMPRESS_H
#include "federate/kept.h"
#include "setup/setup.h"

/* Memory for the largest parameter of an update, or NULL if updates are not compressed. */
typedef struct brim_compressor {
  const brim_setup *setup;
  double *own, *global, *sorted; /* sorted: with top_k */
} brim_compressor;

/* [init] fold: the lane's program of that name. ENOMEM_HOST. Call brim_compressor_close even on failure. */
brim_status brim_compressor_open(const brim_setup *setup, const brim_program *fold, brim_compressor *out);
void brim_compressor_close(brim_compressor *compressor);
/* [step] Compresses the update of a client that has trained in the lane; does nothing if updates are not compressed.
 * Does not change a parameter whose change is not finite. With error feedback, adds the residual that compression left
 * of the client's last update, from `kept`, and stages the residual of this update. EIO. */
brim_status brim_compressor_run(const brim_compressor *compressor, brim_kept *kept, const brim_keeping *lane,
                                const brim_program *fold, int64_t round);
#endif
