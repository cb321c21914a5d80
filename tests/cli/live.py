"""The board of the processes' states, read as another program would: the layout of core/memory/live.h."""

import struct

HEADER, SLOT, SLOTS = 24, 512, 256
STATES = ["planning", "waiting", "training", "evaluating", "checkpoint", "recovering", "stopping", "working"]
FIELDS = [("layout", "I"), ("bytes", "I"), ("check", "Q"), ("stamp", "Q"), ("pid", "q"), ("pid_space", "Q"),
          ("start_ticks", "Q"), ("uid", "I"), ("rank", "i"), ("ranks", "i"), ("state", "I"), ("device", "i"),
          ("folder_fd", "i"), ("place", "I"), ("flags", "I"), ("board_fd", "i"), ("reserved", "I"), ("key", "Q"),
          ("peak_bytes", "Q"), ("taken_bytes", "Q"), *((f"class_bytes_{i}", "Q") for i in range(8)),
          ("started", "d"), ("since", "d"), ("updated", "d"), ("queue_seconds", "d"), ("step", "q"), ("steps", "q"),
          ("epoch", "q"), ("epochs", "q"), ("rate", "d"), ("left_seconds", "d"), ("backend", "24s"),
          ("command", "16s"), ("loss", "d"), ("accuracy", "d"), ("model", "32s"), ("run", "168s")]
FORMAT = "<" + "".join(kind for _, kind in FIELDS)
assert struct.calcsize(FORMAT) == SLOT


def fnv(data):
    value = 0xcbf29ce484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001b3 & 0xffffffffffffffff
    return value


def read(folder):
    """Returns the slots in use by pid, without those that a process is writing at this moment."""
    try:
        data = (folder / "runs").read_bytes()
    except FileNotFoundError:
        return {}
    found = {}
    for i in range(SLOTS):
        at = HEADER + i * (SLOT + 1)
        slot = data[at + 1:at + 1 + SLOT]
        if len(slot) < SLOT or data[at] != 1:
            continue
        if fnv(slot[:8] + bytes(8) + slot[16:]) != struct.unpack("<Q", slot[8:16])[0]:
            continue
        values = dict(zip((name for name, _ in FIELDS), struct.unpack(FORMAT, slot)))
        values = {name: value.split(b"\0")[0].decode() if isinstance(value, bytes) else value
                  for name, value in values.items()}
        values["state"] = STATES[values["state"]]
        found[values["pid"]] = values
    return found
