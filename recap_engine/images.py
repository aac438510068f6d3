"""Opening a picture someone gives, whatever its format, and bringing it to a size that any model can be shown."""

from io import BytesIO
from pathlib import Path

from PIL import Image, ImageOps

from recap_engine.errors import RecapError

FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "AVIF", "BMP", "TIFF", "PPM", "TGA")
# Pillow knows more: EPS would start Ghostscript, and an ICO holds a second picture of a size its header doesn't tell.
FILE_PIXELS = 64_000_000  # most of a file that is opened at all; guards against decompression bombs
MOST_PIXELS = 2_000_000  # most that a model is shown of one picture; the families' own processors bound it further
GAP = 2.0  # a picture that is scaled down by more is averaged to this many times its final size first, which is quick
AVERAGED = ("L", "LA", "RGB", "RGBA", "CMYK", "YCbCr")  # modes whose values are amounts, not the numbers of colours
MOST_PICTURES = 8  # to one question
MOST_ASPECT = 20  # longest side over shortest; of thinner ones LLaVA's tiles show nothing, and Qwen refuses 200
LONGEST = int((MOST_PIXELS * MOST_ASPECT) ** 0.5) // MOST_ASPECT * MOST_ASPECT  # side; borders of thin ones then fit


def open_image(source: str | Path | bytes | Image.Image) -> Image.Image:
    """RGB, upright (EXIF), transparency over white, first frame of an animation. The original stays as it is.

    Raises RecapError for anything that is not such a picture.
    """
    return _read(source, FILE_PIXELS)[0]


def open_fitted(source: str | Path | bytes | Image.Image) -> tuple[Image.Image, tuple[int, int]]:
    """`fit_image` of `open_image`, and the size that the picture had before.

    A large picture is brought near that size as early as possible, a JPEG while it is decoded, the others before
    anything else is done to them: that saves memory, and of a JPEG half the time. Raises RecapError.
    """
    picture, size = _read(source, MOST_PIXELS)
    return fit_image(picture), size


def _read(source: str | Path | bytes | Image.Image, enough: int) -> tuple[Image.Image, tuple[int, int]]:
    """See `open_image`, and the upright picture's size; one of over GAP² times `enough` pixels is made smaller."""
    try:
        given = source if isinstance(source, Image.Image) else _opened(source)
        width, height = given.size
        if width * height > FILE_PIXELS:
            raise Image.DecompressionBombError
        if 0 in given.size:
            raise ValueError("no pixels")
        given.seek(0)
        factor = max(1, int((width * height / enough) ** 0.5 / GAP))
        if given is not source:
            given.draft(None, (width // factor, height // factor))  # only JPEG does it, by 2, 4 or 8
        upright = ImageOps.exif_transpose(given)
        size = (width, height) if upright.size == given.size else (height, width)
        factor = factor * upright.width // size[0]
        if factor > 1 and upright.mode in AVERAGED:
            upright = upright.reduce(factor)
        return _flat(upright), size
    except Image.DecompressionBombError as error:
        most = FILE_PIXELS // 1_000_000
        raise RecapError(f"This picture is too large: please scale it to less than {most} million pixels.") from error
    except FileNotFoundError as error:
        raise RecapError(f"There is no picture {Path(str(source)).name} any more: please choose it again.") from error
    except Exception as error:  # of a damaged file, decoders raise whatever they stumble over
        raise RecapError("This file is not a picture that can be opened: bring a PNG, JPEG, WebP or GIF.") from error


def fit_image(picture: Image.Image) -> Image.Image:
    """The picture as a model is shown it: at most MOST_PIXELS, and white borders if it is thinner than MOST_ASPECT."""
    width, height = picture.size
    scale = min((MOST_PIXELS / (width * height)) ** 0.5, LONGEST / max(width, height))
    if scale < 1:
        width, height = max(1, int(width * scale)), max(1, int(height * scale))
        picture = picture.resize((width, height), Image.Resampling.LANCZOS, reducing_gap=GAP)
    least = -(-max(width, height) // MOST_ASPECT)
    if min(width, height) < least:
        frame = Image.new("RGB", (max(width, least), max(height, least)), "white")
        frame.paste(picture, ((frame.width - width) // 2, (frame.height - height) // 2))
        picture = frame
    return picture


def _opened(source: str | Path | bytes) -> Image.Image:
    Image.init()  # else Pillow knows only a few formats by name
    return Image.open(BytesIO(source) if isinstance(source, bytes) else source, formats=FORMATS)


def _flat(picture: Image.Image) -> Image.Image:
    """RGB, with any transparency laid over white, and 16-bit greys scaled to 8 bits instead of clipped."""
    if picture.mode.startswith("I"):
        picture = picture.convert("I").point(lambda value: value / 256).convert("L")
    if picture.has_transparency_data:
        layer = picture.convert("RGBA")
        white = Image.new("RGBA", layer.size, "white")
        return Image.alpha_composite(white, layer).convert("RGB")
    return picture.convert("RGB") if picture.mode != "RGB" else picture
