/* Dynamic loss scaling (Micikevicius et al., ICLR 2018), as in PyTorch's GradScaler: the loss is multiplied by a scale
 * before the backward pass, so that gradients of activations stay within the range of a 16-bit type, and the update
 * divides the gradients of parameters by that scale. If a step has a non-finite value, brim skips it and lowers the
 * scale; after enough other steps it raises the scale.
 *
 * The scale is a power of two, so it changes the bits only of values that would overflow or underflow without it. */
#ifndef BRIM_SETUP_LOSS_SCALE_H
#define BRIM_SETUP_LOSS_SCALE_H
#include "brim/status.h"
#include "config/settings.h"
#include "store/checkpoint.h"

/* ECONFIG if a scale is not a power of two. */
brim_status brim_loss_scale_check(const brim_settings *settings);
/* Whether the loss is scaled, as with precision=fp16. */
bool brim_loss_scale_is_on(const brim_settings *settings);
/* Sets the scale of a new run. A resumed run has the scale in its state, unless an older version of brim wrote the
 * checkpoint. */
void brim_loss_scale_start(const brim_settings *settings, brim_train_state *state);
/* Update the scale after a step that was kept, or that was skipped. False if the scale cannot be lowered further and
 * enough consecutive steps were skipped: training has then failed. */
void brim_loss_scale_keep(const brim_settings *settings, brim_train_state *state);
bool brim_loss_scale_skip(const brim_settings *settings, brim_train_state *state);
#endif
