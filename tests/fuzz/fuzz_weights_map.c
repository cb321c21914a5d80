/* Fuzzes name maps: an accepted map maps every name. The reverse map of a file's name gives the name that maps to it,
 * or no name. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "store/weights_map.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
  static const char *const names[] = {"",
                                      "weight",
                                      "transformer.h.0.attn.c_attn.weight",
                                      "h.11.mlp.c_proj.bias",
                                      "vision_model.encoder.layers.3.self_attn.q_proj.weight",
                                      "...",
                                      "a.b.c.d.e.f.g.h.i.j.k"};
  brim_arena arena = {0};
  brim_weights_map map;
  if (brim_weights_map_parse(&arena, (const char *)bytes, size, "input", "input", &map) != BRIM_OK) {
    if (brim_error_text()[0] == '\0') abort();
    brim_arena_release(&arena);
    return 0;
  }
  (void)brim_weights_map_recognises(&map, names, sizeof names / sizeof names[0]);
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    const brim_weights_way to = brim_weights_map_to_model(&map, &arena, names[i]);
    const brim_weights_way back = brim_weights_map_to_file(&map, &arena, to.name ? to.name : names[i]);
    if (to.name && to.same_as) abort();
    if (!back.name) abort();
  }
  brim_arena_release(&arena);
  return 0;
}
