/* Exports of models around another: with its backbone as one plain model, or what was trained alone, as PEFT keeps it.
 */
#ifndef BRIM_EXPORT_MERGE_H
#define BRIM_EXPORT_MERGE_H
#include "export/export.h"
#include "setup/setup.h"

/* [init] The parameters of the backbone with the changes of low rank added, and the head that was trained under the
 * name that the backbone's own has: what the backbone alone would have for the same results. `trained`: those of a
 * checkpoint. In single precision, in `arena`. ECONFIG if the model is around none; ELOAD if the checkpoint is of
 * another model, or was trained on other weights than the setup's. */
brim_status brim_merge(const brim_setup *setup, const char *checkpoint, const brim_parameters *trained,
                       brim_arena *arena, brim_parameters *out);
/* [init] The graph of a model around another. ECONFIG if the setup has no backbone. */
brim_status brim_merge_graph(const brim_setup *setup, brim_graph **out);
/* [init] Writes adapter_model.safetensors and adapter_config.json of Hugging Face's PEFT into `folder`, which is made.
 * A change of a third of a layer is written as one of the whole layer, with zeros. ECONFIG if the model is no `lora`,
 * or layers have several changes each, which PEFT has no form for. EIO. */
brim_status brim_peft_write(const brim_setup *setup, const brim_parameters *trained, const char *folder);
#endif
