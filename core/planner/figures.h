/* The memory and time of possible plans, computed with the device profile, for policies and `brim plan`. */
#ifndef BRIM_PLANNER_FIGURES_H
#define BRIM_PLANNER_FIGURES_H
#include "brim/policy.h"
#include "exec/predict.h"
#include "planner/planner.h"

typedef struct brim_figures {
  uint64_t peak_bytes, lower_bound_bytes, activation_bytes; /* exact */
  size_t recomputed;                                        /* operations */
  double recompute_share;                                   /* see brim_recompute_share */
  double step_seconds;   /* predicted time of this rank's share of a step, with its update */
  double update_seconds; /* the part of it that the update and the collectives take */
  enum brim_basis basis;
} brim_figures;

/* [init] Opens the profile of the planner's device, if it is not open. ECONFIG, EINVAL, ELOAD if memory.profile names
 * a file that belongs to another device, is damaged, or cannot be read. */
brim_status brim_planner_open_profile(brim_planner *planner);
/* [init] Joins the queue for the planner's own device, if it is shared. Waits only while other runs or ranks are
 * placing their plans; otherwise ENODEVICE. *claim is NULL for a device that is not
 * shared. */
brim_status brim_planner_claim_own(brim_planner *planner, uint64_t bytes, brim_claim **claim);
/* [plan] The figures of a choice. First times the parts that the profile lacks, unless memory.timing or the setup's
 * options disable timing, it would take long, or there is no room. No plan may be placed meanwhile. */
brim_status brim_planner_figures(brim_planner *planner, const brim_choice *choice, brim_figures *out);
/* [plan] Predicts the seconds of a step of an existing plan from the profile; NAN without a profile. */
double brim_planner_step_seconds(brim_planner *planner, const brim_plan *plan, int64_t batch);
/* [init] Times the device's ceilings (exec/ceiling.h) that the profile lacks, for the types of this plan, unless timing
 * is disabled. No plan may be placed. ENOMEM_DEVICE, ENODEVICE: there is no room. */
brim_status brim_planner_time_ceilings(brim_planner *planner, const brim_plan *like);
/* [init] Times the parts of a plan and the device's ceilings that the profile lacks, however long that takes. Call it
 * while no plan is placed. ECONFIG if timing is disabled; ENOMEM_DEVICE, ENODEVICE: there is no room. */
brim_status brim_planner_time(brim_planner *planner, const brim_plan *plan);
/* [plan] Writes the profile's file if anything was timed. An error is only a warning. */
void brim_planner_save_profile(const brim_planner *planner);

/* ---- a federation's lanes (rounds.h), each with a share of the threads ---- */

/* [plan] Opens the profile of the planner's device for another number of threads; the caller closes it. ENOMEM_HOST. */
brim_status brim_planner_profile_of(const brim_planner *planner, const brim_device_info *info, brim_profile **out);
void brim_planner_save_profile_of(const brim_planner *planner, brim_profile *profile);
/* [init] Times the parts of a plan that such a profile lacks, under the conditions of brim_planner_figures. */
brim_status brim_planner_time_client(brim_planner *planner, brim_profile *profile, const brim_device_info *info,
                                     const brim_plan *plan);
/* [plan] Predicts the time in which one thread prepares this many samples. */
brim_prediction brim_planner_predict_samples(brim_planner *planner, brim_profile *profile, int64_t samples);
enum brim_basis brim_prediction_basis(const brim_prediction *t);

#define BRIM_PROFILE_NAME "profile.jsonl" /* in a run's folder */
/* Compares the measured time of a plan's steps with the prediction. If they differ, marks the profile's times as
 * doubted, so that brim measures them again when it next needs them. If that confirms a time, it is not doubted
 * again. */
void brim_planner_compare_times(brim_planner *planner, const brim_plan *plan, int64_t batch, double seconds);
#endif
