"""The matrix's modules live beside its tests; the cable that is cut lies with the other end-to-end tests."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "e2e")]
