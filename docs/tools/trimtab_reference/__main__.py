"""`python -m trimtab_reference [--check]`: write the reference pages, or say which are stale."""

import argparse
import sys

from trimtab_reference import COMMAND, PAGES, ROOT, is_stale, path_of, write


def main() -> int:
    """Exit code: 0 all pages are up to date (now), 1 a page is stale."""
    parser = argparse.ArgumentParser(prog="trimtab_reference", description="Write docs/reference from the code.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a page is stale")
    if parser.parse_args().check:
        stale = [page for page in PAGES if is_stale(page)]
        for page in stale:
            print(f"{path_of(page).relative_to(ROOT)} is stale: run `{COMMAND}`", file=sys.stderr)
        return 1 if stale else 0
    for page in PAGES:
        print(f"{path_of(page).relative_to(ROOT)}: {'written' if write(page) else 'up to date'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
