"""Only what a visitor may see is served, only so often and so much; visitors' files go when they should."""

import asyncio
import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from app_fakes import FakeEngine
from bad_pictures import SMALL, encoded, no_pictures

from app import limits, private_files
from app.limits import BURST, LARGEST_CALL, LARGEST_UPLOAD, PER_SECOND, Limits
from app.page import build_page
from app.serving import Serving
from app.space import launch

ROOT = Path(__file__).parent.parent
API = "/gradio_api"
SECRET = "sesame-e5c1"


@pytest.fixture(scope="module")
def visitor(tmp_path_factory):
    """A client of the page as `app.py` serves it, with a made-up engine, and its folder of visitors' files."""
    folder = tmp_path_factory.mktemp("files")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADIO_TEMP_DIR", str(folder))
        patch.setenv("HF_TOKEN", SECRET)
        serving = Serving(FakeEngine())
        page = build_page(serving)
        _, url, _ = launch(page, serving, "127.0.0.1", None, prevent_thread_lock=True, quiet=True)
        with httpx.Client(base_url=url, timeout=60) as client:
            client.folder, client.page = folder, page
            yield client
        page.close()


def upload(visitor, data, name="p.png"):
    return visitor.post(f"{API}/upload", files={"files": (name, data)})


def call(visitor, name, data):
    """Ask through the queue by hand; the last event's kind and its data."""
    joined = visitor.post(f"{API}/call/{name}", json={"data": data})
    if joined.status_code != 200:
        return joined.status_code, joined.text
    lines = visitor.get(f"{API}/call/{name}/{joined.json()['event_id']}").text.strip().split("\n")
    return lines[-2].removeprefix("event: "), lines[-1].removeprefix("data: ")


def picture_at(path, **more):
    return {"path": str(path), "meta": {"_type": "gradio.FileData"}} | more


OUTSIDE = (
    "/etc/passwd", "/proc/self/environ", "../../../../etc/passwd", "%2e%2e/%2e%2e/etc/passwd", "....//etc/passwd",
    "app.py", "./app.py", "README.md", "assets/model/config.json", ".git/HEAD", str(ROOT / "app.py"),
    str(ROOT / "assets/examples/chart.png"), str(ROOT / ".git"), "/", "", "~/.bashrc", "C:\\Windows\\win.ini", "\0",
    "file:///etc/passwd", "http://127.0.0.1:22/", "https://example.org/", "HTTP://[::1]/", "ftp://x/y",
)  # fmt: skip


@pytest.mark.parametrize("path", OUTSIDE, ids=repr)
@pytest.mark.parametrize("route", ["file=", "file/", "proxy="])
def test_no_file_but_visitors_own_is_served(visitor, route, path):
    reply = visitor.get(f"{API}/{route}{path}".replace("\0", "%00"))
    assert reply.status_code in (307, 400, 403, 404, 405), reply.text[:200]
    assert "root:" not in reply.text and SECRET not in reply.text and "Traceback" not in reply.text


def test_files_of_other_programs_of_the_machine_are_not_served(visitor, tmp_path):
    other = tmp_path / "gradio" / "abc" / "theirs.png"
    other.parent.mkdir(parents=True)
    other.write_bytes(encoded(SMALL, "png"))
    assert visitor.get(f"{API}/file={other}").status_code == 403


@pytest.mark.parametrize("name", ["svg", "html", "a gif that goes on as a script"])
def test_an_uploaded_script_is_handed_back_as_a_file_to_save_never_as_a_page(visitor, name):
    for ending in ("svg", "html", "xhtml", "png.html"):
        (path,) = upload(visitor, no_pictures()[name], f"p.{ending}").json()
        reply = visitor.get(f"{API}/file={path}")
        assert reply.status_code == 200
        assert reply.headers["content-disposition"].startswith("attachment")
        assert reply.headers["content-type"] == "application/octet-stream"


@pytest.mark.parametrize("name", ["../../evil.png", "/etc/evil.png", "..\\evil.png", "a\0b.png", "x" * 5000, ".", ".."])
def test_an_upload_lands_in_the_visitors_folder_whatever_its_name(visitor, name):
    reply = upload(visitor, encoded(SMALL, "png"), name)
    assert reply.status_code in (200, 400, 413, 500)
    assert "Traceback" not in reply.text
    if reply.status_code == 200:
        (path,) = reply.json()
        assert Path(path).resolve().is_relative_to(visitor.folder.resolve())
    assert not (visitor.folder.parent / "evil.png").exists()


