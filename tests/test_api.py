"""The job as one call: `gradio_client` against a running page with the embedded model."""

import re
from pathlib import Path

import pytest
from app_fakes import FakeEngine
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError

from app import texts
from app.page import build_page
from app.serving import Serving
from app.space import launch
from recap_engine.engine import Engine
from recap_engine.models.loading import EMBEDDED
from recap_engine.scenes.gallery import EXAMPLES
from recap_engine.trace import RequestTrace

ROOT = Path(__file__).parent.parent
PICTURE = EXAMPLES / "description.png"


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    serving = Serving(Engine.load(device="cpu") if EMBEDDED.is_dir() else FakeEngine())
    page = build_page(serving)
    _, url, _ = launch(page, serving, "127.0.0.1", None, prevent_thread_lock=True, quiet=True)
    yield Client(url, verbose=False, download_files=str(tmp_path_factory.mktemp("downloads")))
    page.close()


def test_a_call_gives_text_table_and_trace(client):
    text, lanes, trace = client.predict(
        image=handle_file(PICTURE),
        question="Describe the picture in detail.",
        lanes=["ar", "recap", "recap+"],
        max_new_tokens=24,
        budget=16,
        api_name="/ask",
    )
    read = RequestTrace.load(trace)
    assert text and read.lanes["recap"].text == read.lanes["ar"].text == text
    assert [row["lane"] for row in lanes] == ["ar", "recap", "recap+"] == list(read.lanes)
    for row in lanes:
        lane = read.lanes[row["lane"]]
        assert (row["tokens"], row["steps"]) == (lane.n_tokens, lane.n_steps)
        assert row["identical"] is True
        assert row["seconds"] == pytest.approx(lane.decode_s, rel=1e-3)
        assert row["MAT"] == pytest.approx(lane.mat, rel=1e-3)
    assert lanes[0]["speedup"] == 1.0
    assert set(read.lanes["recap+"].nodes_frame()["scope"]) == {"persistent"}


def test_the_readmes_example_runs_as_it_stands(client):
    code = re.search(r"```python\n(from gradio_client.*?)```", (ROOT / "README.md").read_text(), re.S)[1]
    names = {}
    exec(
        code.replace('Client("http://127.0.0.1:7860/")', "given").replace("assets", str(ROOT / "assets")),
        {"given": client},
        names,
    )
    assert names["text"] and names["lanes"] and RequestTrace.load(names["trace"])


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"question": "  "}, "Please ask a question."),
        ({"lanes": []}, texts.NO_LANES),
        ({"lanes": ["ar", "warp"]}, "not in the list of choices"),
        ({"budget": 10**9}, "not in the list of choices"),
        ({"max_new_tokens": 10**9}, "512"),
        ({"image": handle_file(ROOT / "README.md")}, "not a picture that can be opened"),
    ],
)
def test_what_is_wrong_with_a_call_is_said_in_one_sentence(client, wrong, told):
    given = {"image": None, "question": "What is it?", "max_new_tokens": 8} | wrong
    with pytest.raises(AppError) as refused:
        client.predict(**given, api_name="/ask")
    assert told in str(refused.value)
    assert "Traceback" not in str(refused.value)


def test_nothing_else_is_public(client):
    assert list(client.view_api(return_format="dict")["named_endpoints"]) == ["/ask"]
    assert not client.view_api(return_format="dict")["unnamed_endpoints"]
