"""safetensors files in plain Python: what tests read of exports, and write as downloads would be."""

import array
import json
import struct

CODES = {"I32": "i", "F32": "f", "F64": "d", "BF16": "H", "F16": "H", "I64": "q", "U8": "B", "BOOL": "B"}


def read(path):
    """Name -> (type, shape, numbers as they are kept), and the metadata."""
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
    """The same the other way round."""
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
    """Two files and an index, as Hugging Face cuts large models."""
    names = list(tensors)
    parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for part, own in parts.items():
        write(folder / part, {name: tensors[name] for name in own}, {"format": "pt"})
    places = {name: part for part, own in parts.items() for name in own}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))


def transposed(tensor):
    """A matrix the other way round."""
    kind, (rows, columns), values = tensor
    return kind, [columns, rows], [values[r * columns + c] for c in range(columns) for r in range(rows)]
