"""The numbers and words that a page of the lesson takes from the recorded trace when it is shown.

A page's text names them in braces (`{ar_steps} passes`); `fill` puts them in. Every value is safe as HTML and in
Markdown: token texts come from a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from html import escape
from statistics import mean, median

from app.lesson_picks import (
    Moment,
    accepted_of_line,
    first_child,
    first_line,
    is_sensitive_at,
    reached,
    recalled_at,
    target_choice,
)
from app.marks import LANES, seconds, shown
from recap_engine.trace import LaneTrace, StepTrace
from recap_engine.weighting import LENGTH, TEMPER

Fact = Callable[[Moment], str]
WORDS = "no one two three four five six seven eight nine ten eleven twelve".split()
MARKUP = str.maketrans({character: f"&#{ord(character)};" for character in "\\`*_{}[]()+-.!|~$:"})  # Markdown's own


def fill(text: str, moment: Moment) -> str:
    """The text with its facts, which are computed only if they are named."""
    return re.sub(r"\{(\w+)\}", lambda name: FACTS[name[1]](moment), text)


# ---- how things are written --------------------------------------------------------------------------------------


def code(token: int | None, moment: Moment) -> str:
    """A token as inline code, safe in HTML and Markdown; `the end` where the answer ended."""
    if token is None:
        return "the end"
    return f"<code>{escape(shown(token, moment.trace.token_text)).translate(MARKUP)}</code>"


def number(value: int) -> str:
    return WORDS[value] if value < len(WORDS) else f"{value:,}"


def count(value: int, noun: str, plural: str = "s") -> str:
    return f"{number(value)} {noun}{'' if value == 1 else plural}"


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else "none"


def part(value: int, of: int) -> str:
    """`12 of 48`."""
    return f"{value} of {of}"


# ---- the lanes ---------------------------------------------------------------------------------------------------


def _lane(moment: Moment, name: str) -> LaneTrace:
    return moment.trace.lanes[name]


def _step_s(lane: LaneTrace) -> float:
    return lane.decode_s / lane.n_steps


def _slower(moment: Moment, name: str) -> float:
    """How many times as long as one of AR's a lane's steps take."""
    return _step_s(_lane(moment, name)) / _step_s(_lane(moment, "ar"))


def _speedup(moment: Moment, name: str) -> float:
    return _lane(moment, name).speedup_over(_lane(moment, "ar")) or 0.0


def _drafted(lane: LaneTrace) -> list[StepTrace]:
    return [step for step in lane.steps if step.tokens]


def _sizes(moment: Moment, name: str) -> list[int]:
    return [len(step.tokens) for step in _drafted(_lane(moment, name))]


def _verify_s(lane: LaneTrace) -> float:
    return median(step.verify_s for step in lane.steps)


def same_answer(moment: Moment) -> str:
    trace = moment.trace
    differing = [LANES[name].short for name, where in trace.comparison().differences.items() if where]
    if not differing:
        return f"all {number(len(trace.lanes))} lanes gave the very same {trace.lanes['ar'].n_tokens} tokens"
    return f"{listed(differing)} left AR’s answer at a near tie, as can happen"


def budget_rule(moment: Moment) -> str:
    """How large RECAP's trees were allowed to be in this recording, and how large they were."""
    budget, sizes = _lane(moment, "recap").settings.get("budget"), _sizes(moment, "recap")
    least, most = min(sizes), max(sizes)
    found = f"RECAP’s trees had {f'from {number(least)} to ' if least < most else ''}{number(most)} nodes"
    if isinstance(budget, int):
        return f"This recording was made with a fixed budget of {budget} nodes, and {found}."
    return f"In this recording {found}."


# ---- the step ----------------------------------------------------------------------------------------------------


def _parent(moment: Moment) -> int:
    return moment.step.parents[moment.node]


def _key(moment: Moment, order: int) -> str:
    tokens = moment.trace.key(moment.whole, moment.step, _parent(moment) + 1)[-order:]
    return " ".join(code(token, moment) for token in tokens)


def _records(moment: Moment) -> tuple[int | None, int | None, int | None]:
    return recalled_at(moment.step, _parent(moment))


def _top(moment: Moment, order: int) -> str:
    record = _records(moment)[order - 1]
    return "nothing" if record is None else code(moment.whole.records.tokens[record][0], moment)


