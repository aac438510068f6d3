"""Every variant does what its name says, with a random model; and the tables judge by time and by step cost."""

from dataclasses import replace

import pytest
from tiny_models import random_request, tiny_engine

from recap_engine.bench import ablation
from recap_engine.bench.ablation import DESIGN, GROUPS, KEYS, Ablated, Variant, kinds, rows, variants_table
from recap_engine.bench.lanes import Plan
from recap_engine.bench.results import Folder, Measurement, Setting
from recap_engine.bench.session import Session
from recap_engine.bench.suites import Case, Suite
from recap_engine.decode import decode
from recap_engine.decoders import Recap, RecapPlus
from recap_engine.errors import RecapError
from recap_engine.memory import TokenMemory
from recap_engine.settings import Settings
from recap_engine.stepcost import StepCost
from recap_engine.trace import Sensitivity

SETTINGS = Settings(max_new_tokens=40, record=False)


@pytest.fixture(scope="module")
def engine():
    engine = tiny_engine("llama")
    engine.step_cost = StepCost.free(8)
    return engine


@pytest.fixture
def asking(engine, monkeypatch):
    """The engine with a request for every question, and a picture that matters at every other token."""

    def prepare(question, image=None, history=()):
        request = random_request("llama", seed=len(question))
        request.pictures = ["a picture"]
        return request

    def sensitivity(request, tokens):
        return Sensitivity([0.0] * len(tokens), [bool(index % 2) for index in range(len(tokens))], "")

    monkeypatch.setattr(engine, "prepare", prepare)
    monkeypatch.setattr(engine, "sensitivity", sensitivity)
    return engine


def run(engine, variant, seeds=(1, 3)):
    """The decoders that answered, one request after another."""
    memory, made = TokenMemory(), []
    for seed in seeds:
        request = random_request("llama", seed)
        trees = []

        class Watched(Ablated):
            def draft(self, context, max_depth, trees=trees):
                self.known = self.known if trees else self.sizes()
                trees.append(super().draft(context, max_depth))
                return trees[-1]

        stops = engine.target.stop_tokens
        decoder = Watched(variant, memory, engine.step_cost, SETTINGS, stops)
        decoder.keys_at_start = {
            1: set(memory.rows),
            2: set(decoder.longer.pairs),
            3: set(decoder.longer.triples),
        }
        list(decode(engine.target, decoder, engine.target.prefill(request.inputs), SETTINGS, str))
        decoder.trees = trees
        made.append(decoder)
    return made


def orders_used(decoder):
    """The orders that gave something to a tree."""
    weights = [proposal.weights for tree in decoder.trees for proposal in tree.proposals]
    return {order for order in (1, 2, 3) if any(given[order - 1] > 0 for given in weights)}


@pytest.mark.parametrize("name", GROUPS["orders"])
def test_a_variant_of_orders_drafts_from_those_alone(engine, name):
    for decoder in run(engine, GROUPS["orders"][name]):
        assert orders_used(decoder) == set(map(int, name))
    assert orders_used(run(engine, Variant())[0]) == {1, 2, 3}


def test_scopes_say_what_the_next_request_finds(engine):
    found = {}
    for name, variant in {"as designed": Variant(), **GROUPS["scopes"]}.items():
        first, second = run(engine, variant)
        assert not any(first.keys_at_start.values())
        found[name] = [order for order, keys in second.keys_at_start.items() if keys]
    assert found == {"as designed": [1], "all local": [], "all persistent": [1, 2, 3]}


def test_all_together_is_the_lane_of_that_name(engine):
    memory, settings = TokenMemory(), replace(SETTINGS, record=True)
    for seed, decoder in zip((1, 3), run(engine, GROUPS["together"]["recap+"])):
        plus = RecapPlus(memory, engine.step_cost, settings, engine.target.stop_tokens)
        prefill = engine.target.prefill(random_request("llama", seed).inputs)
        *_, last = decode(engine.target, plus, prefill, settings, str)
        assert [len(step.tokens) for step in last.trace.steps] == decoder.nodes


def test_as_designed_is_recap_and_other_ways_to_keep_records_are_not(engine):
    memory, settings = TokenMemory(), replace(SETTINGS, record=True)
    designed = [decoder.nodes for decoder in run(engine, Variant())]
    for seed, nodes in zip((1, 3), designed):
        recap = Recap(memory, engine.step_cost, settings, engine.target.stop_tokens)
        prefill = engine.target.prefill(random_request("llama", seed).inputs)
        *_, last = decode(engine.target, recap, prefill, settings, str)
        assert [len(step.tokens) for step in last.trace.steps] == nodes
    for variant in GROUPS["records"].values():
        assert [decoder.nodes for decoder in run(engine, variant)] != designed


@pytest.mark.parametrize("name", GROUPS["rejected"])
def test_keys_that_do_not_learn_from_rejected_nodes_are_fewer(engine, name):
    variant = GROUPS["rejected"][name]
    kept, designed = (run(engine, one, seeds=(1,))[0] for one in (replace(variant, local=()), Variant(local=())))
    for order, table in kept.token_memory.tables.items():
        all_keys = designed.token_memory.tables[order]
        assert (len(table) == len(all_keys)) == (order in variant.rejected)


