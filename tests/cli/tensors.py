"""safetensors files in plain Python: reads exports, and writes files as published models have them."""

import array
import json
import struct

CODES = {"I32": "i", "F32": "f", "F64": "d", "BF16": "H", "F16": "H", "I64": "q", "U8": "B", "BOOL": "B"}


def read(path):
    """Returns {name: (type, shape, stored numbers)} and the metadata."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        first, end = entry["data_offsets"]
        tensors[name] = (entry["dtype"], entry["shape"],
                         array.array(CODES[entry["dtype"]], data[8 + size + first:8 + size + end]))
    return tensors, metadata


def write(path, tensors, metadata=None):
    """Writes a file from the results of read()."""
    header, data = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for name, (kind, shape, numbers) in tensors.items():
        values = array.array(CODES[kind], numbers).tobytes()
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_shards(folder, tensors):
    """Writes two files and an index, as Hugging Face splits large models."""
    names = list(tensors)
    parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for part, own in parts.items():
        write(folder / part, {name: tensors[name] for name in own}, {"format": "pt"})
    places = {name: part for part, own in parts.items() for name in own}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))


def transposed(tensor):
    """Returns the transpose of a matrix."""
    kind, (rows, columns), values = tensor
    return kind, [columns, rows], [values[r * columns + c] for c in range(columns) for r in range(rows)]
