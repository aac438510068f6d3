"""Draws pictures with questions and known answers: what trains, shows and judges the embedded model."""

from .examples import SPLITS, Example, make_example, suite
from .questions import FAMILIES, TWO_TURN

__all__ = ["FAMILIES", "SPLITS", "TWO_TURN", "Example", "make_example", "suite"]
