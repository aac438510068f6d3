"""What a request changed in a copy of a memory comes back into the memory, whatever happened there meanwhile."""

import pickle

import pytest
from tiny_models import random_request, tiny_engine

from recap_engine import memory as bounds
from recap_engine.blending import blend
from recap_engine.memory import Promises, Record, TokenMemory
from recap_engine.settings import Settings

DIGITS = 5  # of a probability or an entropy that are compared
SETTINGS = Settings(max_new_tokens=16, budget=16)


def record(request, step=0, best=3):
    return Record([best, best + 1], [0.75, 0.0078125], 0.375, (request, step, True))


def contents(memory):
    """All that a memory holds, comparable: two processes may round an entropy apart, and a blend."""
    tables = {
        order: {key: (r.tokens, rounded(r.probabilities), *rounded([r.entropy]), r.written) for key, r in table.items()}
        for order, table in memory.tables.items()
    }
    promises = memory.promises
    return tables, memory.requests, memory.pictures, rounded([promises.promised, promises.kept]), promises.steps


def rounded(numbers):
    return [round(number, DIGITS) for number in numbers]


def served(memory, picture, keys, best=3):
    """`memory` after one more request, which wrote one record a key, under keys of all three lengths."""
    request = memory.begin(picture)
    for step, key in enumerate(keys):
        entry = record(request, step, best)
        memory.rows[key], memory.pairs[key, key], memory.triples[key, key, key] = entry, entry, entry
        memory.promises.add(2.0, 1.0)
    return memory


def elsewhere(memory, *request, serve=served):
    """The changes of one request that ran on a copy in another process."""
    copy = pickle.loads(pickle.dumps(memory.copy()))
    mark = copy.mark()
    serve(copy, *request)
    return pickle.loads(pickle.dumps(copy.changes_since(mark)))


def test_a_request_that_ran_elsewhere_leaves_what_it_would_have_left_here():
    here, there = served(TokenMemory(), "a", [1, 2]), served(TokenMemory(), "a", [1, 2])
    there.merge(elsewhere(there, "b", [2, 3]))
    assert contents(there) == contents(served(here, "b", [2, 3]))


def test_neither_of_two_concurrent_requests_is_lost():
    memory = served(TokenMemory(), "a", [1, 2])
    first, second = elsewhere(memory, "b", [2, 3], 5), elsewhere(memory, "c", [3, 4], 6)
    memory.merge(second)
    memory.merge(first)
    expected = served(served(served(TokenMemory(), "a", [1, 2]), "c", [3, 4], 6), "b", [2, 3], 5)
    tables, requests, pictures, *_ = contents(memory)
    assert (tables, requests, pictures) == contents(expected)[:3]
    assert pictures == {1: "a", 2: "c", 3: "b"}
    assert memory.promises.ratio == pytest.approx(expected.promises.ratio)
    assert memory.promises.steps == expected.promises.steps


def test_changes_carry_only_what_their_requests_wrote_and_one_record_stays_one():
    memory = served(TokenMemory(), "a", range(50))
    changes = elsewhere(memory, "b", [7])
    assert {order: list(table) for order, table in changes.tables.items()} == {1: [7], 2: [(7, 7)], 3: [(7, 7, 7)]}
    served(memory, "c", [8])
    memory.merge(changes)
    assert memory.rows[7] is memory.pairs[7, 7] is memory.triples[7, 7, 7]
    assert memory.rows[7].written == (3, 0, True)


def test_a_request_that_ends_after_the_memory_was_emptied_is_its_first():
    memory = served(TokenMemory(), "a", [1, 2])
    changes = elsewhere(memory, "b", [3])
    memory.clear()
    memory.merge(changes)
    assert list(memory.rows) == [3]
    assert memory.rows[3].written[0] == memory.requests == 1
    assert memory.pictures == {1: "b"}


def blended(memory, picture, keys, best):
    """`memory` after one more request, which blended one record a key into what its keys of all lengths held."""
    request = memory.begin(picture)
    for step, key in enumerate(keys):
        entry, held = record(request, step, best), memory.rows.get(key)
        entry = blend(held, entry) if held else entry
        memory.rows[key], memory.pairs[key, key], memory.triples[key, key, key] = entry, entry, entry
    return memory


def blended_elsewhere(memory, *request):
    return elsewhere(memory, *request, serve=blended)


def test_what_two_concurrent_requests_blended_into_a_memory_is_blended_again():
    """Key 2 was known before, key 3 was new to both; 1 and 4 were written by one of them alone."""
    memory = blended(TokenMemory(), "a", [1, 2], 5)
    first, second = blended_elsewhere(memory, "b", [2, 3], 20), blended_elsewhere(memory, "c", [2, 3, 4], 40)
    memory.merge(first, blend)
    after_first = dict(memory.rows)
    assert 5 in after_first[2].tokens and 20 in after_first[2].tokens, "with one alone nothing is blended twice"
    assert contents(memory) == contents(blended(blended(TokenMemory(), "a", [1, 2], 5), "b", [2, 3], 20))
    memory.merge(second, blend)
    for key in (2, 3):
        both, expected = memory.rows[key], blend(after_first[key], second.tables[1][key])
        assert both.tokens == expected.tokens
        assert both.chances == pytest.approx(expected.chances)
        assert both.written[0] == 3
    assert {20, 40} <= set(memory.rows[3].tokens)
    assert memory.rows[1].tokens == [5, 6] and memory.rows[4].tokens == [40, 41]
    assert memory.rows[3] is memory.pairs[3, 3] is memory.triples[3, 3, 3]