def right_choice(moment: Moment) -> str:
    """What the target chose where the chosen node was guessed."""
    step, parent = moment.step, _parent(moment)
    if parent in reached(step):
        return code(target_choice(step, parent), moment)
    return code(moment.whole.records.tokens[step.rows[parent + 1]][0], moment)


def row_origin(moment: Moment) -> str:
    """Where the one-token record behind the chosen node was written."""
    record = _records(moment)[0]
    if record is None:
        return "is empty"
    request, step, accepted = moment.whole.records.written[record]
    if moment.whole.is_other_picture(record):
        return "was written while the model looked at **another picture**"
    if request != moment.whole.request:
        return "was written in an earlier request"
    if step < 0:
        return "was written while the model read the question"
    return f"was written earlier in this answer, at {'an accepted' if accepted else 'a rejected'} guess"


def row_sure(moment: Moment) -> str:
    record = _records(moment)[0]
    probabilities = [] if record is None else moment.whole.records.probabilities[record]
    return f"{probabilities[0]:.0%}" if probabilities else "not known how"


def without_picture(moment: Moment) -> str:
    """What taking the picture away does at the chosen node's place, if the trace tells."""
    sensitivity, step, parent = moment.trace.sensitivity, moment.step, _parent(moment)
    if sensitivity is None or parent not in reached(step):
        return ""
    index = step.root_position + 1 + reached(step).index(parent)
    if not is_sensitive_at(moment.trace, index):
        return ""
    if sensitivity.changed[index]:
        return " Here is one: without the picture, the target would have chosen another token."
    return " Here is one: without the picture, the target’s prediction is clearly another."


def rival_place(moment: Moment) -> str:
    """How the longer keys' records and the one-token record compare at the chosen node."""
    tops = {order: _top(moment, order) for order in (1, 2, 3)}
    token = code(moment.step.tokens[moment.node], moment)
    right = [f"{WORDS[order]}-token" for order in (2, 3) if tops[order] == token]
    if not right or tops[1] == token:
        return f"Here all of them pointed the same way, to {token}."
    return (
        f"Here the one-token record would have said {tops[1]}. The {listed(right)} "
        f"record{'s' if len(right) > 1 else ''} said {token}, and that is what the target chose."
    )


def shares_sum(moment: Moment) -> str:
    """The chosen node's score as a sum: `0.103 + 0.021 + 0.190 = 0.314`."""
    step = moment.step
    shares = " + ".join(f"{share:.3f}" for share in step.shares[moment.node])
    return f"{shares} = {step.fused[moment.node]:.3f}"


def opinions(moment: Moment) -> str:
    """Which token each order's record has on top, and its weight."""
    weights = (moment.step.weights[_parent(moment) + 1] if moment.step.weights else None) or (0.0, 0.0, 0.0)
    found = [(order, weights[order - 1]) for order in (1, 2, 3) if _records(moment)[order - 1] is not None]
    return listed(
        [f"the {WORDS[order]}-token record says {_top(moment, order)} (weight {weight:.2f})" for order, weight in found]
    )


def recycled_rejects(moment: Moment) -> str:
    """How many of the records that the lane drafted from had been written at rejected positions."""
    used = {recalled[0] for step in moment.whole.steps for recalled in step.recalled if recalled}
    written = [moment.whole.records.written[record] for record in used if record is not None]
    return part(sum(not accepted for _, _, accepted in written), len(written))


def first_guesses_right(moment: Moment) -> str:
    """How many of the best guesses, at places that the target reached, were right."""
    tried = [
        step.decisions[node] == "accepted"
        for step in moment.whole.steps
        for at in reached(step)
        if (node := first_child(step, at)) is not None
    ]
    return part(sum(tried), len(tried))


