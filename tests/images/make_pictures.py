#!/usr/bin/env python3
"""Makes pictures/ and pixels.txt, resize.txt and colours.txt: pictures of every kind, and Pillow's results for them.

    python3 tests/images/make_pictures.py      # needs Pillow 12.1 and numpy; writes into this folder

For each file: a line "NAME ROWS COLUMNS" and one of hexadecimal digits, the bytes of convert("RGB"), rotated as EXIF
says; for 16 bits the upper 8. resize.txt has the results of Image.resize for parts of pictures/rgb.png: "FILTER TOP
LEFT ROWS COLUMNS TO_ROWS TO_COLUMNS"; gray ones begin with "gray". colours.txt has the results of torchvision's picture
functions for it, by the underlying calls of Pillow: "WHAT FACTOR".
"""
import io
import pathlib
import struct
import zlib

import numpy
from PIL import Image, ImageEnhance, ImageOps

HERE = pathlib.Path(__file__).parent
PICTURES = HERE / "pictures"


def scene(rows, columns):
    """Returns a picture with edges, ramps and some noise, in which faults of resizing and compressing would show."""
    y, x = numpy.mgrid[0:rows, 0:columns]
    noise = numpy.random.default_rng(7).integers(0, 40, (rows, columns, 3))
    red = 255 * x / (columns - 1)
    green = 255 * ((x // 5 + y // 4) % 2)
    blue = 255 * y / (rows - 1)
    return (numpy.stack([red, green, blue], -1) * 0.84 + noise).clip(0, 255).astype(numpy.uint8)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(columns, rows, bits, colour, lines, interlaced=0, extra=b""):
    head = struct.pack(">IIBBBBB", columns, rows, bits, colour, 0, 0, interlaced)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + extra + chunk(b"IDAT", zlib.compress(lines, 9))
            + chunk(b"IEND", b""))


def interlaced(pixels):
    lines = b""
    passes = (0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)
    for y, x, dy, dx in passes:
        for row in pixels[y::dy, x::dx]:
            lines += b"\0" + row.tobytes() if row.size else b""
    return png(pixels.shape[1], pixels.shape[0], 8, 2, lines, 1)


def sixteen(pixels, colour):
    low = numpy.random.default_rng(9).integers(0, 256, pixels.shape).astype(">u2")
    wide = pixels.astype(">u2") * 256 + low
    lines = b"".join(b"\0" + row.astype(">u2").tobytes() for row in wide)
    return png(pixels.shape[1], pixels.shape[0], 16, colour, lines)


def jpeg(image, **options):
    out = io.BytesIO()
    image.save(out, "JPEG", **{"quality": 90, **options})
    return out.getvalue()


def exif(orientation, big):
    order = ">" if big else "<"
    return (b"Exif\0\0" + (b"MM" if big else b"II") + struct.pack(order + "HI", 42, 8)
            + struct.pack(order + "HHHIIHHI", 2, 0x0100, 3, 1, 0, 0x0112, 3, 1)
            + struct.pack(order + "HHI", orientation, 0, 0))


def save(name, data, keep=None):
    (PICTURES / name).write_bytes(data)
    if keep is not False:
        image = keep or Image.open(io.BytesIO(data))
        EXPECTED.append((name, ImageOps.exif_transpose(image).convert("RGB")))


def as_pillow(image, name, **options):
    out = io.BytesIO()
    image.save(out, name, **options)
    return out.getvalue()


def jpegs(pixels):
    rgb = Image.fromarray(pixels)
    save("rgb.jpg", jpeg(rgb))
    save("full.jpg", jpeg(rgb, subsampling=0))
    save("progressive.jpg", jpeg(rgb, progressive=True))
    save("gray.jpg", jpeg(rgb.convert("L")))
    cmyk = jpeg(rgb.convert("CMYK"))
    save("cmyk.jpg", cmyk)
    adobe = cmyk.index(b"Adobe")
    save("ycck.jpg", cmyk[:adobe + 11] + b"\2" + cmyk[adobe + 12:])
    for k in range(1, 9):
        save(f"exif_{k}.jpg", jpeg(Image.fromarray(pixels[:13, :9]), exif=exif(k, k % 2)))
    save("exif_9.jpg", jpeg(Image.fromarray(pixels[:13, :9]), exif=exif(9, False)))
    whole = jpeg(Image.fromarray(numpy.tile(pixels, (4, 4, 1))), quality=95)
    save("no_end.jpg", jpeg(rgb)[:-2], Image.open(io.BytesIO(jpeg(rgb))))  # the file has all pixels
    save("cut.jpg", whole[:len(whole) * 2 // 3], False)
    save("cut_progressive.jpg", jpeg(rgb, progressive=True)[:-40], False)
    start = whole.index(b"\xff\xda") + 400
    save("damaged.jpg", whole[:start] + b"\xff\xd9\xff\xd8\xff" + whole[start + 5:], False)
    save("header.jpg", whole[:30], False)


def pngs(pixels):
    rgb = Image.fromarray(pixels)
    gray = rgb.convert("L")
    save("rgb.png", as_pillow(rgb, "PNG", optimize=True))
    save("gray.png", as_pillow(gray, "PNG"))
    save("gray_1.png", as_pillow(rgb.convert("1"), "PNG"))
    save("palette.png", as_pillow(rgb.quantize(17), "PNG"))
    save("palette_alpha.png", as_pillow(rgb.quantize(17), "PNG", transparency=bytes(range(0, 255, 15))))
    alpha = Image.fromarray(numpy.dstack([pixels, pixels[::-1, :, 1]]))
    save("rgba.png", as_pillow(alpha, "PNG"))
    save("gray_alpha.png", as_pillow(alpha.convert("LA"), "PNG"))
    save("interlaced.png", interlaced(pixels), rgb)
    save("rgb_16.png", sixteen(pixels, 2), rgb)
    save("gray_16.png", sixteen(numpy.asarray(gray), 0), gray)
    good = as_pillow(rgb, "PNG")
    save("cut.png", good[:len(good) // 2], False)
    save("damaged.png", good[:60] + bytes([good[60] ^ 0x55]) + good[61:], False)
    save("bomb.png", png(60000, 60000, 8, 2, b"\0"), False)


def write(name, items):
    with open(HERE / name, "w") as out:
        for title, pixels in items:
            out.write(f"{title}\n{pixels.tobytes().hex()}\n")


# With these sizes, the centres of the result's pixels lie on the borders of the source's pixels.
ON_BORDERS = [(2, 3, 16, 20, 14, 15), (1, 2, 30, 36, 25, 27)]


def resized(image):
    filters = {"nearest": Image.NEAREST, "bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC}
    for kind, source in ("", image), ("gray ", image.convert("L")):
        for name, code in filters.items():
            for top, left, rows, columns, to_rows, to_columns in [
                    (0, 0, 31, 40, 31, 40), (0, 0, 31, 40, 8, 8), (0, 0, 31, 40, 13, 40), (0, 0, 31, 40, 31, 11),
                    (3, 5, 20, 17, 9, 12), (3, 5, 7, 6, 12, 14), (30, 39, 1, 1, 3, 2),
                    (0, 10, 31, 3, 2, 5)] + ON_BORDERS * (name == "nearest"):
                part = source.crop((left, top, left + columns, top + rows))
                yield (f"{kind}{name} {top} {left} {rows} {columns} {to_rows} {to_columns}",
                       numpy.asarray(part.resize((to_columns, to_rows), code)))


def turned(image, turn):
    """torchvision.transforms.functional_pil.adjust_hue"""
    if image.mode == "L":
        return image
    h, s, v = image.convert("HSV").split()
    shifted = (numpy.array(h, dtype=numpy.int64) + int(turn * 255)) % 256
    return Image.merge("HSV", (Image.fromarray(shifted.astype(numpy.uint8)), s, v)).convert("RGB")


def coloured(image):
    enhance = {"brightness": ImageEnhance.Brightness, "contrast": ImageEnhance.Contrast,
               "saturation": ImageEnhance.Color}
    for name, kind in enhance.items():
        for factor in 0, 0.3, 0.85, 1, 1.21, 2.5:
            yield f"{name} {factor}", numpy.asarray(kind(image).enhance(factor))
    for turn in -0.5, -0.11, 0, 0.04, 0.37, 0.5:
        yield f"hue {turn}", numpy.asarray(turned(image, turn))


def main():
    PICTURES.mkdir(exist_ok=True)
    pixels = scene(31, 40)
    jpegs(pixels)
    pngs(pixels)
    write("pixels.txt", [(f"{name} {image.height} {image.width}", numpy.asarray(image)) for name, image in EXPECTED])
    image = Image.fromarray(pixels)
    write("resize.txt", resized(image))
    part = Image.fromarray(pixels[:16, :20])
    write("colours.txt", coloured(part))
    write("grays.txt", coloured(part.convert("L")))


EXPECTED = []
main()
