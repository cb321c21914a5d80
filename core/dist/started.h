/* Finds out how this process was started: alone, or as a rank of a job. */
#ifndef BRIM_DIST_STARTED_H
#define BRIM_DIST_STARTED_H
#include <stdint.h>

/* [init] The number of ranks that were started together, according to the environment: by brim itself, by mpirun of
 * Open MPI, by launchers that use PMI (MPICH, Intel MPI), by srun. 1: this process was started alone. */
int32_t brim_dist_started(void);
/* [init] The number of this rank, from 0, according to the environment too. */
int32_t brim_dist_started_rank(void);
#endif
