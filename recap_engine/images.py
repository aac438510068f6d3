"""Opening a picture someone gives, whatever its format, and bringing it to a size that any model can be shown."""

from io import BytesIO
from pathlib import Path

from PIL import Image, ImageOps

from recap_engine.errors import RecapError

FILE_PIXELS = 64_000_000  # most of a file that is opened at all; guards against decompression bombs
MOST_PIXELS = 2_000_000  # most that a model is shown of one picture; the families' own processors bound it further
MOST_PICTURES = 8  # to one question
MOST_ASPECT = 20  # longest side over shortest; of thinner ones LLaVA's tiles show nothing, and Qwen refuses 200


def open_image(source: str | Path | bytes | Image.Image) -> Image.Image:
    """RGB, upright (EXIF), transparency over white, first frame of an animation. The original stays as it is.

    Raises RecapError for anything that is not such a picture.
    """
    try:
        picture = source if isinstance(source, Image.Image) else Image.open(_file(source))
        if picture.width * picture.height > FILE_PIXELS:
            raise RecapError(f"This picture is too large: more than {FILE_PIXELS // 1_000_000} million pixels.")
        picture.seek(0)
        return _flat(ImageOps.exif_transpose(picture))
    except FileNotFoundError as error:
        raise RecapError(f"There is no picture at {source!s}.") from error
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        raise RecapError("This file is not a picture that can be opened.") from error


def fit_image(picture: Image.Image) -> Image.Image:
    """The picture as a model is shown it: at most MOST_PIXELS, and white borders if it is thinner than MOST_ASPECT."""
    width, height = picture.size
    least = -(-max(width, height) // MOST_ASPECT)
    if min(width, height) < least:
        frame = Image.new("RGB", (max(width, least), max(height, least)), "white")
        frame.paste(picture, ((frame.width - width) // 2, (frame.height - height) // 2))
        picture = frame
    if picture.width * picture.height > MOST_PIXELS:
        scale = (MOST_PIXELS / (picture.width * picture.height)) ** 0.5
        size = (int(picture.width * scale), int(picture.height * scale))
        picture = picture.resize(size, Image.Resampling.LANCZOS, reducing_gap=2.0)
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
