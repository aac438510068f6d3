"""What a run leaves in its folder.

results.jsonl                        a line per measurement, appended case by case: a run can be taken up again
summary.json                         how it was made, and the figures of the tables
run.json                             both as one file, which the page opens
table.csv, table.md, report.html     for people
"""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from recap_engine.errors import RecapError
from recap_engine.stepcost import StepCost

MOST_BYTES = 20_000_000  # of a file that `unpack` reads
MOST_TOKENS = 10**6
LONGEST = 300  # characters of any text in such a file


@dataclass(frozen=True)
class Measurement:
    """One lane's run of one request. Times in seconds; decode_s includes seeding memories from the prompt."""

    suite: str
    case: str
    turn: int  # of the case, from 1
    lane: str
    tokens: int
    steps: int
    prefill_s: float
    decode_s: float
    differs_at: int | None = None  # index into the answer of the first token that isn't the first lane's
    margin: float | None = None  # the target's logit gap there between its two best tokens
    right: bool | None = None  # the answer holds the words of the known one; None if none is known
    details: dict[str, Any] = field(default_factory=dict)  # what only some lanes tell, see `lanes.Run`

    @property
    def request(self) -> tuple[str, str, int]:
        return self.suite, self.case, self.turn

    @property
    def identical(self) -> bool:
        return self.differs_at is None

    @property
    def total_s(self) -> float:
        return self.prefill_s + self.decode_s


@dataclass
class Setting:
    """How a run was made."""

    options: dict[str, Any]  # what was asked for
    machine: dict[str, Any]
    lanes: dict[str, str] = field(default_factory=dict)  # name and description, in order
    budgets: dict[str, int] = field(default_factory=dict)  # nodes, found by calibration
    step_cost: list[float] = field(default_factory=list)  # `StepCost.seconds`
    step_cost_per_token: list[float] = field(default_factory=list)  # `StepCost.per_token`
    notes: list[str] = field(default_factory=list)  # sentences: load, what was left out, where it was interrupted

    def changes(self, other: "Setting") -> list[str]:
        """Where options or machines differ, one line each."""
        ours, theirs = ({**s.options, **s.machine} for s in (self, other))
        names = [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
        return [f"{name}: {ours.get(name)} and {theirs.get(name)}" for name in names]

    @property
    def cost(self) -> StepCost | None:
        """The step cost that the run was made under, if it is known."""
        return StepCost(tuple(self.step_cost), tuple(self.step_cost_per_token)) if self.step_cost else None

    @cost.setter
    def cost(self, cost: StepCost) -> None:
        self.step_cost, self.step_cost_per_token = list(cost.seconds), list(cost.per_token)

    def note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)


class Folder:
    """The files of one run."""

    def __init__(self, path: Path) -> None:
        self.path, self.lines, self.summary = path, path / "results.jsonl", path / "summary.json"

    def read(self) -> tuple[Setting, list[Measurement]]:
        """What a run left, finished or not; a last line cut short is passed over. Raises RecapError for other files."""
        try:
            setting = Setting(**json.loads(self.summary.read_text())["setting"])
            whole, _, _ = self.lines.read_text().rpartition("\n")
            return setting, [Measurement(**json.loads(line)) for line in whole.splitlines()]
        except OSError as error:
            raise RecapError(f"{self.path} holds no run of the bench.") from error
        except (ValueError, KeyError, TypeError) as error:
            raise RecapError(f"The files in {self.path} were not written by this bench.") from error

    def resume(self, setting: Setting) -> tuple[Setting, list[Measurement]]:
        """An earlier run's setting and measurements; `setting` and nothing if the folder is new.

        Raises RecapError if the earlier run asked for something else.
        """
        if not self.summary.exists():
            self.path.mkdir(parents=True, exist_ok=True)
            return setting, []
        earlier, found = self.read()
        if changes := earlier.changes(setting):
            raise RecapError(f"{self.path} holds another run ({changes[0]}); choose another folder.")
        return earlier, found

    def begin(self, setting: Setting, measurements: Sequence[Measurement]) -> None:
        """Keep these measurements only, and be ready for more."""
        self.save(setting, {})
        self.lines.write_text(_lines(measurements))

    def add(self, measurements: Sequence[Measurement]) -> None:
        with self.lines.open("a") as file:
            file.write(_lines(measurements))

    def save(self, setting: Setting, figures: dict[str, Any]) -> None:
        self.summary.write_text(json.dumps({"setting": asdict(setting), **figures}, indent=1))


def _lines(measurements: Sequence[Measurement]) -> str:
    return "".join(json.dumps(asdict(m)) + "\n" for m in measurements)


def pack(setting: Setting, measurements: Sequence[Measurement]) -> str:
    """A run as one JSON file."""
    return json.dumps({"setting": asdict(setting), "measurements": [asdict(m) for m in measurements]})


def unpack(path: Path) -> tuple[Setting, list[Measurement]]:
    """The run in a file from anywhere: every text and number of it is checked. Raises RecapError for any other file."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ValueError
        made = json.loads(path.read_text(encoding="utf-8"))
        setting = Setting(**made["setting"])
        measurements = [Measurement(**{**fields, "details": {}}) for fields in made["measurements"]]
        _check(setting, measurements)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RecapError("This is not a run of the bench; choose the run.json that a run leaves.") from error
    return setting, measurements


def _check(setting: Setting, measurements: Sequence[Measurement]) -> None:
    """Raises ValueError for what no run holds."""

    def check(*holds: bool) -> None:
        if not all(holds):
            raise ValueError

    def plain(*texts: object) -> bool:
        return all(isinstance(text, str) and len(text) <= LONGEST and not set(text) & set("<>&") for text in texts)

    def seconds(*values: Any) -> bool:
        return all(type(value) in (int, float) and math.isfinite(value) and value >= 0 for value in values)

    check(isinstance(setting.options, dict), isinstance(setting.machine, dict), isinstance(setting.lanes, dict))
    check(all(isinstance(note, str) for note in setting.notes), seconds(*setting.budgets.values()))
    check(seconds(*setting.step_cost, *setting.step_cost_per_token))
    check(len(setting.step_cost_per_token) in (0, len(setting.step_cost)))
    check(bool(measurements), plain(*setting.budgets, *setting.lanes, *setting.lanes.values()))
    for m in measurements:
        whole = (m.turn, m.tokens, m.steps, *([] if m.differs_at is None else [m.differs_at]))
        check(plain(m.suite, m.case, m.lane), all(type(n) is int and 0 <= n <= MOST_TOKENS for n in whole))
        check(seconds(m.prefill_s, m.decode_s, m.prefill_s + m.decode_s), m.tokens < 2 or m.decode_s > 0)
        check(m.margin is None or seconds(abs(m.margin)), m.identical or m.margin is not None)
        check(m.right in (None, True, False))
    check("ar" in {m.lane for m in measurements})
