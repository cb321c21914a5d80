"""Reads states.bin, the file of client states (core/store/states.h), in plain Python."""

import array
import struct

import tensors

HEADER = struct.Struct("<8sQQq32x")
STAMP = struct.Struct("<ii")


def read(run, checkpoint, code):
    """The states that a checkpoint of the run refers to: {client: numbers}. `code`: f or d, the type of the numbers."""
    rounds = tensors.read(checkpoint / "optimizer.safetensors")[0]["clients.last_kept"][2]
    data = (run / "states.bin").read_bytes()
    magic, size, _, slots = HEADER.unpack_from(data)
    assert magic == b"brimstat", magic
    first = -(-(HEADER.size + slots * STAMP.size) // 4096) * 4096
    states = {}
    for slot in range(slots):
        client, number = STAMP.unpack_from(data, HEADER.size + slot * STAMP.size)
        if number > 0 and rounds[client] == number:
            at = first + slot * (-(-size // 64) * 64)
            states[client] = array.array(code, data[at:at + size])
    assert set(states) == {client for client, number in enumerate(rounds) if number > 0}, (states.keys(), rounds)
    return states
