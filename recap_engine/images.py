"""Opening a picture someone gives, whatever its format, as plain RGB of bounded size."""

from io import BytesIO
from pathlib import Path

from PIL import Image, ImageOps

from recap_engine.errors import RecapError

MAX_PIXELS = 64_000_000  # of a file that is opened at all; guards against decompression bombs
MAX_SIDE = 2048  # larger pictures are scaled down; the families' own processors bound them further
MAX_ASPECT = 100  # longest side over shortest


def open_image(source: str | Path | bytes | Image.Image) -> Image.Image:
    """RGB, upright (EXIF), transparency over white, first frame of an animation, no side over MAX_SIDE.

    Raises RecapError for anything that is not such a picture.
    """
    try:
        picture = source if isinstance(source, Image.Image) else Image.open(_file(source))
        if picture.width * picture.height > MAX_PIXELS:
            raise RecapError(f"This picture is too large: more than {MAX_PIXELS // 1_000_000} million pixels.")
        if max(picture.size) > MAX_ASPECT * min(picture.size):
            raise RecapError(f"This picture is too long and narrow: one side is over {MAX_ASPECT} times the other.")
        picture.seek(0)
        picture = _flat(ImageOps.exif_transpose(picture))
    except FileNotFoundError as error:
        raise RecapError(f"There is no picture at {source!s}.") from error
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        raise RecapError("This file is not a picture that can be opened.") from error
    picture.thumbnail((MAX_SIDE, MAX_SIDE))
    return picture


def _file(source: str | Path | bytes) -> BytesIO | str | Path:
    return BytesIO(source) if isinstance(source, bytes) else source


def _flat(picture: Image.Image) -> Image.Image:
    """RGB, with any transparency laid over white, and 16-bit greys scaled to 8 bits instead of clipped."""
    if picture.mode.startswith("I"):
        picture = picture.convert("I").point(lambda value: value / 256).convert("L")
    if picture.has_transparency_data:
        layer = picture.convert("RGBA")
        white = Image.new("RGBA", layer.size, "white")
        return Image.alpha_composite(white, layer).convert("RGB")
    return picture.convert("RGB") if picture.mode != "RGB" else picture.copy()