SETTINGS = [["ar"], 64, "auto"]
FOREIGN = {
    "a file of the machine": picture_at("/etc/passwd"),
    "a file of the program": picture_at(ROOT / "assets/examples/chart.png"),
    "the same without its mark": {"path": str(ROOT / "assets/examples/chart.png")},
    "a path out of the folder": picture_at("{folder}/../../../etc/passwd"),
    "an address": picture_at("https://example.org/p.png"),
    "an address beside a path": picture_at("/etc/passwd", url="https://example.org/p.png"),
    "an address of this machine": picture_at("http://127.0.0.1:22/p.png"),
    "a picture within the call": {"url": "data:image/png;base64,AAAA", "meta": {"_type": "gradio.FileData"}},
    "text": "/etc/passwd",
    "a list": [picture_at("/etc/passwd")],
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_call_cannot_have_a_file_read_that_was_not_uploaded(visitor, name):
    picture = json.loads(json.dumps(FOREIGN[name]).replace("{folder}", str(visitor.folder)))
    kind, told = call(visitor, "ask", [picture, "What is it?", *SETTINGS])
    assert kind in ("error", 400, 422, 500), (kind, told)
    assert "Traceback" not in told and "root:" not in told
    assert call(visitor, "ask", [None, "What is it?", *SETTINGS])[0] == "complete"


@pytest.mark.parametrize(
    "data",
    [[], [None] * 5, [None, "x", ["ar"], 1e400, "auto"], [None, "x", "ar", "y", {}], {"a": 1}, "x", None, [[[]]] * 9],
)
def test_a_call_with_the_wrong_values_is_refused_and_the_next_is_answered(visitor, data):
    body = json.dumps({"data": data})
    reply = visitor.post(f"{API}/call/ask", content=body, headers={"content-type": "application/json"})
    if reply.status_code == 200:
        told = visitor.get(f"{API}/call/ask/{reply.json()['event_id']}").text
        assert "event: error" in told
    else:
        told = reply.text
    assert "Traceback" not in told and ".py" not in told
    assert call(visitor, "ask", [None, "What is it?", *SETTINGS])[0] == "complete"


def test_private_functions_cannot_be_called_past_the_queue(visitor):
    """Two runs at once would slow each other down and share the model."""
    for number, fn in visitor.page.fns.items():
        if fn.queue and fn.fn:
            body = {"fn_index": number, "data": [None] * len(fn.inputs), "session_hash": "x"}
            for route in ("run/predict", "api/predict", f"run/{fn.api_name}"):
                assert visitor.post(f"{API}/{route}", json=body).status_code == 404


def test_what_is_too_large_is_refused(visitor):
    assert visitor.post(f"{API}/call/ask", content=b"x" * (LARGEST_CALL + 1)).status_code == 413
    long = "x" * (LARGEST_CALL // 2)
    assert call(visitor, "ask", [None, long, *SETTINGS])[0] == "complete"
    assert status_of(Limits(Echo()), bytes(LARGEST_UPLOAD + 1), content_type="multipart/form-data") == 413


class Echo:
    """An app that reads a whole body and says how much it got."""

    got = 0

    async def __call__(self, scope, receive, send):
        self.got = 0
        while (message := await receive())["type"] == "http.request":
            self.got += len(message.get("body", b""))
            if not message.get("more_body"):
                break
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def status_of(app, body=b"", address="1.2.3.4", length=True, **headers):
    """The status of one POST to an ASGI app, its body in parts of a megabyte."""
    given = {"content-length": str(len(body))} if length else {}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    scope = {
        "type": "http", "method": "POST", "path": f"{API}/upload", "client": (address, 1),
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
    }  # fmt: skip
    parts = [body[at : at + limits.MEGABYTE] for at in range(0, len(body), limits.MEGABYTE)] or [b""]
    sent = []

    async def receive():
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    async def send(message):
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    return sent[0]["status"]


def test_an_address_that_asks_too_often_waits_and_others_do_not():
    now = [0.0]
    app = Limits(Echo(), clock=lambda: now[0])
    assert [status_of(app) for _ in range(int(BURST))] == [200] * int(BURST)
    assert status_of(app) == 429
    assert status_of(app, address="4.3.2.1") == 200
    now[0] += 2 / PER_SECOND
    assert [status_of(app) for _ in range(3)] == [200, 200, 429]


def test_megabytes_count_like_requests():
    app = Limits(Echo(), clock=lambda: 0.0)
    large = bytes(50 * limits.MEGABYTE)
    statuses = [status_of(app, large, content_type="multipart/form-data") for _ in range(15)]
    assert statuses.count(200) == int(BURST // 51)


@pytest.mark.parametrize("made_up", ["{}.7.7.7, 9.9.9.9", "{0}.7.7.7,{0}.8.8.8,9.9.9.9", "{},  9.9.9.9 ", "9.9.9.9"])
def test_behind_a_proxy_only_the_address_that_the_proxy_wrote_counts(made_up):
    """Whatever a visitor puts before it, and however often it is changed."""
    app = Limits(Echo(), behind_proxy=True, clock=lambda: 0.0)
    statuses = [status_of(app, x_forwarded_for=made_up.format(number)) for number in range(int(BURST) + 5)]
    assert statuses == [200] * int(BURST) + [429] * 5
    assert status_of(app, x_forwarded_for="9.9.9.9, 2.2.2.2") == 200, "another visitor is let in"


def test_without_a_proxy_nobody_chooses_an_address():
    app = Limits(Echo(), clock=lambda: 0.0)
    statuses = [status_of(app, x_forwarded_for=f"{number}.7.7.7") for number in range(int(BURST) + 5)]
    assert statuses == [200] * int(BURST) + [429] * 5


def test_a_body_that_does_not_say_its_size_ends_at_the_bound():
    echo = Echo()
    status_of(Limits(echo, clock=lambda: 0.0), bytes(3 * LARGEST_CALL), length=False)
    assert echo.got <= LARGEST_CALL


def test_addresses_are_forgotten_before_they_fill_the_memory(monkeypatch):
    monkeypatch.setattr(limits, "MOST_ADDRESSES", 10)
    app = Limits(Echo(), clock=lambda: 0.0)
    for number in range(50):
        status_of(app, address=str(number))
    assert len(app.buckets) == 10


def test_uploads_and_traces_older_than_a_day_are_removed_and_newer_ones_stay(visitor):
    from gradio.route_utils import delete_files_created_by_app

    every, age = visitor.page.delete_cache
    assert every <= 3600 and age <= 86_400
    (path,) = upload(visitor, encoded(SMALL, "png")).json()
    kind, told = call(visitor, "ask", [picture_at(path), "What is it?", *SETTINGS])
    trace = json.loads(told)[2]["path"]
    assert kind == "complete" and Path(path).exists() and Path(trace).exists()
    delete_files_created_by_app(visitor.page, age)
    assert Path(path).exists() and Path(trace).exists()
    time.sleep(0.02)
    delete_files_created_by_app(visitor.page, 0.01)
    assert not Path(path).exists() and not Path(trace).exists()


CHILD = """
import os, sys, time
from app.private_files import end_as_asked, use_private_folder
end_as_asked()
folder = use_private_folder()
(folder / "upload.png").write_bytes(b"x")
print(folder, flush=True)
time.sleep(60)
"""


def start(temporary):
    variables = {name: value for name, value in os.environ.items() if name != "GRADIO_TEMP_DIR"}
    return subprocess.Popen(
        [sys.executable, "-c", CHILD], cwd=ROOT, env=variables | {"TMPDIR": str(temporary)}, stdout=subprocess.PIPE
    )


def test_the_folder_is_this_users_alone_and_goes_with_its_process_even_if_that_is_killed(tmp_path):
    ended, killed, alive = (start(tmp_path) for _ in range(3))
    folders = [Path(child.stdout.readline().decode().strip()) for child in (ended, killed, alive)]
    try:
        assert len(set(folders)) == 3
        assert stat.S_IMODE(folders[0].stat().st_mode) == 0o700
        ended.terminate()
        assert ended.wait(20) == 0
        assert not folders[0].exists()
        killed.kill()
        killed.wait(20)
        assert folders[1].exists()
        start_again = start(tmp_path)
        start_again.stdout.readline()
        start_again.terminate()
        start_again.wait(20)
        assert not folders[1].exists()
        assert folders[2].exists()
    finally:
        alive.kill()
        alive.wait(20)


def test_a_folder_that_the_host_chose_is_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    assert private_files.use_private_folder() == tmp_path
    assert tmp_path.exists()


def test_nothing_is_reported_to_anyone():
    """Importing the program as `python app.py` does leaves both switches off before their libraries look."""
    head = (ROOT / "app.py").read_text().split("import gradio")[0]
    assert 'os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")' in head
    assert 'os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")' in head
