import pytest

from trimtab_agent.engines.faust import agent_link as link_module


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(link_module, "LAST_RETRY_S", 0.02)
