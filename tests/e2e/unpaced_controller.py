"""`trimtab` without the pace: what `test_guard` compares with.

No setting switches the pace off: workers that fall silent slow a plan down, however high its limits are.
"""

from trimtab_controller.cli import main
from trimtab_controller.execution.pace import Pace


def learn_nothing(*_: object) -> None:
    """As many hand-overs stay in flight as the configuration allows."""


Pace.see = learn_nothing  # type: ignore[assignment,method-assign]
Pace.see_window = learn_nothing  # type: ignore[assignment,method-assign]

if __name__ == "__main__":
    raise SystemExit(main())
