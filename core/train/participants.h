/* participants.jsonl of a federation's run: a line for each round, which says of its clients, in the order in which
 * they were selected, how many samples they trained on, their mean loss, and whether their update is in the global
 * model:
 *
 *     {"round":1,"client":[7,2],"samples":[60,60],"loss":[2.21,2.3],"arrived":[true,true]}
 *
 * In a simulated world also the seconds that each spent there, and why it was left out: "dropout", "late", "surplus",
 * "diverged", or "" of one that was not.
 *
 * A run that goes on from the checkpoint of a round keeps as many lines. */
#ifndef BRIM_TRAIN_PARTICIPANTS_H
#define BRIM_TRAIN_PARTICIPANTS_H
#include "base/text.h"
#include "federate/round.h"
#include "store/jsonl.h"

#define BRIM_PARTICIPANTS_NAME "participants.jsonl"

typedef struct brim_participants {
  brim_jsonl log; /* its fd is -1: not open */
  brim_text line; /* of a round; keeps its room */
} brim_participants;

/* [init] Opens the file in a run's folder, cut or filled up to `rounds` lines. EIO. */
brim_status brim_participants_open(brim_participants *participants, const char *dir, int64_t rounds);
/* [step] Round number `round`, counted from 1. EIO. */
brim_status brim_participants_add(brim_participants *participants, int64_t round, const brim_round_result *result);
void brim_participants_close(brim_participants *participants);
#endif
