"""What a Hugging Face Space reads and needs: front matter, address, health, versions that install."""

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import gradio as gr
import pytest
import yaml
from app_fakes import FakeEngine
from packaging.requirements import Requirement
from packaging.version import Version

from app.page import build_page
from app.serving import Serving
from app.space import Choice, address, launch, model_choice
from recap_engine.errors import RecapError

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
FRONT = yaml.safe_load(README.split("---\n")[1])
HUB_COLOURS = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}
HARDWARE = {
    "cpu-basic",
    "cpu-upgrade",
    "zero-a10g",
    "t4-small",
    "t4-medium",
    "l4x1",
    "l40sx1",
    "a10g-small",
    "a100-large",
}


def lines(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    return [line.split("#")[0].strip() for line in text.splitlines() if line.split("#")[0].strip()]


def test_the_front_matter_is_complete():
    assert FRONT["title"] and FRONT["sdk"] == "gradio"
    assert (ROOT / FRONT["app_file"]).is_file()
    assert len(FRONT["short_description"]) <= 60
    assert {FRONT["colorFrom"], FRONT["colorTo"]} <= HUB_COLOURS
    assert not FRONT["emoji"].isascii()
    assert FRONT["license"] == "apache-2.0" and "Apache License" in (ROOT / "LICENSE").read_text()
    assert FRONT["suggested_hardware"] in HARDWARE
    assert isinstance(FRONT["python_version"], str) and Version(FRONT["python_version"]) >= Version("3.10")
    assert all(re.fullmatch(r"[a-z0-9-]+", tag) for tag in FRONT["tags"])
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+", name) for name in FRONT["models"])


def test_the_models_it_names_are_in_the_list_of_known_ones():
    from recap_engine.models.catalogue import CATALOGUE

    assert set(FRONT["models"]) <= {known.name for known in CATALOGUE}


def test_gradios_version_is_one_that_the_requirements_allow():
    """And the one that is tested here."""
    wanted = next(Requirement(line) for line in lines("requirements.txt") if line.startswith("gradio"))
    assert FRONT["sdk_version"] in wanted.specifier
    assert FRONT["sdk_version"] == gr.__version__


def test_lower_bounds_are_not_above_the_tested_versions():
    pinned = {line.split("==")[0].lower(): line.split("==")[1] for line in lines("constraints.txt")}
    wanted = [
        Requirement(line)
        for file in ("requirements.txt", "requirements-dev.txt")
        for line in lines(file)
        if line[0] != "-"
    ]
    assert {need.name for need in wanted} <= set(pinned)
    for need in wanted:
        assert pinned[need.name] in need.specifier, need.name
        assert str(need.specifier).startswith(">="), need.name


def test_a_space_listens_where_it_is_looked_for_and_a_laptop_only_to_itself(monkeypatch):
    for name in ("SPACE_ID", "GRADIO_SERVER_NAME", "RECAP_ALLOW_MODEL_CHOICE"):
        monkeypatch.delenv(name, raising=False)
    assert address(None, None) == ("127.0.0.1", None)
    assert model_choice("127.0.0.1") is Choice.FOLDERS
    assert model_choice("0.0.0.0") is Choice.NONE
    monkeypatch.setenv("SPACE_ID", "me/recap")
    assert address(None, None) == ("0.0.0.0", 7860)
    assert address("127.0.0.1", 7861) == ("127.0.0.1", 7861)
    monkeypatch.setenv("RECAP_ALLOW_MODEL_CHOICE", "1")
    assert model_choice("0.0.0.0") is Choice.HUB
    monkeypatch.setenv("RECAP_ALLOW_MODEL_CHOICE", "yes please")
    with pytest.raises(RecapError, match="must be one of 0, 1, folders"):
        model_choice("0.0.0.0")


@pytest.mark.parametrize(
    ("serving", "code", "told"),
    [
        (Serving(FakeEngine()), 200, {"status": "ready", "model": "made-up", "device": "cpu", "dtype": "float32"}),
        (Serving(problem=RecapError("There is no folder /home/me/secret.")), 503, {"status": "failed"}),
    ],
)
def test_health_says_what_there_is_and_no_more(serving, code, told):
    page = build_page(serving)
    _, url, _ = launch(page, serving, "127.0.0.1", None, prevent_thread_lock=True, quiet=True)
    try:
        with urllib.request.urlopen(f"{url}health") as answer:
            body, status = answer.read(), answer.status
    except urllib.error.HTTPError as error:
        body, status = error.read(), error.code
    finally:
        page.close()
    assert status == code
    assert json.loads(body).items() >= told.items()
    assert b"/" not in body


def test_analytics_are_off():
    """Before gradio is imported, whatever the environment holds."""
    code = "import runpy, sys; sys.argv = ['app.py', '--help']; runpy.run_path('app.py', run_name='__main__')"
    check = f"import os, atexit; atexit.register(lambda: print(os.environ['GRADIO_ANALYTICS_ENABLED'])); {code}"
    environment = {name: value for name, value in os.environ.items() if name != "GRADIO_ANALYTICS_ENABLED"}
    ran = subprocess.run([sys.executable, "-c", check], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert ran.stdout.strip().endswith("False")


def test_every_variable_the_program_reads_is_explained():
    """In the page that tells how to host it."""
    read = set()
    for file in [ROOT / "app.py", *ROOT.glob("app/**/*.py"), *ROOT.glob("recap_engine/**/*.py")]:
        read |= set(re.findall(r"\bRECAP_[A-Z_]+\b", file.read_text(encoding="utf-8")))
    explained = (ROOT / "app" / "hosting.md").read_text(encoding="utf-8")
    assert read
    assert not {name for name in read if f"`{name}`" not in explained}
