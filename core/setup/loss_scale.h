/* Dynamic loss scaling (Micikevicius et al., ICLR 2018), as PyTorch's GradScaler: the loss is multiplied by a scale
 * before the backward pass, so that gradients of activations stay within the range of a type of 16 bits, and what comes
 * to the parameters is divided by it. A step in which something is not finite is skipped, and the scale is lowered;
 * after enough steps without one it is raised.
 *
 * The scale is a power of two, so that it changes no bit but of what would be too large or too small without. */
#ifndef BRIM_SETUP_LOSS_SCALE_H
#define BRIM_SETUP_LOSS_SCALE_H
#include "brim/status.h"
#include "config/settings.h"
#include "store/checkpoint.h"

/* ECONFIG if a scale would not be a power of two. */
brim_status brim_loss_scale_check(const brim_settings *settings);
/* Is the loss scaled? With precision=fp16. */
bool brim_loss_scale_is_on(const brim_settings *settings);
/* The scale of a run that begins; one that goes on has it in its state, unless its checkpoint is of before. */
void brim_loss_scale_start(const brim_settings *settings, brim_train_state *state);
/* What a step does to the scale: it was kept, or skipped. False if the scale cannot be lowered any more and enough
 * steps were skipped in a row: then training has failed. */
void brim_loss_scale_keep(const brim_settings *settings, brim_train_state *state);
bool brim_loss_scale_skip(const brim_settings *settings, brim_train_state *state);
#endif
