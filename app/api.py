"""The one public endpoint, `/ask`: a whole run as one call, checked like a press of Run. Everything else is private.

from gradio_client import Client, handle_file
client = Client("http://127.0.0.1:7860/")
text, lanes, trace = client.predict(handle_file("cat.png"), "What is it?", api_name="/ask")
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from app.events import AskPart
from app.files import save
from app.given import read_ask
from app.lanes import StopFlag
from app.memory_panel import session
from app.running import Running
from app.wiring import ON_THE_MODEL, sentence
from recap_engine.trace import RequestTrace

Answered = tuple[str, list[dict[str, Any]], str | None]  # text, table of lanes, trace file


def wire_api(ask_part: AskPart, running: Running) -> None:
    """The endpoint takes what the page's own fields take, with their limits and defaults."""

    def ask(
        image: str | None,
        question: str,
        lanes: Sequence[str],
        max_new_tokens: float,
        budget: str | int,
        request: gr.Request | None = None,
    ) -> Iterator[Answered]:
        """Answer a question about a picture with the chosen lanes, and say how each of them did.

        Streams the text; the last result also has the table and the file. Whoever leaves frees the model.
        """
        try:
            asked = read_ask(question, image, lanes, max_new_tokens, budget)
            for moment in running.answer(asked, StopFlag(), session(request)):
                words = next((run.text for run in moment.runs.values() if run.text), "")
                if moment.trace is None:
                    yield words, [], None
                    continue
                with tempfile.TemporaryDirectory() as folder:  # gradio copies the file out of it before this resumes
                    path, _ = save(moment.trace, Path(folder))
                    yield words, lane_table(moment.trace), str(path)
        except Exception as error:
            raise gr.Error(sentence(error), print_exception=False) from error

    part = ask_part
    call = gr.Button(visible=False)
    given = [part.picture, part.question, part.lanes, part.limit, part.budget]
    told = [gr.Textbox(visible=False, label="Answer"), gr.JSON(visible=False, label="Lanes")]
    call.click(
        ask,
        given,
        [*told, gr.File(visible=False, label="Trace")],
        api_name="ask",
        **ON_THE_MODEL | {"api_visibility": "public"},
    )


def lane_table(trace: RequestTrace) -> list[dict[str, Any]]:
    """A row for each lane. `identical`: to the reference lane's tokens; speedup: over AR's speed, if AR ran."""
    baseline = trace.lanes.get("ar")
    differences = trace.comparison().differences if len(trace.lanes) > 1 else {}
    return [
        {
            "lane": name,
            "tokens": lane.n_tokens,
            "steps": lane.n_steps,
            "MAT": rounded(lane.mat),
            "seconds": rounded(lane.decode_s),
            "speedup": rounded(lane.speedup_over(baseline)),
            "identical": not differences.get(name),
        }
        for name, lane in trace.lanes.items()
    ]


def rounded(value: float | None) -> float | None:
    """Four significant digits: more is noise."""
    return None if value is None else float(f"{value:.4g}")
