/* participants.jsonl of a federated run. Each line describes one round; for each client, in order of selection, it
 * gives the number of samples it trained on, its mean loss, and whether its update is in the global model:
 *
 *     {"round":1,"client":[7,2],"samples":[60,60],"loss":[2.21,2.3],"arrived":[true,true]}
 *
 * In a simulated world each line also gives the simulated seconds of each client, and why its update was left out:
 * "dropout", "late", "surplus", "diverged", or "" if it was not left out.
 *
 * With malicious clients (section attack) each line also gives which clients are malicious.
 *
 * A run that resumes from a checkpoint keeps the lines of the rounds up to it. */
#ifndef BRIM_TRAIN_PARTICIPANTS_H
#define BRIM_TRAIN_PARTICIPANTS_H
#include "base/text.h"
#include "federate/round.h"
#include "store/jsonl.h"

#define BRIM_PARTICIPANTS_NAME "participants.jsonl"

typedef struct brim_participants {
  brim_jsonl log; /* fd -1: not open */
  brim_text line; /* line of a round; reused */
} brim_participants;

/* [init] Opens the file in a run's folder and truncates or pads it to `rounds` lines. EIO. */
brim_status brim_participants_open(brim_participants *participants, const char *dir, int64_t rounds);
/* [step] Writes round number `round`, counted from 1. EIO. */
brim_status brim_participants_add(brim_participants *participants, int64_t round, const brim_round_result *result);
void brim_participants_close(brim_participants *participants);
#endif
