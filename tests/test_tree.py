"""The tree: its mask, its acceptance walk, its growth, and the static tree of Token Recycling."""

import random
from collections import Counter

import numpy as np
import pytest

from recap_engine.decoders.token_recycling import LEVELS, STATIC_NODES, static_tree
from recap_engine.stepcost import StepCost
from recap_engine.tree import ROOT, CandidateTree, Proposal, grow


def proposal(**probabilities):
    """`proposal(t5=0.5)`: token 5 with probability 0.5."""
    return Proposal([(int(name[1:]), p) for name, p in probabilities.items()], (None, None, None), (1.0, 0.0, 0.0))


def random_tree(rng, size):
    tree = CandidateTree((1, 2, 3))
    for _ in range(size):
        parent = rng.randrange(-1, len(tree))
        siblings = {tree.tokens[i] for i, p in enumerate(tree.parents) if p == parent}
        token = rng.choice([t for t in range(50) if t not in siblings])
        tree.add(parent, token, rng.random(), proposal())
    return tree


def ancestors(tree, node):
    """Rows a node may see, by definition: itself, its parent, its parent's parent ... the root."""
    rows = {0}
    while node != ROOT:
        rows.add(node + 1)
        node = tree.parents[node]
    return rows


@pytest.mark.parametrize("size", [0, 1, 5, 40])
def test_a_row_sees_itself_and_its_ancestors_and_nothing_else(size):
    tree = random_tree(random.Random(size), size)
    mask = tree.mask(hidden=-np.inf)
    assert mask.shape == (size + 1, size + 1)
    for row in range(size + 1):
        assert set(np.flatnonzero(mask[row] == 0.0)) == ancestors(tree, row - 1)
        assert np.isneginf(mask[row]).sum() == size + 1 - len(ancestors(tree, row - 1))


def test_a_nodes_key_is_its_own_path_reaching_back_into_committed_tokens():
    tree = CandidateTree((7, 8, 9))
    a = tree.add(ROOT, 10, 0.5, proposal())
    b = tree.add(a, 11, 0.5, proposal())
    c = tree.add(b, 12, 0.5, proposal())
    d = tree.add(a, 13, 0.5, proposal())
    assert tree.contexts == [(8, 9, 10), (9, 10, 11), (10, 11, 12), (9, 10, 13)]
    assert tree.context_of(ROOT) == (7, 8, 9)
    assert [tree.depths[n] for n in (a, b, c, d)] == [1, 2, 3, 2]
    assert tree.path[c] == 0.125


def walk(tree, argmax):
    """Acceptance by definition."""
    path, at = [], ROOT
    while True:
        wanted = argmax[at + 1]
        nexts = [n for n, parent in enumerate(tree.parents) if parent == at and tree.tokens[n] == wanted]
        if not nexts:
            return path
        path.append(at := nexts[0])


def test_acceptance_follows_the_argmax_from_the_root():
    rng = random.Random(0)
    lengths = Counter()
    for _ in range(300):
        tree = random_tree(rng, 30)
        children = [[t for t, p in zip(tree.tokens, tree.parents) if p == row - 1] for row in range(31)]
        argmax = [rng.choice(tokens or [99]) for tokens in children]
        accepted = tree.accept(argmax)
        assert accepted == walk(tree, argmax)
        lengths[len(accepted)] += 1
    assert max(lengths) >= 4
    assert CandidateTree((1, 2, 3)).accept([5]) == []


TABLE = {3: proposal(t4=0.6, t5=0.3), 4: proposal(t6=0.9), 5: proposal(t7=0.5), 6: proposal(t8=0.5, t9=0.4)}


def propose(context):
    return TABLE.get(context[2], proposal())


def test_growth_is_best_first_by_path_probability():
    tree = grow((1, 2, 3), propose, StepCost.free(6), max_depth=9, floor=0.0, stops=())
    assert tree.tokens == [4, 6, 5, 8, 9, 7]
    assert tree.path == sorted(tree.path, reverse=True)
    assert [round(p, 3) for p in tree.path] == [0.6, 0.54, 0.3, 0.27, 0.216, 0.15]


def test_growth_keeps_to_budget_depth_floor_and_stops():
    def tokens(nodes=9, max_depth=9, floor=0.0, stops=()):
        return grow((1, 2, 3), propose, StepCost.free(nodes), max_depth, floor, stops).tokens

    assert tokens(nodes=3) == [4, 6, 5]
    assert tokens(nodes=0) == []
    assert tokens(max_depth=0) == []
    assert tokens(max_depth=1) == [4, 5]
    assert tokens(floor=0.25) == [4, 6, 5, 8]
    assert tokens(stops={6}) == [4, 6, 5, 7]


def test_growth_stops_where_a_further_node_no_longer_pays():
    """With a step of 10 ms and 4 ms a node: rates 100, 114, 119, 111 tokens a second for 0, 1, 2, 3 nodes."""
    cost = StepCost(tuple(0.010 + 0.004 * n for n in range(7)))
    assert grow((1, 2, 3), propose, cost, 9, 0.0, ()).tokens == [4, 6]
    dear = StepCost(tuple(0.010 + 0.008 * n for n in range(7)))
    assert grow((1, 2, 3), propose, dear, 9, 0.0, ()).tokens == []


