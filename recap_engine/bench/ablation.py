"""Which of RECAP's choices earns what: each variant changes one choice and leaves all others as they are.

`python -m recap_engine.bench ablation --out FOLDER` makes two tables. The first judges every variant twice: by the time
it took, and by the time its trees would take under one measured curve of the step cost, which a busy machine leaves
alone. The second asks of keys of one, two and three tokens, kept for one request or for all, how often the best token
of the record that they recall is what the target says: where the picture decides, and elsewhere.
"""

import csv
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from recap_engine.bench import options
from recap_engine.bench.lanes import LANES, Kind, Lane, Plan, Run
from recap_engine.bench.ratios import Ratio, mean_accepted, ratio, speedups
from recap_engine.bench.report import Table, aligned, differences, interval, number
from recap_engine.bench.results import Folder, Measurement, Setting
from recap_engine.bench.session import Session
from recap_engine.blending import blend_into, latest, said
from recap_engine.decode import decode
from recap_engine.decoders import Decoder, Recap
from recap_engine.decoders.recap_plus import remember_words
from recap_engine.errors import RecapError
from recap_engine.memory import Recalled, Record, TokenMemory
from recap_engine.request import Request
from recap_engine.settings import Settings
from recap_engine.stepcost import StepCost
from recap_engine.target import Prefill, Reading
from recap_engine.trace import LaneTrace, is_sensitive
from recap_engine.tree import ROOT, CandidateTree, Context
from recap_engine.weighting import WEIGHTINGS, Weigh, Weights

DESIGN, KEYS = "recap", "keys"  # the lane that every variant is compared with, and the one behind the second table
ORDERS, CONTEXTUAL = (1, 2, 3), (2, 3)
Tally = dict[str, list[list[int]]]  # by key: [recalled, right] at image-sensitive states, then at the others


@dataclass(frozen=True)
class Variant:
    """RECAP with one choice changed."""

    settings: dict[str, Any] = field(default_factory=dict)  # changes of `Settings`
    orders: Collection[int] = ORDERS  # those that count
    local: Collection[int] = CONTEXTUAL  # those whose records go with their request: ORDERS, CONTEXTUAL or ()
    blended: Collection[int] = (1,)  # orders where a new record joins the one under its key, in place of replacing it
    rejected: Collection[int] = ORDERS  # orders whose keys learn from rejected nodes too, not from what was said alone
    seeded: bool = True  # with what the target predicted along the prompt
    words: bool = False  # the prompt's own next words count as predictions under long keys
    cold: bool = False  # everything is dropped with each request


def _varied(setting: str, values: Sequence[Any]) -> dict[str, Variant]:
    return {str(value): Variant({setting: value}) for value in values if value != getattr(Settings, setting)}


GROUPS: dict[str, dict[str, Variant]] = {
    "orders": {orders: Variant(orders=tuple(map(int, orders))) for orders in ("1", "12", "13", "23")},
    "scopes": {"all local": Variant(local=ORDERS), "all persistent": Variant(local=())},
    "records": {
        "overwritten": Variant(blended=()),
        "all blended": Variant(blended=ORDERS),
        "all blended, all persistent": Variant(blended=ORDERS, local=()),
    },
    "rejected": {
        "nodes kept under 1 and 2 tokens": Variant(rejected=(1, 2)),
        "nodes kept under 1 token": Variant(rejected=(1,)),
        "nodes not kept": Variant(rejected=()),
    },
    "weighting": _varied("weighting", [name for name in WEIGHTINGS if name != "last-token"]),  # that one is orders 1
    "budget": _varied("budget", (8, 16, 24, 32, 48, 64, 80)),
    "depth": _varied("max_depth", (1, 2, 4, 8, 12, 24)),
    "k": _varied("top_k", (2, 3, 4, 8, 16)),
    "seeding": {"without": Variant(seeded=False), "and the prompt's words": Variant(words=True)},
    "together": {"recap+": Variant(blended=ORDERS, local=(), rejected=(1, 2), words=True)},
    "memory": {"cold": Variant(cold=True)},
}


