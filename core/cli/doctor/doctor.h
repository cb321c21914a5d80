/* The findings and checks of `brim doctor`. Internal to core/cli/doctor. */
#ifndef BRIM_CLI_DOCTOR_DOCTOR_H
#define BRIM_CLI_DOCTOR_DOCTOR_H
#include "cli/cli.h"

enum brim_finding_level { BRIM_FINDING_OK, BRIM_FINDING_NOTE, BRIM_FINDING_WARNING, BRIM_FINDING_PROBLEM };

typedef struct brim_finding {
  enum brim_finding_level level;
  const char *area;          /* "plugins" */
  const char *text, *remedy; /* remedy NULL: the user need not do anything */
} brim_finding;

typedef struct brim_doctor {
  brim_cli *cli;
  const brim_operands *words; /* overrides */
  double job_seconds;         /* time limit for a test job of two ranks; 0: starts no job */
  brim_config *config;        /* NULL: the configuration could not be composed */
  brim_arena arena;
  brim_finding *finding;
  size_t count, room;
} brim_doctor;

/* Adds a finding. */
void brim_doctor_add(brim_doctor *d, enum brim_finding_level level, const char *area, const char *remedy,
                     const char *format, ...) BRIM_PRINTF(5, 6);
/* Adds the thread's error: its first line is the finding, and the other lines are the remedy; without other lines,
 * `remedy` is. */
void brim_doctor_add_error(brim_doctor *d, enum brim_finding_level level, const char *area, const char *remedy);

/* The checks; each is about one area. */
void brim_doctor_plugins(brim_doctor *d);
void brim_doctor_configuration(brim_doctor *d); /* sets d->config */
void brim_doctor_devices(brim_doctor *d);
void brim_doctor_run(brim_doctor *d);
void brim_doctor_ranks(brim_doctor *d);
void brim_doctor_shared(brim_doctor *d);
void brim_doctor_runs(brim_doctor *d);
void brim_doctor_cache(brim_doctor *d);
void brim_doctor_memory(brim_doctor *d);
void brim_doctor_limits(brim_doctor *d);
void brim_doctor_environment(brim_doctor *d);
void brim_doctor_terminal(brim_doctor *d);
#endif