def test_what_is_trusted_less_grows_smaller_trees():
    cost = StepCost(tuple(0.010 + 0.0025 * n for n in range(7)))
    sizes = [len(grow((1, 2, 3), propose, cost, 9, 0.0, (), trust)) for trust in (2.0, 1.0, 0.6, 0.3)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[2] > sizes[3] == 0
    assert len(grow((1, 2, 3), propose, StepCost.free(6), 9, 0.0, (), 0.1)) == 6, "a fixed budget is always used"


def test_growth_finds_the_best_size_of_any_cost_curve():
    """Stopping early never misses it: compare with trying every size."""
    rng = random.Random(1)
    for _ in range(200):
        table = {
            t: Proposal([(rng.randrange(40), p) for p in sorted((rng.random() ** 2 for _ in range(3)), reverse=True)],
                        (None, None, None), (1.0, 0.0, 0.0))
            for t in range(40)
        }  # fmt: skip
        seconds, now = [], 1.0
        for _ in range(25):
            seconds.append(now)
            now += rng.choice((0.0, 0.0, 0.05, 0.5))
        full = grow((1, 2, 3), lambda c, table=table: table[c[2]], StepCost.free(24), 9, 1e-6, ())
        rates = [(1 + sum(full.path[:n])) / seconds[n] for n in range(len(full) + 1)]
        tree = grow((1, 2, 3), lambda c, table=table: table[c[2]], StepCost(tuple(seconds)), 9, 1e-6, ())
        assert (1 + sum(tree.path)) / seconds[len(tree)] == pytest.approx(max(rates))


def small_universe(rng, depth=3):
    """Proposals by context, random and sorted: up to three for the root, one or two for a node."""
    table = {}

    def fill(context, below):
        probabilities = sorted(
            (rng.random() for _ in range(rng.choice((1, 2) if below < depth else (2, 3)))), reverse=True
        )
        scale = rng.uniform(0.5, 1.0) / sum(probabilities)
        tokens = rng.sample(range(100), len(probabilities))
        table[context] = proposal(**{f"t{t}": p * scale for t, p in zip(tokens, probabilities)})
        for token in tokens if below > 1 else ():
            fill((*context[1:], token), below - 1)

    fill((1, 2, 3), depth)
    return lambda context: table.get(context, proposal())


def all_subtrees(propose, context=(1, 2, 3), above=1.0, depth=3):
    """Of every tree below `context` with at most `depth` levels: its nodes and the sum of their path probabilities."""
    found = [(0, 0.0)]
    for token, probability in propose(context).candidates if depth else ():
        path = above * probability
        below = all_subtrees(propose, (*context[1:], token), path, depth - 1)
        found += [(n + 1 + m, s + path + t) for n, s in found for m, t in below]
    return found


@pytest.mark.parametrize("curve", ["convex", "concave", "any"])
def test_growth_is_the_best_of_all_subtrees(curve):
    """The most expected tokens per second that any tree whatever reaches, by brute force."""
    rng = random.Random(curve)
    sizes = Counter()
    for _ in range(60):
        propose = small_universe(rng)
        trees = all_subtrees(propose)
        rises = [rng.choice((0.0, 0.02, 0.1, 0.4)) * rng.random() for _ in range(max(n for n, _ in trees))]
        if curve != "any":
            rises.sort(reverse=curve == "concave")
        cost = StepCost(tuple(1.0 + sum(rises[:n]) for n in range(len(rises) + 1)))
        trust = rng.choice((0.3, 0.7, 1.0))
        tree = grow((1, 2, 3), propose, cost, 3, 0.0, (), trust)
        best = max((1 + trust * promised) / cost.seconds[n] for n, promised in trees)
        assert (1 + trust * sum(tree.path)) / cost.seconds[len(tree)] == pytest.approx(best)
        sizes[len(tree)] += 1
    assert len(sizes) > 5, "trees of many sizes are the best ones"


def test_the_static_tree_has_the_papers_levels():
    shape = static_tree()
    depths = []
    for node, (parent, rank) in enumerate(shape):
        assert ROOT <= parent < node
        assert 0 <= rank < 8
        depths.append(1 if parent == ROOT else depths[parent] + 1)
    assert len(shape) == STATIC_NODES == 80
    assert len(set(shape)) == 80
    assert tuple(Counter(depths)[level] for level in range(1, 7)) == LEVELS
    assert depths == sorted(depths)


def test_better_ranked_parents_have_more_children():
    shape = static_tree()
    children = Counter(parent for parent, _ in shape)
    first_level = [children[node] for node, (parent, _) in enumerate(shape) if parent == ROOT]
    assert first_level == sorted(first_level, reverse=True)
    assert children[ROOT] == 8


@pytest.mark.parametrize("nodes", [0, 1, 5, 16, 33, 79])
def test_a_cut_static_tree_is_a_smaller_tree_of_the_same_kind(nodes):
    def paths(shape):
        found = []
        for parent, rank in shape:
            found.append((*(() if parent == ROOT else found[parent]), rank))
        return found

    cut = paths(static_tree(nodes))
    assert len(cut) == nodes
    assert set(cut) <= set(paths(static_tree()))
    assert cut == sorted(cut, key=lambda path: (len(path), path))
    if nodes >= 16:
        assert max(map(len, cut)) >= 4, "a cut keeps deep paths of first ranks, not only the first levels"
