"""What the tests of all instance readers need."""

import copy

import pytest


@pytest.fixture
def broken():
    """(document, place, value) -> the document with another `value` at `place`, a list of steps; ... is none at all."""

    def change(document, place, value):
        changed = holder = copy.deepcopy(document)
        for step in place[:-1]:
            holder = holder[step]
        if value is ...:
            del holder[place[-1]]
        else:
            holder[place[-1]] = value
        return changed

    return change
