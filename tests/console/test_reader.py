"""Which windows are read when the console starts."""

from dataclasses import dataclass

from trimtab_console.reader import newest_windows


@dataclass(frozen=True)
class Chunk:
    """A message with a window's name, or without."""

    on: str
    window: str | None = None

    def topic(self) -> str:
        return self.on

    def headers(self) -> list[tuple[str, bytes]] | None:
        return [("snapshot", self.window.encode()), ("chunk", b"0")] if self.window else None


def test_of_many_windows_the_last_two_are_read_with_everything_else() -> None:
    status = Chunk("status")
    windows = [Chunk("snapshots", name) for name in ("1", "1", "2", "3", "3", "4")]
    found = list(newest_windows([windows[0], status, *windows[1:]], "snapshots"))  # type: ignore[list-item]
    assert found == [status, *windows[3:]]