def main(arguments: Sequence[str]) -> int:
    """Run the ablation: progress to stderr, tables to stdout, everything to `--out`; also what Ctrl-C leaves."""
    parser = options.parser(" ablation", __doc__)
    parser.add_argument("--only", type=options.split, default=[], help=f"some of {', '.join([*GROUPS, KEYS])}")
    parser.add_argument("--out", help="folder for results and tables; a run that was interrupted there is taken up")
    asked = parser.parse_args(arguments)
    chosen = kinds(asked.only)
    suites = options.suites(asked)
    engine = options.engine(asked)
    session = Session(
        engine,
        suites,
        list(chosen),
        Settings(max_new_tokens=asked.max_new_tokens, record=False),
        Setting(options.asked(asked, engine), dict(engine.machine)),
        most_cases=asked.limit,
        folder=Folder(Path(asked.out)) if asked.out else None,
        kinds=chosen,
    )
    try:
        for progress in session.run():
            options.show(progress)
    finally:
        if session.measurements:
            print(text(session.setting, session.measurements))
            if session.folder:
                write(session.folder, session.setting, session.measurements)
    return 0


def kinds(only: Collection[str] = ()) -> dict[str, Kind]:
    """The lanes of the groups in `only`, or of all: plain decoding, RECAP as designed, and RECAP varied.

    Raises RecapError for an unknown group.
    """
    if unknown := [name for name in only if name not in (*GROUPS, KEYS)]:
        raise RecapError(f"There is no ablation of {unknown[0]!r}; there are {', '.join([*GROUPS, KEYS])}.")
    made = {"ar": LANES["ar"], DESIGN: _kind("as designed", Variant())}
    for group, variants in GROUPS.items():
        if not only or group in only:
            made |= {f"{group} {name}": _kind(f"{group}: {name}", variant) for name, variant in variants.items()}
    if not only or KEYS in only:
        made[KEYS] = Kind("as designed; looks at what each key recalls before every token", keys_lane)
    return made


# ---- the lanes ----


class Ablated(Recap):
    """RECAP as a variant wants it. `nodes` tells the size of every tree it drafted."""

    def __init__(
        self,
        variant: Variant,
        memory: TokenMemory,
        cost: StepCost,
        settings: Settings,
        stops: Collection[int],
    ) -> None:
        """`memory` is there for the next request too, as far as the variant lets it."""
        if 1 in variant.local:
            memory.rows.clear()
        super().__init__(memory, cost, settings, stops)
        if not variant.local:
            self.longer = memory
        self.weigh = only(self.weigh, variant.orders)
        self.variant = variant
        self.nodes: list[int] = []

    def draft(self, context: Context, max_depth: int) -> CandidateTree:
        tree = super().draft(context, max_depth)
        self.nodes.append(len(tree))
        return tree

    def seed(self, prefill: Prefill, reading: Reading) -> None:
        if self.variant.words:
            remember_words(self.longer, prefill, self.request)
        if self.variant.seeded:
            super().seed(prefill, reading)

    def remember(self, found: Iterable[tuple[Context, Record]]) -> None:
        tables: Sequence[dict[Any, Record]] = self.token_memory.rows, self.longer.pairs, self.longer.triples
        joined = []
        for order, table, new in zip(ORDERS, tables, latest(found), strict=True):
            if order not in self.variant.rejected:
                new = said(new)
            if order in self.variant.blended:
                joined.append((table, new))
            else:
                table.update(new)
        blend_into(*joined)


def only(weigh: Weigh, orders: Collection[int]) -> Weigh:
    """The same weighting as if nothing but these orders were recalled."""

    def weighed(recalled: Recalled) -> Weights:
        one, two, three = recalled
        return weigh((one if 1 in orders else None, two if 2 in orders else None, three if 3 in orders else None))

    return weighed


