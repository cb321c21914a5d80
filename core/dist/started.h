/* How this process was started: alone, or as a rank of a job. */
#ifndef BRIM_DIST_STARTED_H
#define BRIM_DIST_STARTED_H
#include <stdint.h>

/* [init] How many ranks were started together with this one, as the environment says: by brim itself, by mpirun of Open
 * MPI, by launchers that speak PMI (MPICH, Intel MPI), by srun. 1: it was started alone. */
int32_t brim_dist_started(void);
/* [init] Which of them this one is, from 0, by the same. */
int32_t brim_dist_started_rank(void);
#endif
