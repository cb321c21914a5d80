/* The file of client states: states.bin in the run's folder, sparse, with slots of one size. Each client has its newest
 * slot and the slot that the last checkpoint refers to; these are often the same. A round writes only to other slots,
 * so a failed round changes nothing, and the slots of the last checkpoint stay intact if the process is killed at any
 * moment. Checkpoints do not copy states: they contain the round of each client's state (brim_states_rounds). A slot is
 * valid if its stamp, in a table at the start of the file, has the client and that round. A stamp also has a checksum
 * of the slot, which brim_states_check compares.
 *
 * brim reads and writes the file by offset instead of mapping it, so that a full disk causes an error instead of a
 * signal, and the file's pages do not count as memory of the process.
 *
 * Ranks of one host share the file: they choose the same slots, and each writes the slots of the clients that it
 * trained. If a job spans several hosts, the first rank has the file, and each other rank has an unlinked copy. */
#ifndef BRIM_STORE_STATES_H
#define BRIM_STORE_STATES_H
#include <stdbool.h>
#include <stdint.h>

#include "brim/status.h"

#define BRIM_STATES_NAME "states.bin"

typedef struct brim_states brim_states;

typedef struct brim_states_layout {
  int64_t clients, places; /* places: the most clients in a round */
  uint64_t bytes;          /* bytes of a client's state */
  uint64_t hash;           /* hash of the names and sizes of a state's parts */
} brim_states_layout;

/* How a rank opens the file. */
enum brim_states_access {
  BRIM_STATES_CREATE, /* a new file */
  BRIM_STATES_SHARE,  /* the run's existing file */
  BRIM_STATES_JOIN,   /* the run's existing file, for a rank that is not the first; it changes only slots of its own
                         clients */
  BRIM_STATES_COPY    /* an unlinked copy of the run's file, for a rank on another host */
};

/* [init] Makes the index, without a file. No client has a state. ENOMEM_HOST. */
brim_status brim_states_open(const brim_states_layout *layout, brim_states **out);
void brim_states_close(brim_states *states); /* NULL: nothing */
/* [init] Opens the file in the folder; NULL: makes an unlinked file. ELOAD: it is missing, damaged or has another
 * layout; EIO. */
brim_status brim_states_attach(brim_states *states, const char *folder, enum brim_states_access access);
bool brim_states_is_attached(const brim_states *states);
/* [any] The round of each client's state, from 1; 0: the client has no state. [clients]; written to a checkpoint or,
 * between two rounds, read from one. */
int32_t *brim_states_rounds(brim_states *states);
/* [init] Finds the slots after the rounds were read from a checkpoint. ELOAD if a slot is missing. */
brim_status brim_states_find(brim_states *states, const char *checkpoint);
/* [step] Makes all written states durable; call it before writing a checkpoint that refers to them. EIO. */
brim_status brim_states_sync(const brim_states *states);
/* [step] Call when that checkpoint is on disk: from then on its slots are protected instead of the previous
 * checkpoint's. */
void brim_states_checkpointed(brim_states *states);

static inline bool brim_states_has(brim_states *states, int64_t client)
{
  return brim_states_rounds(states)[client] > 0;
}
/* [step, any thread] Compares the newest state of a client, which must have one, with its checksum. Call it before you
 * read the state's parts. ELOAD: the state is damaged; EIO. */
brim_status brim_states_check(const brim_states *states, int64_t client);
/* [step, any thread] Reads a part of the newest state of a client, which must have one. EIO. */
brim_status brim_states_read(const brim_states *states, int64_t client, uint64_t at, void *data, uint64_t bytes);

/* [step] Begins a round of `count` clients, at places 0, 1, ..., and discards the slots of an unfinished round. */
void brim_states_begin(brim_states *states, int64_t count);
/* [step, any thread; each place on one thread] Write the state of the client at a place: first remove the slot's stamp,
 * then write the parts, then stamp the slot with its client, its round (from 0) and its checksum. EIO. */
brim_status brim_states_unstamp(const brim_states *states, int64_t place);
brim_status brim_states_write(const brim_states *states, int64_t place, uint64_t at, const void *data, uint64_t bytes);
brim_status brim_states_stamp(const brim_states *states, int64_t place, int64_t client, int64_t round);
/* [step, any thread] Reads a part of the state that was written at a place. EIO. */
brim_status brim_states_read_place(const brim_states *states, int64_t place, uint64_t at, void *data, uint64_t bytes);
/* [step] Makes the state that was written at the place the client's newest one. */
void brim_states_commit(brim_states *states, int64_t place, int64_t client, int64_t round);

/* The number of slots, and the bytes of a file with `slots` slots in use. */
int64_t brim_states_slots(const brim_states_layout *layout);
uint64_t brim_states_file_bytes(const brim_states_layout *layout, int64_t slots);
/* Host memory of the index. */
uint64_t brim_states_host_bytes(const brim_states_layout *layout);
#endif