class Keyed(Recap):
    """RECAP that notes, before every token of the answer, what each key would have proposed for it."""

    def __init__(self, kept: dict[str, dict[Context, Record]], *more: Any) -> None:
        """`kept` holds what the persistent keys remember, for the next request too; `more`: see `Recap`."""
        super().__init__(*more)
        local: dict[str, dict[Context, Record]] = {f"{order} local": {} for order in ORDERS}
        self.stores = local | kept
        self.found: list[dict[str, bool]] = []  # per token after the first: is what a key recalls right?

    def remember(self, found: Iterable[tuple[Context, Record]]) -> None:
        found = list(found)
        super().remember(found)
        for context, record in found:
            for key, store in self.stores.items():
                store[_key(context, key)] = record

    def update(self, tree: CandidateTree, reading: Reading, accepted: list[int], step: int) -> None:
        for node in (ROOT, *accepted):
            said, context = reading.argmax[node + 1], tree.context_of(node)
            recalled = {key: store.get(_key(context, key)) for key, store in self.stores.items()}
            self.found.append({key: record.tokens[0] == said for key, record in recalled.items() if record})
        super().update(tree, reading, accepted, step)


def _key(context: Context, key: str) -> Any:
    return context[len(context) - int(key[0]) :]


def _kind(about: str, variant: Variant) -> Kind:
    return Kind(about, lambda plan: variant_lane(plan, variant))


def variant_lane(plan: Plan, variant: Variant) -> Lane:
    """A lane that keeps `nodes`, the sizes of its trees. The time for reading the prompt counts where it is used."""
    settings = replace(plan.settings, **variant.settings)
    memory = TokenMemory()

    def run(request: Request, _: list[int]) -> Run:
        if variant.cold:
            memory.clear()
        engine = plan.engine
        decoder = Ablated(variant, memory, engine.cost_for(request, settings), settings, engine.target.stop_tokens)
        trace = _finished(plan, decoder, request, settings)
        decode_s = trace.decode_s + (trace.seed_s if variant.seeded else 0.0)
        return Run(trace.tokens, trace.n_steps, trace.prefill_s, decode_s, {"nodes": decoder.nodes})

    return Lane(run, memory.clear)


def keys_lane(plan: Plan) -> Lane:
    """A lane that keeps a `Tally`, unless the request has no picture."""
    memory = TokenMemory()
    kept: dict[str, dict[Context, Record]] = {f"{order} persistent": {} for order in ORDERS}

    def forget() -> None:
        memory.clear()
        for store in kept.values():
            store.clear()

    def run(request: Request, _: list[int]) -> Run:
        engine = plan.engine
        cost = engine.cost_for(request, plan.settings)
        decoder = Keyed(kept, memory, cost, plan.settings, engine.target.stop_tokens)
        trace = _finished(plan, decoder, request, plan.settings)
        run = Run(trace.tokens, trace.n_steps, trace.prefill_s, trace.seed_s + trace.decode_s)
        if request.pictures:
            sensitivity = engine.sensitivity(request, trace.tokens)
            sensitive = [is_sensitive(sensitivity, index) for index in range(1, len(trace.tokens))]
            run.details["keys"] = _tally(sensitive, decoder.found)
        return run

    return Lane(run, forget)


def _finished(plan: Plan, decoder: Decoder, request: Request, settings: Settings) -> LaneTrace:
    assert request.prefill is not None
    *_, last = decode(plan.engine.target, decoder, request.prefill, settings, lambda tokens: "")
    return last.trace


def _tally(sensitive: Sequence[bool], found: Sequence[dict[str, bool]]) -> Tally:
    tally: Tally = {f"{order} {scope}": [[0, 0], [0, 0]] for order in ORDERS for scope in ("local", "persistent")}
    for moved, recalled in zip(sensitive, found, strict=False):
        for key, right in recalled.items():
            counts = tally[key][0 if moved else 1]
            counts[0] += 1
            counts[1] += right
    return tally


# ---- the tables ----


