"""Reads states.bin, the file of client states (core/store/states.h), in plain Python."""

import array
import struct

import tensors

HEADER = struct.Struct("<8sQQq24xQ")
STAMP = struct.Struct("<iiQ")


def slots(run):
    """Returns the slots that hold a state, by the offset at which they begin: {offset: (client, round)}."""
    data = (run / "states.bin").read_bytes()
    magic, size, _, count, _ = HEADER.unpack_from(data)
    assert magic == b"brimsta2", magic
    first = -(-(HEADER.size + count * STAMP.size) // 4096) * 4096
    stamps = (STAMP.unpack_from(data, HEADER.size + slot * STAMP.size)[:2] for slot in range(count))
    return {first + slot * (-(-size // 64) * 64): stamp for slot, stamp in enumerate(stamps) if stamp[1] > 0}


def read(run, checkpoint, code):
    """Returns the states that a checkpoint of the run refers to: {client: numbers}. `code`: f or d, the numbers'
    type."""
    rounds = tensors.read(checkpoint / "optimizer.safetensors")[0]["clients.last_kept"][2]
    data = (run / "states.bin").read_bytes()
    size = HEADER.unpack_from(data)[1]
    states = {client: array.array(code, data[at:at + size])
              for at, (client, number) in slots(run).items() if rounds[client] == number}
    assert set(states) == {client for client, number in enumerate(rounds) if number > 0}, (states.keys(), rounds)
    return states
