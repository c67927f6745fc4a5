"""Draws simulated rounds: one panel per measure, one line per policy.  Needs matplotlib, which is optional."""

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

from trimtab_models.simulation import Round, Run

FORMATS = (".png", ".svg", ".pdf")
PANELS: tuple[tuple[str, Callable[[Round], float], float], ...] = (
    ("load distance after the moves (pp)", lambda each: each.load_distance, 1.0),
    ("collocation (%)", lambda each: 100 * each.collocation, 100.0),
    ("load index", lambda each: each.load_index, 100.0),
    ("migrations", lambda each: each.migrations, 1.0),
)
"""Title, measure, and the minimum upper end of the axis."""
POINTS_UP_TO = 60  # rounds; more of them are a line


class PictureError(Exception):
    """The picture cannot be drawn; the message says why."""


def check_picture(path: Path) -> None:
    """Raise PictureError if `path` cannot be drawn; call this before computing anything."""
    if path.suffix not in FORMATS:
        raise PictureError(f"--picture {path}: one of {', '.join(FORMATS)} expected")
    if find_spec("matplotlib") is None:
        raise PictureError("--picture needs matplotlib, which is not installed: pip install matplotlib")


def draw(title: str, runs: Mapping[str, Run], path: Path) -> None:
    """Write the picture; the suffix of `path` is its format.  Raises OSError."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(11, 7), sharex=True, layout="constrained")
    for axis, (label, measure, top) in zip(axes.flat, PANELS, strict=True):
        for name, run in runs.items():
            style = {"marker": ".", "markersize": 5} if len(run.rounds) <= POINTS_UP_TO else {"linewidth": 0.9}
            numbers, values = [each.number for each in run.rounds], [measure(each) for each in run.rounds]
            axis.plot(numbers, values, label=name, clip_on=False, **style)
            top = max(top, 1.05 * max(values))
        if len(runs) == 1 and axis is axes.flat[0]:
            (run,) = runs.values()
            before = [each.load_distance_before for each in run.rounds]
            axis.plot(numbers, before, label="before the moves", color="0.6", linestyle=":")
            top = max(top, 1.05 * max(before))
        axis.set_title(label, loc="left", fontsize=10)
        axis.set_ylim(0, top)
        axis.grid(visible=True, alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
        axis.xaxis.get_major_locator().set_params(integer=True)
    axes.flat[3].yaxis.get_major_locator().set_params(integer=True)
    for axis in axes[1]:
        axis.set_xlabel("round")
    figure.suptitle(title, x=0.01, ha="left")
    figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside upper right", ncols=4, frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)
