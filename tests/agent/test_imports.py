"""What the agent drags into a process: none of Spark, solvers or data frames."""

import subprocess
import sys

import pytest

HEAVY = ("pyspark", "ortools", "numpy", "pandas", "pymetis", "trimtab_controller")
REACH = """
import importlib, pkgutil, sys, trimtab_agent
names = [trimtab_agent.__name__]
for module in pkgutil.walk_packages(trimtab_agent.__path__, "trimtab_agent."):
    if module.name.startswith({prefix!r}) == {inside}:
        importlib.import_module(module.name)
        names.append(module.name)
print(len(names), sorted(name for name in {heavy!r} if name in sys.modules))
"""


@pytest.mark.parametrize("inside", [False, True], ids=["daemon", "engines"])
def test_a_fresh_interpreter_reaches_nothing_heavy(inside: bool) -> None:
    program = REACH.format(prefix="trimtab_agent.engines", inside=inside, heavy=HEAVY)

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)

    assert done.returncode == 0, done.stderr
    count, heavy = done.stdout.strip().split(" ", 1)
    assert (int(count) >= 3, heavy) == (True, "[]")