def test_what_was_blended_before_the_memory_was_emptied_joins_what_came_after():
    memory = blended(blended(TokenMemory(), "a", [9], 5), "a", [9], 5)
    changes = blended_elsewhere(memory, "b", [1], 20)
    memory.clear()
    blended(memory, "c", [1], 40)
    memory.merge(changes, blend)
    assert {20, 40} <= set(memory.rows[1].tokens)
    assert memory.pictures == {1: "c", 2: "b"}


def test_of_two_concurrent_real_requests_of_recap_plus_a_key_of_both_holds_both():
    """And under a key of one alone stands what it wrote, under any other what was there."""
    engine = tiny_engine("llama")
    engine.answer(random_request("llama", 0), "recap+", SETTINGS)
    home, mark = engine.memories["recap+"], engine.memories["recap+"].mark()
    before, changes = home.copy(), []
    for seed in (1, 2):
        other = engine.apart({"recap+": home.copy()})
        other.answer(random_request("llama", seed), "recap+", SETTINGS)
        changes.append(pickle.loads(pickle.dumps(other.memories["recap+"].changes_since(mark))))
        engine.merge_memories({"recap+": changes[-1]})
    shared = 0
    for order, table in home.tables.items():
        first, second = (changed.tables[order] for changed in changes)
        assert set(table) == set(before.tables[order]) | set(first) | set(second)
        for key, held in table.items():
            one, two = first.get(key), second.get(key)
            expected = blend(one, two) if one and two else one or two or before.tables[order][key]
            assert held.tokens == expected.tokens
            assert held.chances == pytest.approx(expected.chances)
            shared += bool(one and two)
    assert shared > 10


@pytest.mark.parametrize(("lane", "held"), [("tr", {40, 41}), ("recap", {20, 40}), ("recap+", {20, 40})])
def test_the_latest_wins_in_token_recycling_and_joins_the_earlier_in_recap(lane, held):
    engine = tiny_engine("llama")
    memory = served(engine.memories[lane], "a", [1])
    first, second = elsewhere(memory, "b", [1, 2], 20), elsewhere(memory, "c", [1, 2], 40)
    for changes in (first, second):
        engine.merge_memories({lane: changes})
    assert set(memory.rows[1].tokens) == set(memory.rows[2].tokens) == held


@pytest.mark.parametrize("lane", ["tr", "recap", "recap+"])
def test_a_real_request_merges_into_the_memory_it_would_have_left(lane):
    engine, other = tiny_engine("llama"), tiny_engine("llama")
    for number in (0, 1):
        engine.answer(random_request("llama", number), lane, SETTINGS)
    other.answer(random_request("llama", 0), lane, SETTINGS)
    home = other.memories[lane]
    other.memories[lane] = home.copy()
    mark = home.mark()
    other.answer(random_request("llama", 1), lane, SETTINGS)
    changes = other.memories[lane].changes_since(mark)
    other.memories[lane] = home
    other.merge_memories({lane: changes})
    assert contents(home) == contents(engine.memories[lane])


def test_promises_merge_as_if_the_steps_had_come_later():
    one, after = Promises(), Promises()
    one.add(3.0, 1.0)
    after.add(2.0, 2.0)
    one.merge(Promises(), after)
    expected = Promises()
    expected.add(3.0, 1.0)
    expected.add(2.0, 2.0)
    assert (one.promised, one.kept, one.steps) == pytest.approx((expected.promised, expected.kept, 2))


def test_the_oldest_long_keys_go_first_and_one_token_keys_stay(monkeypatch):
    monkeypatch.setattr(bounds, "MOST_CONTEXTS", 16)
    memory = served(served(TokenMemory(), "a", range(12)), "b", range(8, 22))
    memory.begin("c")
    assert len(memory.pairs) == len(memory.triples) == 14
    assert set(memory.triples) == {(key, key, key) for key in range(8, 22)}
    assert len(memory.rows) == 22


def test_pictures_of_requests_without_records_are_forgotten(monkeypatch):
    monkeypatch.setattr(bounds, "MOST_PICTURES", 8)
    memory = TokenMemory()
    for number in range(100):
        served(memory, f"{number}", [number % 3])
        assert len(memory.pictures) <= 9 + 1
    assert memory.pictures[100] == "99"
    assert {r.written[0] for r in memory.records} <= set(memory.pictures)


def test_the_size_of_a_memory_grows_with_its_records():
    memory = served(TokenMemory(), "a", range(10))
    ten = memory.size_in_bytes()
    served(memory, "a", range(10, 20))
    assert TokenMemory().size_in_bytes() == 0 < ten < memory.size_in_bytes() < 3 * ten
