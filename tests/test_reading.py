"""What is read of a pass's logits."""

import math

import pytest
import torch

from recap_engine.target import BLOCK, LARGE, Reads, _read, _top

ALL = Reads(top_k=4, probabilities=True, entropy=True)


def scores(rows: int = 5, vocabulary: int = 50) -> torch.Tensor:
    return torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(0)) * 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_probabilities_and_entropy_are_those_of_the_whole_distribution(dtype):
    logits = scores().to(dtype)
    reading = _read(logits, ALL)
    expected = torch.distributions.Categorical(logits=logits.double())
    best = expected.probs.sort(descending=True)
    assert reading.argmax == logits.argmax(-1).tolist() == [row[0] for row in reading.tokens]
    if dtype == torch.float32:  # no ties
        assert reading.tokens == best.indices[:, :4].tolist()
    torch.testing.assert_close(torch.tensor(reading.probabilities).double(), best.values[:, :4], rtol=1e-4, atol=1e-6)
    entropy = expected.entropy() / math.log(50)
    torch.testing.assert_close(torch.tensor(reading.entropy).double(), entropy, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("k", [1, 4])
def test_of_equal_scores_the_first_token_is_the_argmax(k):
    logits = scores(rows=3)
    logits[0, [9, 31, 44]] = 99.0
    logits[1] = 0.0
    assert _read(logits, Reads(top_k=k)).argmax == logits.argmax(-1).tolist()
    assert _read(logits, Reads()).argmax[:2] == [9, 0]


def test_scores_of_minus_infinity_count_as_impossible():
    logits = scores(rows=2)
    logits[0, 5:] = -torch.inf
    logits[1, 1:] = -torch.inf  # certain
    reading = _read(logits, ALL)
    alone = torch.distributions.Categorical(logits=logits[0, :5].double())
    assert reading.entropy[0] == pytest.approx(float(alone.entropy()) / math.log(50), abs=1e-5)
    assert reading.entropy[1] == pytest.approx(0.0, abs=1e-6) and reading.probabilities[1][0] == 1.0


@pytest.mark.parametrize("vocabulary", [LARGE - 1, LARGE, LARGE + BLOCK - 1, 3 * LARGE + 1])
@pytest.mark.parametrize("k", [1, 5, 64])
def test_the_best_of_a_large_vocabulary_are_the_best_of_all(vocabulary, k):
    logits = scores(4, vocabulary)
    logits[1] = logits[1].round()  # many ties
    logits[2, k:] = -torch.inf
    logits[3] = logits[3].sort().values  # all of them side by side at the end
    values, places = _top(logits, k)
    expected = logits.topk(k)
    assert torch.equal(values, expected.values)
    assert torch.equal(logits.gather(1, places), values)
    assert all(len(set(row)) == k for row in places.tolist())
    assert torch.equal(places[[0, 3]], expected.indices[[0, 3]])  # no ties
