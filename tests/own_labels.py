"""What a process serves on /metrics, as tests name it."""

import re


def own_labels(text: str, *constant: str) -> str:
    """The text of /metrics without the labels that the port adds to every series: `cluster`, and of agents `host`."""
    for label in constant:
        text = re.sub(rf'(?<=[{{,]){label}="[^"]*",?', "", text)
    return text.replace(",}", "}").replace("{}", "")