def by_step_cost(measurements: Sequence[Measurement], curve: Sequence[float]) -> list[Measurement]:
    """What each measurement's steps take under a step-cost curve, in place of what they took.

    Lanes that don't tell their trees are left out. Beyond its end the curve goes on as steeply as it ended.
    """
    slope = curve[-1] - curve[-2] if len(curve) > 1 else 0.0

    def seconds(nodes: int) -> float:
        beyond = nodes - (len(curve) - 1)
        return curve[-1] + slope * beyond if beyond > 0 else curve[nodes]

    found = []
    for m in measurements:
        nodes = [0] * m.steps if m.lane == "ar" else m.details.get("nodes")
        if nodes is not None:
            found.append(replace(m, decode_s=sum(map(seconds, nodes))))
    return found


def rows(setting: Setting, measurements: Sequence[Measurement]) -> list[dict[str, Any]]:
    """One row per variant: measured and expected speed over AR and over RECAP as designed, MAT, nodes a step."""
    expected = by_step_cost(measurements, setting.step_cost)
    found = []
    for lane in setting.lanes:
        own = [m for m in measurements if m.lane == lane]
        if lane in ("ar", KEYS) or not own:
            continue
        group, _, name = lane.partition(" ")
        row: dict[str, Any] = {"choice": group if name else "", "variant": name or "as designed"}
        for judged, runs in (("measured", measurements), ("by_cost", expected)):
            for baseline in ("ar", DESIGN):
                _put(row, f"{judged}_over_{baseline}", ratio(*speedups(runs, lane, baseline).values()))
        row["mat"] = mean_accepted(own)
        row["nodes"] = sum(sum(m.details["nodes"]) for m in own) / max(1, sum(m.steps for m in own))
        row["identical"], row["runs"] = sum(m.identical for m in own), len(own)
        found.append(row)
    return found


def _put(row: dict[str, Any], name: str, value: Ratio | None) -> None:
    for part in ("mean", "low", "high"):
        row[f"{name}_{part}"] = getattr(value, part, None)


def variants_table(found: Sequence[dict[str, Any]]) -> Table:
    """`rows` for people."""
    clocks = ("measured_over_ar", "by_cost_over_ar", f"measured_over_{DESIGN}", f"by_cost_over_{DESIGN}")
    heads = ["over ar, measured", "over ar, by step cost", "over the design, measured", "over the design, by step cost"]
    table = [["choice", "variant", *heads, "MAT", "nodes a step", "identical"]]
    for row in found:
        cells = [interval(row, clock) for clock in clocks]
        counts = [number(row["mat"]), number(row["nodes"], 1), f"{row['identical']} of {row['runs']}"]
        table.append([row["choice"], row["variant"], *cells, *counts])
    return table


def keys_table(measurements: Sequence[Measurement]) -> Table:
    """Keys in rows: of the states at which one recalls a record, how often its best token is the target's own."""
    tallies: list[Tally] = [m.details["keys"] for m in measurements if "keys" in m.details]
    table = [["key's tokens", "kept for", "right where the picture decides", "right elsewhere"]]
    for key in tallies[0] if tallies else ():
        order, scope = key.split()
        sums = [[sum(t[key][side][part] for t in tallies) for part in (0, 1)] for side in (0, 1)]
        cells = [f"{right / n:.0%} of {n}" if n else "–" for n, right in sums]
        table.append([order, {"local": "one request", "persistent": "all requests"}[scope], *cells])
    return table


def text(setting: Setting, measurements: Sequence[Measurement]) -> str:
    """Both tables as Markdown, and how they were made."""
    parts = [aligned(variants_table(rows(setting, measurements)))]
    keys = keys_table(measurements)
    if len(keys) > 1:
        parts += ["", aligned(keys)]
    return "\n".join([*parts, "", *(f"- {line}" for line in [*differences(measurements), *setting.notes])])


def write(folder: Folder, setting: Setting, measurements: Sequence[Measurement]) -> None:
    """summary.json, ablation.csv and ablation.md, beside the lines of the run."""
    found = rows(setting, measurements)
    folder.save(setting, {"rows": found, "keys": keys_table(measurements)})
    (folder.path / "ablation.md").write_text(text(setting, measurements) + "\n")
    if found:
        with (folder.path / "ablation.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, found[0])
            writer.writeheader()
            writer.writerows(found)
