"""The answer to "why this candidate?" as HTML: what each key recalled beside what the target said at that position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from app.marks import NEUTRAL, SOURCES, shown
from app.why import Said, Source, Why, explain
from recap_engine.blending import LATER
from recap_engine.trace import BLENDING, PERSISTENT, SCOPES, LaneTrace, RequestTrace
from recap_engine.weighting import LENGTH, TEMPER

TOKEN_TEXT = Mapping[int, str]


def why_of(trace: RequestTrace, lane_name: str, number: int, node: int | None) -> str:
    """The panel for one node of one step, or for the bonus token; empty where there is none."""
    lane = trace.lanes[lane_name]
    step = lane.steps[number]
    if node is None or (node == len(step.tokens) and step.bonus is None):
        return ""
    return why_panel(explain(trace, lane, number, node), lane, trace.token_text)


def why_panel(why: Why, lane: LaneTrace, token_text: TOKEN_TEXT) -> str:
    """The whole panel. Every token's text is escaped."""
    if not why.said:
        return '<p class="quiet">This run was made without recording, so the trace does not hold what was recalled.</p>'
    cards = [_source_card(source, why, lane, token_text) for source in why.sources]
    return (
        f'<div class="why" data-node="{"bonus" if why.node is None else why.node}" role="status">'
        f'<p class="facts">{_verdict(why, lane, token_text)}</p>{_score(why, lane)}'
        f'<div class="recalled">{"".join(cards)}{_target_card(why, token_text)}</div>{_how(lane)}</div>'
    )


def _how(lane: LaneTrace) -> str:
    """How the numbers come about, for who wants to know."""
    told = [
        "<b>Probability</b> is what the target gave the token where the record was made.",
        f"<b>Chance</b> is that to the power {TEMPER}, over its sum in the record: the token after these keys varies "
        "with what stands before them more than one distribution says, so its certainty is not taken at face value.",
    ]
    if lane.settings.get("weighting", "entropy-confidence") == "entropy-confidence" and lane.name != "tr":
        lengths = ", ".join(f"{length:g}" for length in LENGTH)
        told += [
            "<b>Entropy</b> is of the whole distribution: 0 is certain, 1 knows nothing. "
            "<b>Confidence</b> is the top probability × (1 − entropy).",
            f"<b>Weight</b> is confidence × {lengths} for keys of one, two, three tokens, over the sum of the three.",
        ]
    if lane.name in BLENDING:
        told.append(
            f"<b>Blended:</b> where a memory persists, a key that was met before takes {LATER:.0%} from the new place "
            "and keeps the rest of what it held. So a record may hold something of other pictures, also where it was "
            "last written under this one."
        )
    told.append("<b>Score along the path</b> is the product of the fused scores from the root down.")
    lines = "".join(f"<p>{line}</p>" for line in told)
    return f'<details class="how"><summary>How these numbers come about</summary>{lines}</details>'


def _verdict(why: Why, lane: LaneTrace, token_text: TOKEN_TEXT) -> str:
    """What became of the candidate, in a sentence or two."""
    token, after = _code(why.token, token_text), _code(why.after, token_text)
    if why.decision == "bonus":
        return f"<b>Why not {token}?</b> After {after} the target had to say it itself. {_absence(why, lane)}"
    told = f"rank {why.target_rank + 1}, {_number(why.target_probability or 0.0)}"
    choice = _code(why.choice, token_text) if why.choice is not None else "another token"
    if why.decision == "accepted":
        return (
            f"<b>{token} was accepted:</b> after {after} it is the target's own choice ({why.target_probability:.3f})."
        )
    if why.decision == "rejected":
        return f"<b>{token} was rejected:</b> after {after} the target chose {choice}; {token} is its {told}."
    return (
        f"<b>{token} was never reached:</b> an earlier token of its branch was rejected. "
        f"Had the answer come this way, the target would have chosen {choice} after {after}; {token} is its {told}."
    )


def _absence(why: Why, lane: LaneTrace) -> str:
    """Why the target's token was not drafted."""
    named = [source for source in why.sources if source.rank is not None]
    if not why.siblings:
        return _ending(why, lane, bool(named))
    tried = "One candidate was" if why.siblings == 1 else f"{why.siblings} candidates were"
    if not named:
        return f"{tried} tried here, and no record that was found names it."
    if lane.name == "tr":
        place = named[0].rank or 0
        return f"It stands at place {place + 1} of the row, of which the static tree tried {why.siblings} here."
    least = "" if why.weakest is None else f"; the weakest candidate of this tree has {_number(why.weakest)}"
    return f"{tried} tried here. It would have scored {why.fused:.3f}, and {_number(why.path)} along its path{least}."


def _ending(why: Why, lane: LaneTrace, is_named: bool) -> str:
    """Why nothing was drafted at the end of the accepted path."""
    if not any(source.lines for source in why.sources):
        return (
            "Nothing was drafted here: this answer had not met any of these keys before. (A record from the prompt or "
            "an earlier request may have been there; a trace keeps only what was drafted from or written.)"
        )
    ended = "the static tree ends here" if lane.name == "tr" else "a larger tree was not worth its time, or not allowed"
    names = "though a record below names it" if is_named else "and no record that this answer had left names it"
    return f"Nothing was drafted here, {names}: {ended}."


