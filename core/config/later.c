/* The table of what is declared and not available, and how a value is judged: parsed by its type, so that `0x0` and
 * `0` are the same, and compared as a parsed value. */
#include "config/later.h"

#include <string.h>

#include "config/same.h"
#include "param/value.h"

/* A key without a field. */
#define LATER(section, T, key, def, range, help)                                                                       \
  {                                                                                                                    \
    section,                                                                                                           \
    {                                                                                                                  \
      key, BRIM_##T, 0, 0, def, range, help                                                                            \
    }                                                                                                                  \
  }

/* The defaults of the keys of federated training say that there is none; its configuration will set others. */
const brim_later_key brim_later_keys[] = {
    LATER("memory", BYTES, "headroom_mb", "0", NULL, "memory of the device that plans leave to others"),
    LATER("", I64, "total_clients", "0", "[0,1000000000]", "clients of federated training"),
    LATER("", I64, "clients_per_round", "0", "[0,1000000000]", "clients that a federated round trains on"),
    LATER("", I64, "rounds", "0", "[0,1000000000]", "federated rounds"),
    LATER("", I64, "parallel_clients", "-1", "[-1,65536]", "clients that train at a time; -1: the largest safe number"),
    LATER("", STR, "method", "", NULL, "how the clients of a round are selected"),
    LATER("", I64, "repeats", "1", "[1,1000000]", "times that the whole experiment is run"),
    LATER("", STR, "protocol", "", NULL, "a label: messaging is modelled as a network scenario"),
    {NULL, {0}},
};

brim_status brim_later_check(const brim_later_key *key, const brim_yaml *node, brim_arena *arena, brim_text *problem)
{
  brim_any_value value;
  memset(&value, 0, sizeof value);
  BRIM_TRY(brim_value_parse(&key->param, node, &value, arena, problem));
  const brim_yaml *neutral = brim_value_default(&key->param, arena);
  return neutral && brim_value_same(&key->param, node, neutral, arena) ? BRIM_OK : BRIM_ENOTSUP;
}
