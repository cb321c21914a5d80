/* Exports of models that wrap a backbone: merged into one plain model, or only the trained part, in PEFT's format. */
#ifndef BRIM_EXPORT_MERGE_H
#define BRIM_EXPORT_MERGE_H
#include "export/export.h"
#include "setup/setup.h"

/* [init] Makes the parameters with which the backbone alone gives the same results: the backbone's own, with the
 * low-rank changes added, and the trained head under the name of the backbone's head. `trained`: the parameters of
 * `checkpoint`. The result has single precision and lives in `arena`. ECONFIG if the model wraps no backbone; ELOAD if
 * the checkpoint belongs to another model, or was trained on other weights than the setup's. */
brim_status brim_merge(const brim_setup *setup, const char *checkpoint, const brim_parameters *trained,
                       brim_arena *arena, brim_parameters *out);
/* [init] Makes the graph of a model that wraps a backbone. ECONFIG if the setup has no such model. */
brim_status brim_merge_graph(const brim_setup *setup, brim_graph **out);
/* [init] Writes adapter_model.safetensors and adapter_config.json of Hugging Face's PEFT into `folder`, which is
 * created. Writes a change of a third of a layer as a change of the whole layer, with zeros. ECONFIG if the model is
 * not `lora`, or if a layer has several changes, which PEFT cannot represent. EIO. */
brim_status brim_peft_write(const brim_setup *setup, const brim_parameters *trained, const char *folder);
#endif
