"""Small data sets in common on-disk formats: PNG pictures, MATLAB lists, CIFAR records."""

import random
import struct
import zlib


def png(rows, columns, pixel):
    """Returns a PNG picture; pixel(y, x) returns red, green and blue."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    lines = b"".join(b"\0" + bytes(v for x in range(columns) for v in pixel(y, x)) for y in range(rows))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b""))


def progressive_jpeg(rows, columns):
    """Returns a uniformly gray picture in one progressive scan with one bit a block, because every DC difference is
    0."""
    def marker(kind, data):
        return bytes([0xFF, kind]) + struct.pack(">H", len(data) + 2) + data

    components = b"".join(bytes([i, 0x11, 0]) for i in (1, 2, 3))
    blocks = 3 * -(-rows // 8) * -(-columns // 8)
    return (b"\xff\xd8" + marker(0xDB, bytes([0] + [16] * 64))
            + marker(0xC2, struct.pack(">BHHB", 8, rows, columns, 3) + components)
            + marker(0xC4, bytes([0, 1] + [0] * 15 + [0])) + marker(0xDA, bytes([3, 1, 0, 2, 0, 3, 0, 0, 0, 0]))
            + b"\0" * (-(-blocks // 8)) + b"\xff\xd9")


def colour_of(label):
    """Returns the colour of a class, distinct for 27 classes."""
    return [30 + 80 * (label // 3**k % 3) for k in range(3)]


def picture(label, seed, side=(12, 24)):
    """Returns a picture of random size whose colour shows the class."""
    draw = random.Random(f"{label} {seed}")
    colour = [c + draw.randrange(20) for c in colour_of(label)]
    return png(draw.randint(*side), draw.randint(*side), lambda y, x: [c + draw.randrange(40) for c in colour])


def write_folder(folder, classes=("daisy", "rose", "tulip"), **counts):
    """Writes pictures for image_folder: folder/<split>/<class>/<number>.png"""
    for split, count in counts.items():
        for label, name in enumerate(classes):
            at = folder / split / name
            at.mkdir(parents=True)
            for i in range(count):
                (at / f"{i:03}.png").write_bytes(picture(label, f"{split} {i}"))
    return folder


def mat(packed=False, **variables):
    """Writes a MATLAB 5 file with rows of 16-bit unsigned numbers. packed: each row is compressed, as by MATLAB."""
    def element(kind, data):
        return struct.pack("<II", kind, len(data)) + data + b"\0" * (-len(data) % 8)

    out = b"MATLAB 5.0 MAT-file, made for a test".ljust(116) + b"\0" * 8 + struct.pack("<H", 0x0100) + b"IM"
    for name, numbers in variables.items():
        matrix = element(14, element(6, struct.pack("<II", 11, 0)) + element(5, struct.pack("<ii", 1, len(numbers)))
                         + element(1, name.encode()) + element(4, struct.pack(f"<{len(numbers)}H", *numbers)))
        out += struct.pack("<II", 15, len(zlib.compress(matrix))) + zlib.compress(matrix) if packed else matrix
    return out


def write_flowers(folder, classes=4, count=40):
    """Writes flowers102. Every second picture is in the training split; the others, except the last four, are in the
    test split."""
    (folder / "jpg").mkdir(parents=True)
    labels = [i // 2 % classes + 1 for i in range(count)]
    for i, label in enumerate(labels):
        (folder / f"jpg/image_{i + 1:05}.jpg").write_bytes(picture(label - 1, i))
    numbers = list(range(1, count + 1))
    (folder / "imagelabels.mat").write_bytes(mat(True, labels=labels))
    (folder / "setid.mat").write_bytes(mat(True, trnid=numbers[::2], valid=numbers[-3::2], tstid=numbers[1:-4:2]))
    return folder


def write_birds(folder, classes=4, count=40):
    """Writes cub200. Each picture has a bird in the middle, on a background that carries no information."""
    (folder / "images").mkdir(parents=True)
    lists = {"images": [], "image_class_labels": [], "train_test_split": [], "bounding_boxes": [],
             "classes": [f"{k + 1} {k + 1:03}.Bird_{k}" for k in range(classes)]}
    for i in range(count):
        label, name = i // 2 % classes, f"{i // 2 % classes + 1:03}.Bird_{i // 2 % classes}"
        (folder / "images" / name).mkdir(exist_ok=True)
        colour = colour_of(label)
        (folder / f"images/{name}/{i:04}.jpg").write_bytes(
            png(20, 24, lambda y, x: colour if 5 <= y < 15 and 6 <= x < 18 else [90, 90, 90]))
        lists["images"].append(f"{i + 1} {name}/{i:04}.jpg")
        lists["image_class_labels"].append(f"{i + 1} {label + 1}")
        lists["train_test_split"].append(f"{i + 1} {1 - i % 2}")
        lists["bounding_boxes"].append(f"{i + 1} 6.0 5.0 12.0 10.0")
    for name, lines in lists.items():
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    return folder


def records(labels, names, seed):
    """Returns CIFAR records. labels(i) returns the bytes before each picture; the first byte determines its colours."""
    draw = random.Random(seed)
    out = b""
    for i in range(names):
        front = labels(i)
        out += front + b"".join(bytes(c + draw.randrange(30) for _ in range(1024)) for c in colour_of(front[0]))
    return out


def write_cifar10(folder, count=20):
    folder.mkdir(parents=True)
    for k in range(1, 6):
        (folder / f"data_batch_{k}.bin").write_bytes(records(lambda i: bytes([i % 10]), count, k))
    (folder / "test_batch.bin").write_bytes(records(lambda i: bytes([i % 10]), count, 9))
    (folder / "batches.meta.txt").write_text("\n".join(f"class_{k}" for k in range(10)) + "\n\n")
    return folder


def write_cifar100(folder, count=100):
    folder.mkdir(parents=True)
    for name in "train", "test":
        (folder / f"{name}.bin").write_bytes(records(lambda i: bytes([i % 100 // 5, i % 100]), count, name))
    (folder / "fine_label_names.txt").write_text("\n".join(f"fine_{k}" for k in range(100)) + "\n")
    (folder / "coarse_label_names.txt").write_text("\n".join(f"coarse_{k}" for k in range(20)) + "\n")
    return folder
