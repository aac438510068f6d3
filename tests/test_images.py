"""Whatever picture someone gives becomes upright RGB of bounded size, or one clear sentence."""

from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from recap_engine import images
from recap_engine.errors import RecapError
from recap_engine.images import GAP, MOST_ASPECT, MOST_PIXELS, fit_image, open_fitted, open_image


def encoded(picture, kind, **options):
    file = BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def test_a_path_bytes_and_a_picture_open_alike(tmp_path):
    picture = Image.new("RGB", (30, 20), (200, 30, 10))
    picture.save(tmp_path / "p.png")
    for source in (tmp_path / "p.png", str(tmp_path / "p.png"), encoded(picture, "PNG"), picture):
        opened = open_image(source)
        assert (opened.mode, opened.size, opened.getpixel((5, 5))) == ("RGB", (30, 20), (200, 30, 10))


def test_exif_orientation_is_applied():
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned a quarter to the right
    assert open_image(encoded(Image.new("RGB", (30, 20)), "JPEG", exif=exif)).size == (20, 30)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparency_lies_over_white(mode):
    picture = Image.new("RGBA", (4, 4), (0, 0, 0, 0))
    file = encoded(picture.convert(mode), "PNG", transparency=0 if mode == "P" else None)
    assert open_image(file).getpixel((1, 1)) == (255, 255, 255)


def test_the_first_frame_of_an_animation_is_taken():
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    animation = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert open_image(animation).getpixel((1, 1)) == (255, 0, 0)


def test_cmyk_grey_and_16_bit_pictures_open():
    assert open_image(encoded(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG")).getpixel((4, 4))[0] > 200
    assert open_image(Image.new("1", (8, 8), 1)).getpixel((1, 1)) == (255, 255, 255)
    deep = Image.fromarray(np.full((8, 8), 32768, dtype=np.uint16))
    assert open_image(encoded(deep, "PNG")).getpixel((1, 1)) == (128, 128, 128)


@pytest.mark.parametrize("size", [(4000, 3000), (1001, 2500), (2500, 1500)])
def test_large_pictures_are_scaled_to_the_bound_in_their_own_shape(size):
    original = Image.new("RGB", size)
    width, height = fit_image(original).size
    assert 0.99 * MOST_PIXELS < width * height <= MOST_PIXELS
    assert width / height == pytest.approx(size[0] / size[1], rel=0.01)
    assert original.size == size


def test_pictures_within_the_bound_stay_as_they_are():
    for size in ((1, 1), (3, 7), (1000, 2000), (2000, 100)):
        picture = Image.new("RGB", size)
        assert fit_image(picture) is picture


@pytest.mark.parametrize("size", [(1, 3000), (3000, 1), (3, 100), (50, 5000)])
def test_thin_pictures_get_white_borders(size):
    fitted = fit_image(Image.new("RGB", size, "red"))
    assert max(fitted.size) == max(size) <= MOST_ASPECT * min(fitted.size)
    assert fitted.getpixel(((fitted.width - 1) // 2, (fitted.height - 1) // 2)) == (255, 0, 0)
    assert fitted.getpixel((0, 0)) == (255, 255, 255)


@pytest.mark.parametrize(
    ("mode", "kind"), [("RGB", "JPEG"), ("CMYK", "JPEG"), ("RGB", "PNG"), ("RGBA", "PNG"), ("LA", "PNG"), ("P", "GIF")]
)
@pytest.mark.parametrize("turned", [False, True])
def test_a_large_picture_is_made_small_first_and_looks_the_same(monkeypatch, mode, kind, turned):
    """Only the numbers of a palette's colours can't be averaged before they are looked up."""
    flattened, flat = [], images._flat
    monkeypatch.setattr(images, "MOST_PIXELS", 10_000)
    monkeypatch.setattr(images, "_flat", lambda picture: flattened.append(picture.size) or flat(picture))
    exif = Image.Exif()
    exif[0x0112] = 6 if turned else 1
    soft = Image.effect_mandelbrot((1001, 700), (-2, -1.5, 1, 1.5), 20).resize((91, 63)).resize((1001, 700))
    file = encoded(soft.convert("RGB").convert(mode), kind, **({} if kind == "GIF" else {"exif": exif}))
    fitted, size = open_fitted(file)
    whole = open_image(file)
    assert size == whole.size
    expected = fit_image(whole)
    assert fitted.size == expected.size
    assert np.abs(np.asarray(fitted, dtype=float) - np.asarray(expected, dtype=float)).mean() < 2
    if kind != "GIF":
        assert np.prod(flattened[0]) < (2 * GAP) ** 2 * 10_000 < np.prod(size) == np.prod(flattened[1])


def test_a_picture_in_memory_is_not_changed_by_being_shown_small(monkeypatch):
    monkeypatch.setattr(images, "MOST_PIXELS", 10_000)
    picture = Image.open(BytesIO(encoded(Image.new("RGB", (1000, 700)), "JPEG")))
    assert open_fitted(picture)[0].width < 200
    assert picture.size == (1000, 700)


def test_what_is_not_a_picture_is_refused_in_a_sentence(tmp_path, monkeypatch):
    (tmp_path / "text.png").write_text("hello")
    whole = encoded(Image.new("RGB", (64, 64)), "PNG")
    files = [tmp_path / "text.png", tmp_path / "missing.png", tmp_path]
    for source in (*files, b"", whole[:60]):
        for opening in (open_image, open_fitted):
            with pytest.raises(RecapError) as caught:
                opening(source)
            assert "\n" not in str(caught.value)
    monkeypatch.setattr(images, "FILE_PIXELS", 1000)
    with pytest.raises(RecapError, match="too large"):
        open_image(whole)
