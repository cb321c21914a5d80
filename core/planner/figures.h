/* What plans that could be take of memory and time, by the device profile: what policies choose by, and brim plan
 * shows. */
#ifndef BRIM_PLANNER_FIGURES_H
#define BRIM_PLANNER_FIGURES_H
#include "brim/policy.h"
#include "exec/predict.h"
#include "planner/planner.h"

typedef struct brim_figures {
  uint64_t peak_bytes, lower_bound_bytes, activation_bytes; /* exact */
  size_t recomputed;                                        /* operations */
  double recompute_share;                                   /* see brim_recompute_share */
  double step_seconds;                                      /* predicted, of this rank's share with its update */
  double update_seconds;                                    /* of it: the update, and what the ranks take to add up */
  enum brim_basis basis;
} brim_figures;

/* [init] Opens the profile of the planner's device, if it is not open. ECONFIG, EINVAL, ELOAD if memory.profile names a
 * file that is of something else, damaged, or cannot be read. */
brim_status brim_planner_open_profile(brim_planner *planner);
/* [init] In line with others for the planner's own device, if that is shared; not where it would have to wait for
 * more than the turns of those before: ENODEVICE. *claim is NULL for a device that nobody shares. */
brim_status brim_planner_claim_own(brim_planner *planner, uint64_t bytes, brim_claim **claim);
/* [plan] Figures of a choice. What the profile lacks is timed before (unless memory.timing or the setup's options say
 * no, or it would take long, or there is no room): then no plan may be placed. */
brim_status brim_planner_figures(brim_planner *planner, const brim_choice *choice, brim_figures *out);
/* [plan] Predicted seconds of a step by a plan that is there, from what the profile has. NAN without one. */
double brim_planner_step_seconds(brim_planner *planner, const brim_plan *plan, int64_t batch);
/* [init] Times what the profile lacks of a plan, and of what the device does at most, however long that takes. No plan
 * may be placed. ECONFIG where nothing is timed; ENOMEM_DEVICE, ENODEVICE: there is no room. */
brim_status brim_planner_time(brim_planner *planner, const brim_plan *plan);
/* [plan] Writes the file of the profile, if something was timed. What goes wrong there is said and no failure. */
void brim_planner_save_profile(const brim_planner *planner);

/* ---- of a federation's lanes (rounds.h), which have a share of the threads ---- */

/* [plan] The profile of the planner's device with other threads; the caller closes it. ENOMEM_HOST. */
brim_status brim_planner_profile_of(const brim_planner *planner, const brim_device_info *info, brim_profile **out);
void brim_planner_save_profile_of(const brim_planner *planner, brim_profile *profile);
/* [init] Times what that profile lacks of a plan, where brim_planner_figures would. */
brim_status brim_planner_time_client(brim_planner *planner, brim_profile *profile, const brim_device_info *info,
                                     const brim_plan *plan);
/* [plan] What preparing so many samples takes one thread. */
brim_prediction brim_planner_predict_samples(brim_planner *planner, brim_profile *profile, int64_t samples);
enum brim_basis brim_prediction_basis(const brim_prediction *t);

#define BRIM_PROFILE_NAME "profile.jsonl" /* in a run's folder */
/* What steps of a plan really took: if that is no time like the predicted one, what it was predicted by is
 * doubted, and timed again when it is asked for next. Times that come out the same then are sure, and not doubted
 * again.
 */
void brim_planner_compare_times(brim_planner *planner, const brim_plan *plan, int64_t batch, double seconds);
#endif