def _score(why: Why, lane: LaneTrace) -> str:
    """The fused score as the sum of its shares: in numbers, and as a bar of the sources' colours."""
    if why.node is None:
        return ""
    parts = [(SOURCES[lane.name][source.order].colour, source.share) for source in why.sources if source.share]
    bar = "".join(f'<i style="--source:{colour};width:{share:.2%}"></i>' for colour, share in parts)
    terms = " + ".join(f"{source.share:.3f} ({source.order}-gram)" for source in why.sources if source.share)
    scored = "its row's chance" if lane.name == "tr" else "fused score"
    return (
        f'<p class="score"><span class="shares" aria-hidden="true">{bar}</span>'
        f"<span>{scored} <b>{why.fused:.3f}</b>{f' = {terms}' if len(parts) > 1 else ''}; "
        f"along its path {_number(why.path)}</span></p>"
    )


def _source_card(source: Source, why: Why, lane: LaneTrace, token_text: TOKEN_TEXT) -> str:
    key = "".join(_code(token, token_text) for token in source.key)
    mark = SOURCES[lane.name][source.order]
    head = (
        f'<section class="record{" outlives" * mark.outlives}" style="--source:{mark.colour}"><h4>{mark.name}</h4>'
        f'<p class="key">after {key}</p>'
    )
    if not source.lines:
        nothing = "No record under this key." if source.used else "This answer had written nothing under this key."
        return f'{head}<p class="quiet">{nothing}</p></section>'
    table = _table(source.lines, why.token, token_text, with_chance=True)
    return f"{head}{_origin(source, why.sources, lane)}{table}{_sums(source, lane)}</section>"


def _origin(source: Source, sources: Sequence[Source], lane: LaneTrace) -> str:
    """When the record was written, and for which picture."""
    kind = "an accepted" if source.accepted else "a rejected"
    when = "from the prompt" if source.step < 0 else f"step {source.step + 1}, {kind} position"
    if source.request != lane.request:
        when = f"request {source.request} of {lane.request}, {when}"
    last, how = "", "written"
    if lane.name in BLENDING and SCOPES[lane.name][source.order] == PERSISTENT:
        last, how = ("last ", "last written") if source.used else ("", "blended in")
    badge = ""
    if source.other_picture:
        badge = f'<b class="badge foreign">{last}from another picture</b> '
    elif source.request != lane.request:
        badge = '<b class="badge">an earlier request, same picture</b> '
    same = [other.order for other in sources if other.record == source.record and other.order < source.order]
    twin = f" The same record as the {same[0]}-gram’s." if same else ""
    return f'<p class="origin">{badge}{how}: {when}.{twin}</p>'


def _sums(source: Source, lane: LaneTrace) -> str:
    """How the record's share in the candidate's score comes about."""
    facts = [("entropy", f"{source.entropy:.3f}")]
    if lane.name != "tr":
        facts.append(("confidence", f"{source.confidence:.3f}"))
    if source.weight is not None and lane.name != "tr":
        facts.append(("weight", f"{source.weight:.3f}"))
    if source.rank is None:
        last = "it does not name the token"
    elif source.weight is None:
        last = f"the token’s place: {source.rank + 1}"
    elif lane.name == "tr":
        last = f"the token’s place: {source.rank + 1}, chance {source.lines[source.rank].chance:.3f}"
    else:
        last = f"share = {source.weight:.3f} × {source.lines[source.rank].chance:.3f} = <b>{source.share:.3f}</b>"
    terms = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts)
    return f'<dl>{terms}</dl><p class="share">{last}</p>'


def _target_card(why: Why, token_text: TOKEN_TEXT) -> str:
    said = {line.token for line in why.said}
    beyond = ""
    if why.token not in said:
        beyond = (
            f'<p class="share">{_code(why.token, token_text)} is not among these: rank {why.target_rank + 1}, '
            f"{why.target_probability or 0:.2g}</p>"
        )
    return (
        f'<section class="record target" style="--source:{NEUTRAL}"><h4>What the target said here</h4>'
        f'<p class="key">after {_code(why.after, token_text)}, and all before it</p>'
        f'<p class="origin">its choice: {_code(why.said[0].token, token_text)}</p>'
        f"{_table(why.said, why.token, token_text, with_chance=False)}{beyond}</section>"
    )


def _table(lines: Sequence[Said], token: int, token_text: TOKEN_TEXT, with_chance: bool) -> str:
    """A record's lines as bars; the candidate's own is marked."""
    chance = '<th scope="col">chance</th>' if with_chance else ""
    rows = "".join(
        f"<tr{' class=this aria-current=true' if line.token == token else ''}>"
        f'<th scope="row">{escape(shown(line.token, token_text))}</th>{_bar(line.probability)}'
        f"{_bar(line.chance) if with_chance else ''}</tr>"
        for line in lines
    )
    head = f'<tr><th scope="col">token</th><th scope="col">probability</th>{chance}</tr>'
    return f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"


def _bar(value: float) -> str:
    return f'<td style="--part:{value:.1%}">{_number(value)}</td>'


def _number(value: float) -> str:
    return "&lt;.001" if 0.0 < value < 0.0005 else f"{value:.3f}"


def _code(token: int, token_text: TOKEN_TEXT) -> str:
    return f"<code>{escape(shown(token, token_text))}</code>"
