"""Pure functions from a trace to Plotly figures, a module for each of the inspector's views.

Every figure has a transparent ground and mid-grey text, so that it suits a light and a dark page alike.
"""

from app.figures.memories import acceptance_figure, accepted_figure, depth_figure, hits_figure, sizes_figure
from app.figures.sensitivity import split_figure
from app.figures.timing import phases_figure, progress_figure, speedup_figure
from app.figures.tree import tidy_rows, tree_figure

__all__ = [
    "acceptance_figure",
    "accepted_figure",
    "depth_figure",
    "hits_figure",
    "phases_figure",
    "progress_figure",
    "sizes_figure",
    "speedup_figure",
    "split_figure",
    "tidy_rows",
    "tree_figure",
]
