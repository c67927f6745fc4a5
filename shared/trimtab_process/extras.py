"""Explains what to install if a command needs a package of an extra that is not installed."""

PACKAGES = {
    "confluent_kafka": "confluent-kafka",
    "cronsim": "cronsim",
    "cryptography": "cryptography",
    "fastapi": "fastapi",
    "httpx2": "httpx2",
    "nacl": "pynacl",
    "numpy": "numpy",
    "ortools": "ortools",
    "prometheus_client": "prometheus-client",
    "psutil": "psutil",
    "pyarrow": "pyarrow",
    "pymetis": "pymetis",
    "pyspark": "pyspark",
    "rich": "rich",
    "shtab": "shtab",
    "uvicorn": "uvicorn",
    "zstandard": "zstandard",
}
"""Module -> package, for all extras but `faust`.  A test compares it with pyproject.toml."""


def explain_missing(error: ModuleNotFoundError, *, extra: str) -> str | None:
    """One line that names the package and how to install it; None if the module belongs to no extra."""
    package = PACKAGES.get((error.name or "").partition(".")[0])
    if package is None:
        return None
    return f"the package {package} is not installed: pip install 'trimtab[{extra}]'"
