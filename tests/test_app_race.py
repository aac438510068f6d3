"""The race replays the trace's own timestamps; tables and figures can be saved."""

import base64
import io
import json
import re
from html import unescape

import pandas as pd
from app_fakes import make_trace

from app.exports import FORMATS, figure_tools, table_links
from app.inspector import node_table
from app.marks import SOURCES
from app.race import SLOWER, race_board, race_data, steps_table


def test_a_replay_has_every_timestamp_and_ends_with_the_whole_text():
    trace = make_trace(steps=9)
    data = race_data(trace)
    assert data["ends"] == max(lane.decode_s for lane in trace.lanes.values())
    for given in data["lanes"]:
        lane = trace.lanes[given["name"]]
        assert given["times"] == [0.0, *(round(step.ended_s, 6) for step in lane.steps)]
        assert given["counts"][-1] == lane.n_tokens
        assert len(given["chars"]) == len(given["times"])
        assert given["chars"] == sorted(given["chars"]) and given["chars"][-1] == len(lane.text)


def test_the_board_carries_its_data_and_escapes_it():
    trace = make_trace(steps=3)
    trace.lanes["ar"].text = '"><script>alert(1)</script>'
    board = race_board(trace)
    assert "<script" not in board
    assert json.loads(unescape(re.search(r'data-race="([^"]*)"', board).group(1))) == race_data(trace)
    assert board.count("data-runner") == 3
    assert all(f'value="{factor}"' in board for factor in SLOWER) and 1 in SLOWER


def test_the_steps_of_all_lanes_make_one_table():
    trace = make_trace(steps=4, plus=True)
    table = steps_table(trace)
    assert len(table) == sum(lane.n_steps for lane in trace.lanes.values())
    assert set(table["lane"]) == {"ar", "tr", "recap", "recap+"}


def test_a_table_is_saved_as_csv_and_json_without_loss():
    trace = make_trace()
    table = node_table(trace.lanes["recap"].steps[0], SOURCES["recap"], {0: 'a,"b"\n<i>'} | trace.token_text)
    links = table_links(table, "nodes", "the nodes")
    assert re.findall(r'download="([^"]*)"', links) == ["nodes.csv", "nodes.json"]
    csv, as_json = (base64.b64decode(data).decode() for data in re.findall(r"base64,([^\"]*)", links))
    read = pd.read_csv(io.StringIO(csv), keep_default_na=False)
    assert list(read["token"]) == list(table["token"])
    assert [row["decision"] for row in json.loads(as_json)] == list(table["decision"])


def test_every_figure_can_be_saved_in_every_format_and_only_the_tree_zooms():
    tools = figure_tools("tree", "the tree", zoom=True)
    assert all(f'data-save="{ending}"' in tools for ending in FORMATS)
    assert tools.count("data-zoom") == 3
    assert "data-zoom" not in figure_tools("progress", "the figure")
