/* A pool of threads that all run the same job: one thread for each lane of a federation, once a round. A round may take
 * less time than waking a thread, so the threads spin for a moment before they sleep. */
#ifndef BRIM_FEDERATE_CREW_H
#define BRIM_FEDERATE_CREW_H
#include "brim/status.h"

typedef struct brim_crew brim_crew;
/* The job that member `number` runs. */
typedef void (*brim_crew_fn)(void *context, int32_t number);

/* [init] Makes a crew of `size` members; the caller of brim_crew_run is number 0. ENOMEM_HOST. */
brim_status brim_crew_open(int32_t size, brim_crew_fn work, void *context, brim_crew **out);
void brim_crew_close(brim_crew *crew); /* NULL: nothing */
/* [step] Makes all members run the job; returns when the last has finished. One caller at a time. */
void brim_crew_run(brim_crew *crew);
#endif
