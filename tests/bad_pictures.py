"""Files that claim to be pictures, made on the spot: sound but odd, damaged, bombs, and no pictures at all."""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from collections.abc import Callable
from io import BytesIO

import numpy as np
from PIL import Image

SMALL = Image.effect_mandelbrot((48, 36), (-2, -1.5, 1, 1.5), 50).convert("RGB")
ENDINGS = "png jpeg gif webp bmp tiff ico ppm tga avif".split()


def encoded(picture: Image.Image, ending: str, **options: object) -> bytes:
    file = BytesIO()
    picture.save(file, ending.upper(), **options)
    return file.getvalue()


def _png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, data: bytes = b"", depth: int = 8, before: bytes = b"") -> bytes:
    """A PNG of that size, whatever its data hold."""
    header = _png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + before + _png_chunk(b"IDAT", data) + _png_chunk(b"IEND", b"")


def _icon_with_a_giant() -> bytes:
    """An icon that says 48 x 48 and holds a PNG of 20,000 x 20,000."""
    giant = png(20_000, 20_000)
    return struct.pack("<HHH", 0, 1, 1) + struct.pack("<BBBBHHII", 48, 48, 0, 0, 1, 32, len(giant), 22) + giant


def _noisy(data: bytes, start: int, seed: int) -> bytes:
    """Sixteen bytes from `start` on replaced by others."""
    noise = bytes(random.Random(seed).randrange(256) for _ in range(16))
    return data[:start] + noise + data[start + 16 :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "half of": lambda data: data[: len(data) // 2],
    "the last byte missing of": lambda data: data[:-1],
    "the first 20 bytes of": lambda data: data[:20],
    "noise at the head of": lambda data: _noisy(data, 8, 1),
    "noise in the middle of": lambda data: _noisy(data, len(data) // 2, 2),
    "zeros in the middle of": lambda data: data[: len(data) // 3] + bytes(len(data) // 3) + data[2 * len(data) // 3 :],
}


def damaged() -> dict[str, bytes]:
    return {
        f"{how} a {ending}": damage(encoded(SMALL, ending)) for ending in ENDINGS for how, damage in DAMAGES.items()
    }


def misnamed() -> dict[str, bytes]:
    """Every format under the next one's ending; the name of a case ends in it."""
    return {
        f"{ending}.{other}": encoded(SMALL, ending)
        for ending, other in zip(ENDINGS, [*ENDINGS[1:], "txt"], strict=True)
    }


def odd() -> dict[str, bytes]:
    """Sound pictures of unusual kinds."""
    depth16 = Image.fromarray(np.full((8, 8), 40_000, dtype=np.uint16))
    frames = [SMALL, SMALL.transpose(Image.Transpose.FLIP_LEFT_RIGHT)]
    modes = {mode: SMALL.convert(mode) for mode in ("1", "L", "LA", "P", "RGBA", "CMYK", "YCbCr", "LAB", "F", "I")}
    found = {
        f"mode {mode}": encoded(picture, "png" if mode in ("1", "L", "LA", "P", "RGBA") else "tiff")
        for mode, picture in modes.items()
    }
    for turn in (*range(1, 9), 0, 9, 65535):
        exif = Image.Exif()
        exif[0x0112] = turn
        found[f"EXIF rotation {turn}"] = encoded(SMALL, "jpeg", exif=exif)
    for ending in ("png", "gif", "webp", "avif", "tiff"):
        found[f"animated {ending}"] = encoded(SMALL, ending, save_all=True, append_images=frames)
    for size in ((1, 1), (1, 3000), (3000, 1), (2, 4097), (2000, 1500)):
        found[f"{size[0]} × {size[1]}"] = encoded(Image.new("RGB", size), "png")
    found["16-bit png"] = encoded(depth16, "png")
    found["16-bit tiff"] = encoded(depth16, "tiff")
    found["palette with transparency"] = encoded(SMALL.convert("P"), "png", transparency=3)
    found["broken EXIF"] = encoded(SMALL, "jpeg", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff")
    found["broken colour profile"] = encoded(SMALL, "png", icc_profile=b"no profile")
    found["CMYK jpeg"] = encoded(SMALL.convert("CMYK"), "jpeg")
    return found


def tiff(width: int, height: int, data: bytes, next_page: int = 0) -> bytes:
    """A grey TIFF of that size with one strip, whatever it holds."""
    tags = {
        256: width,
        257: height,
        258: 8,
        259: 1,
        262: 1,
        273: 8 + 2 + 9 * 12 + 4,
        277: 1,
        278: height,
        279: len(data),
    }
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + struct.pack("<I", next_page) + data


def jpeg(width: int, height: int) -> bytes:
    """The small picture, with another size in its header."""
    data = encoded(SMALL, "jpeg")
    at = data.index(b"\xff\xc0") + 5
    return data[:at] + struct.pack(">HH", height, width) + data[at + 4 :]


def bombs() -> dict[str, bytes]:
    """Small files that unpack to something large, or say so."""
    text = _png_chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(2**26)))
    gif, bmp, tga, webp = (encoded(SMALL, ending) for ending in ("gif", "bmp", "tga", "webp"))
    return {
        "png header of 100,000 × 100,000": png(100_000, 100_000),
        "png header of 2^31 - 1 squared": png(2**31 - 1, 2**31 - 1),
        "png header of 0 × 0": png(0, 0),
        "png of 400 million bits": png(10_000, 40_000, zlib.compress(bytes(1_250 * 40_000)), depth=1),
        "png a hair wide": png(1, 1_000_000, zlib.compress(bytes(2_000_000)), depth=1),
        "png a hair high": png(4_000_000, 1, zlib.compress(bytes(500_001)), depth=1),
        "png with 64 MB of text": png(1, 1, zlib.compress(bytes(2)), before=text),
        "gif of 65,535 × 65,535": gif[:6] + b"\xff" * 4 + gif[10:],
        "gif of 65,535 × 36": gif[:6] + b"\xff" * 2 + gif[8:],
        "bmp of 2 billion columns": bmp[:18] + struct.pack("<ii", 2**31 - 1, 1) + bmp[26:],
        "bmp of negative size": bmp[:18] + struct.pack("<ii", -48, -36) + bmp[26:],
        "ppm of 99,999 × 99,999": b"P6 99999 99999 255\n" + bytes(100),
        "pgm of more digits than any": b"P5 " + b"9" * 5000 + b" 1 255\n",
        "tga of 65,535 × 65,535": tga[:12] + b"\xff" * 4 + tga[16:],
        "webp of 16,383 × 16,383": webp[:26] + b"\xff\x3f\xff\x3f" + webp[30:],
        "jpeg of 65,500 × 65,500": jpeg(65_500, 65_500),
        "jpeg of 2,000 × 3,000, nearly empty": jpeg(2_000, 3_000),
        "tiff of 48 × 1,300,000": tiff(48, 1_300_000, bytes(48)),
        "tiff of 1 × 1,000,000": tiff(1, 1_000_000, bytes(1_000_000)),
        "tiff that is its own next page": tiff(8, 8, bytes(64), next_page=8),
        "ico around a giant": _icon_with_a_giant(),
    }


def no_pictures() -> dict[str, bytes]:
    svg = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script><image href="file:///etc/passwd"/></svg>'
    declaration = b'<?xml version="1.0"?><!DOCTYPE svg [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
    html = b"<!doctype html><script>alert(document.cookie)</script>"
    return {
        "nothing at all": b"",
        "one null byte": b"\0",
        "a megabyte of nulls": bytes(2**20),
        "svg": svg,
        "svg with a declaration": declaration + svg,
        "html": html,
        "a gif that goes on as a script": b"GIF89a/*" + html,
        "pdf": b"%PDF-1.7\n1 0 obj\n<< >>\nendobj\n%%EOF\n",
        "eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(%pipe%id) (r) file\nshowpage\n%%EOF\n",
        "zip": b"PK\x05\x06" + bytes(18),
        "gzip": gzip.compress(b"no picture", mtime=0),
        "pickle": b"\x80\x04cos\nsystem\n(S'id'\ntR.",
        "json": b'{"schema": 1}',
        "text": "Ceci n’est pas une image.".encode(),
        "xpm": b'/* XPM */\nstatic char *a[] = {"1 1 1 1", "a c #000000", "a"};',
        "random bytes": random.Random(0).randbytes(5000),
        "mp4": b"\0\0\0\x18ftypmp42" + bytes(100),
    }
