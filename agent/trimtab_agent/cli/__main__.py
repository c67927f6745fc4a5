"""`python -m trimtab_agent.cli`."""

import sys

from trimtab_agent.cli import main

if __name__ == "__main__":
    sys.exit(main())
