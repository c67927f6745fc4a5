"""A line of the table: the paper's figure, ours, and a baseline; or why there is none."""

from dataclasses import dataclass

WIDTHS = (13, 60, 34, 44)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`figure` = number of the figure in the paper; `paper` = published value; `ours`, `baseline` = computed now."""

    figure: str
    what: str
    paper: str
    ours: str
    baseline: str = ""

    def show(self) -> None:
        """Prints the line."""
        print_cells(self.figure, self.what, self.paper, self.ours, self.baseline)


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A published figure that cannot be recomputed."""

    figure: str
    what: str
    why: str

    def show(self) -> None:
        """Prints the line."""
        print_cells(self.figure, self.what, f"not recomputed: {self.why}")


def print_cells(*cells: str) -> None:
    """One line; the last cell may be of any length."""
    padded = [cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=False)]
    print(" | ".join([*padded[: len(cells) - 1], *cells[len(padded[: len(cells) - 1]) :]]).rstrip(), flush=True)