def test_without_seeding_nothing_is_known_before_the_first_step(engine):
    seeded, bare = (run(engine, variant, (1,))[0] for variant in (Variant(), GROUPS["seeding"]["without"]))
    assert all(seeded.known.values())
    assert not any(bare.known.values()) and bare.nodes[0] == 0


def test_cold_memories_are_dropped_with_each_request(engine):
    plan = Plan(engine, SETTINGS)
    steps = {}
    for name, variant in (("hot", Variant()), ("cold", GROUPS["memory"]["cold"])):
        lane = ablation.variant_lane(plan, variant)
        request = random_request("llama", 1)
        request.prefill = engine.target.prefill(request.inputs)
        steps[name] = [lane.run(request, []).details["nodes"] for _ in range(2)]
    assert steps["cold"][0] == steps["cold"][1] == steps["hot"][0] != steps["hot"][1]


@pytest.mark.parametrize(("group", "name", "holds"), [("budget", "16", 16), ("depth", "1", 1), ("k", "2", 2)])
def test_a_setting_reaches_the_trees(engine, group, name, holds):
    settings = Settings(max_new_tokens=40, record=False, **GROUPS[group][name].settings)
    cost = StepCost.free(settings.budget if group == "budget" else 8)
    decoder = Ablated(GROUPS[group][name], TokenMemory(), cost, settings, ())
    request = random_request("llama", 1)
    trees, draft = [], decoder.draft
    decoder.draft = lambda *given: trees.append(draft(*given)) or trees[-1]
    list(decode(engine.target, decoder, engine.target.prefill(request.inputs), settings, str))
    if group == "budget":
        assert max(map(len, trees)) == holds
    elif group == "depth":
        assert {depth for tree in trees for depth in tree.depths} == {holds}
    else:
        assert {len(r.tokens) for tree in trees for p in tree.proposals for r in p.recalled if r} == {holds}


SUITES = [Suite("one", [Case("one", str(n), ("?" * n,), lambda: None) for n in (1, 3)], [])]


def session(engine, only, folder=None):
    chosen = kinds(only)
    setting = Setting({"only": list(only)}, {})
    return Session(engine, SUITES, list(chosen), SETTINGS, setting, folder=folder, kinds=chosen)


def test_the_command_measures_every_variant_and_an_interrupted_run_is_taken_up(asking, tmp_path, monkeypatch):
    made = session(asking, ["orders", KEYS], Folder(tmp_path))
    steps = made.run()
    next(steps)
    steps.close()
    again = session(asking, ["orders", KEYS], Folder(tmp_path))
    assert [p.done for p in again.run()] == [2]
    lanes = ["ar", DESIGN, "orders 1", "orders 12", "orders 13", "orders 23", KEYS]
    assert [m.lane for m in again.measurements] == lanes * 2
    assert all(m.identical for m in again.measurements)
    ablation.write(again.folder, again.setting, again.measurements)
    table = (tmp_path / "ablation.md").read_text()
    assert "| orders | 23 " in table and "right where the picture decides" in table
    assert len((tmp_path / "ablation.csv").read_text().splitlines()) == 1 + len(lanes) - 2
    with pytest.raises(RecapError, match="no ablation of 'poems'"):
        kinds(["poems"])


def test_keys_are_tallied_apart_by_what_the_picture_decides(asking):
    made = session(asking, [KEYS])
    list(made.run())
    tallies = [m.details["keys"] for m in made.measurements if m.lane == KEYS]
    tokens = sum(m.tokens - 1 for m in made.measurements if m.lane == KEYS)
    for key in ("1 local", "2 persistent", "3 local"):
        states = [sum(t[key][side][0] for t in tallies) for side in (0, 1)]
        assert 0 < sum(states) <= tokens and abs(states[0] - states[1]) <= tokens / 3
        assert all(t[key][side][1] <= t[key][side][0] for t in tallies for side in (0, 1))
    assert all(
        t[f"{order} local"][side][0] <= t[f"{order} persistent"][side][0]
        for t in tallies
        for order in (1, 2, 3)
        for side in (0, 1)
    )


def test_variants_are_judged_by_their_time_and_by_what_their_trees_cost():
    def measured(lane, steps, seconds, nodes=None):
        details = {} if nodes is None else {"nodes": nodes}
        return Measurement("one", "1", 1, lane, 13, steps, 0.1, seconds, details=details)

    setting = Setting({}, {}, {"ar": "", DESIGN: "", "budget 4": ""}, step_cost=[1.0, 1.5, 2.0])
    runs = [measured("ar", 12, 24.0), measured(DESIGN, 6, 8.0, [1] * 6), measured("budget 4", 4, 4.0, [4] * 4)]
    design, wide = rows(setting, runs)
    assert (design["measured_over_ar_mean"], design["by_cost_over_ar_mean"]) == (3.0, 12 / 9)
    assert (wide["measured_over_recap_mean"], wide["by_cost_over_recap_mean"]) == (2.0, 9 / (4 * 3.0))
    assert (wide["mat"], wide["nodes"], wide["choice"], wide["variant"]) == (3.0, 4.0, "budget", "4")
    assert variants_table([design, wide])[1][:3] == ["", "as designed", "3.00 [3.00, 3.00]"]
