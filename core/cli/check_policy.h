/* What the checks of policies share: an instance in a made-up world, and questions to it. See check.h. */
#ifndef BRIM_CLI_CHECK_POLICY_H
#define BRIM_CLI_CHECK_POLICY_H
#include "cli/check.h"
#include "cli/check_worlds.h"
#include "memory/policy_call.h"

#define BRIM_ASKED_FEW 12 /* worlds, where each is asked about often */

/* A policy of a configuration; nobody listens to what it decides. */
typedef struct brim_asked {
  brim_config *config;
  brim_policies *policies; /* NULL: there is no instance */
  brim_made_world world;
} brim_asked;

typedef union brim_answer {
  brim_place place;
  brim_plan_choice plan;
  brim_action action;
  brim_boundary boundary;
  brim_step_plan step;
} brim_answer;

/* Too large for some stacks; freed with what it holds. */
brim_asked *brim_asked_new(void);
void brim_asked_free(brim_asked *a);
/* The configuration that takes the policy; `further`: one more word of it, or NULL. */
brim_status brim_asked_configure(brim_check *c, const char *further, brim_asked *a);
brim_status brim_asked_open(brim_asked *a);
void brim_asked_close(brim_asked *a);
/* One question, as a run asks it; `number` tells the moment of hooks that are called again and again. */
brim_status brim_asked_ask(brim_asked *a, enum brim_hook hook, int64_t number, brim_answer *out);
/* The thread's error, but for its further lines, which say to call this very command. */
enum brim_finding brim_check_fail_short(brim_check *c, const char *what);

/* check_policy_life.c */
enum brim_finding brim_check_create(brim_check *c);
enum brim_finding brim_check_leaks(brim_check *c);
enum brim_finding brim_check_repeats(brim_check *c);
enum brim_finding brim_check_parameters(brim_check *c);
#endif