def _persistent_part(moment: Moment, late: bool) -> str:
    """Of the accepted nodes of the first or the last third of the steps, how many the one-token memory gave most to."""
    steps = moment.whole.steps
    third = max(1, len(steps) // 3)
    orders = [step.orders[node] for step in (steps[-third:] if late else steps[:third]) for node in step.accepted]
    return part(orders.count(1), len(orders))


def persistent_wins(moment: Moment) -> str:
    orders = [step.orders[node] for step in moment.whole.steps for node in step.accepted]
    return part(orders.count(1), len(orders))


FACTS: dict[str, Fact] = {
    # the lanes
    "tokens": lambda m: str(_lane(m, "ar").n_tokens),
    "ar_steps": lambda m: str(_lane(m, "ar").n_steps),
    "ar_time": lambda m: seconds(_lane(m, "ar").decode_s),
    "ar_quarter": lambda m: seconds(_lane(m, "ar").decode_s / 4),
    "ar_step_time": lambda m: seconds(_step_s(_lane(m, "ar"))),
    "ar_verify": lambda m: seconds(_verify_s(_lane(m, "ar"))),
    "tr_verify": lambda m: seconds(_verify_s(_lane(m, "tr"))),
    "tr_verify_ratio": lambda m: f"{_verify_s(_lane(m, 'tr')) / _verify_s(_lane(m, 'ar')):.1f}",
    "tr_size": lambda m: str(round(median(_sizes(m, "tr")))),
    "tr_mat": lambda m: f"{_lane(m, 'tr').mat:.2f}",
    "tr_slower": lambda m: f"{_slower(m, 'tr'):.2f}",
    "tr_speedup": lambda m: f"{_speedup(m, 'tr'):.2f}",
    "recap_mat": lambda m: f"{_lane(m, 'recap').mat:.2f}",
    "recap_slower": lambda m: f"{_slower(m, 'recap'):.2f}",
    "recap_speedup": lambda m: f"{_speedup(m, 'recap'):.2f}",
    "line_mat": lambda m: f"{mean(1 + accepted_of_line(step) for step in _drafted(m.whole)):.2f}",
    "tree_mat": lambda m: f"{mean(1 + len(step.accepted) for step in _drafted(m.whole)):.2f}",
    "zero_steps": lambda m: part(sum(not step.accepted for step in _drafted(m.whole)), len(_drafted(m.whole))),
    "same_answer": same_answer,
    "budget_rule": budget_rule,
    "first_guesses_right": first_guesses_right,
    "recycled_rejects": recycled_rejects,
    "persistent_early": lambda m: _persistent_part(m, late=False),
    "persistent_late": lambda m: _persistent_part(m, late=True),
    "persistent_wins": persistent_wins,
    # the step
    "root": lambda m: code(m.step.root_token, m),
    "line": lambda m: " ".join(code(m.step.tokens[node], m) for node in first_line(m.step)),
    "accepted_guesses": lambda m: count(len(m.step.accepted), "guess", "es"),
    "bonus": lambda m: code(m.step.bonus, m),
    "emitted": lambda m: count(len(m.step.emitted), "token"),
    "line_emitted": lambda m: number(1 + accepted_of_line(m.step)),
    "nodes": lambda m: number(len(m.step.tokens)),
    "depth": lambda m: number(max(m.step.depths)),
    # the chosen node
    "node": lambda m: code(m.step.tokens[m.node], m),
    "node_fused": lambda m: f"{m.step.fused[m.node]:.0%}",
    "node_path": lambda m: f"{m.step.path[m.node]:.1%}",
    "node_sees": lambda m: number(m.step.depths[m.node] + 1),
    "ancestors": lambda m: listed([code(m.step.tokens[node], m) for node in m.nodes[:-1]]),
    "after": lambda m: _key(m, 1),
    "after_two": lambda m: _key(m, 2),
    "after_three": lambda m: _key(m, 3),
    "right": right_choice,
    "row_top": lambda m: _top(m, 1),
    "row_sure": row_sure,
    "row_origin": row_origin,
    "without_picture": without_picture,
    "rival_place": rival_place,
    "opinions": opinions,
    "shares_sum": shares_sum,
    # the rules of the method, from what it left in the trace and from the code that follows them
    "tr_most": lambda m: number(max(_sizes(m, "tr"))),
    "tr_levels": lambda m: number(max(depth for step in _lane(m, "tr").steps for depth in step.depths)),
    "row_size": lambda m: number(len(m.whole.records.tokens[0])),
    "length_factors": lambda m: f"{LENGTH[0]:.0f}, {LENGTH[1]:.0f} and {LENGTH[2]:.0f}",
    "length_ratio": lambda m: number(round(LENGTH[2] / LENGTH[0])),
    "temper": lambda m: f"{TEMPER:g}",
}
