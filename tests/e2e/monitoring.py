"""Prometheus and Alertmanager beside a cluster, and a webhook that hears what they have to say."""

import json
import re
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Self

from tests.programs import program
from trimtab_reference.rules import RULES
from trimtab_sandbox.broker import free_ports
from trimtab_sandbox.configuration import LOOPBACK
from trimtab_sandbox.processes import Processes


class Webhook:
    """Takes what Alertmanager posts; `heard` = all alerts so far, each with `status`, `labels` and `annotations`."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        heard = self.heard

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                heard.extend(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["alerts"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        self.url = f"http://{LOOPBACK}:{self._server.server_port}/"

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def of(self, name: str, status: str) -> list[dict[str, Any]]:
        """The alerts of a name that fire or are resolved."""
        return [each for each in self.heard if (each["labels"]["alertname"], each["status"]) == (name, status)]


def scaled_rules(seconds_per_minute: float) -> str:
    """The rules, with other times that an expression must hold; everything else is as it is."""

    def scaled(found: re.Match[str]) -> str:
        return f"for: {max(1, round(int(found[1]) * seconds_per_minute))}s"

    text, count = re.subn(r"\bfor: (\d+)m$", scaled, RULES.read_text(), flags=re.MULTILINE)
    assert count == len(re.findall(r"\bfor: ", text))
    return text


class Monitoring:
    """Prometheus, which scrapes these jobs every second, and Alertmanager, which tells the webhook."""

    def __init__(
        self, folder: Path, processes: Processes, rules: str, jobs: Mapping[str, Iterable[int]], webhook: Webhook
    ) -> None:
        prometheus, alertmanager = program("prometheus"), program("prometheus-alertmanager")
        self._port, alerts_port = free_ports(2)
        (folder / RULES.name).write_text(rules)
        self._write(folder / "alertmanager.yml", _alertmanager(webhook.url))
        self._write(folder / "prometheus.yml", _prometheus(jobs, alerts_port))
        self._started = [
            processes.start(
                "alertmanager",
                [
                    alertmanager,
                    f"--config.file={folder / 'alertmanager.yml'}",
                    f"--storage.path={folder / 'alertmanager'}",
                    f"--web.listen-address={LOOPBACK}:{alerts_port}",
                    "--cluster.listen-address=",
                ],
            ),
            processes.start(
                "prometheus",
                [
                    prometheus,
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'prometheus'}",
                    f"--web.listen-address={LOOPBACK}:{self._port}",
                ],
            ),
        ]

    @staticmethod
    def _write(path: Path, document: object) -> None:
        path.write_text(json.dumps(document))  # JSON is YAML

    def ask(self, query: str) -> list[dict[str, Any]]:
        """The series that an expression gives now.  Raises OSError while Prometheus does not answer, or refuses it."""
        url = f"http://{LOOPBACK}:{self._port}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        with urllib.request.urlopen(url, timeout=30) as page:
            answer = json.load(page)
        assert answer["status"] == "success"
        return list(answer["data"]["result"])

    def holds(self, query: str) -> bool:
        """Whether an expression gives a series now.  Fails if Prometheus or Alertmanager has ended."""
        for child in self._started:
            assert child.alive, child.log.read_text()
        try:
            return bool(self.ask(query))
        except OSError:
            return False


def _prometheus(jobs: Mapping[str, Iterable[int]], alerts_port: int) -> object:
    """Like prometheus.example.yml; no target has a label `cluster`, so that it comes from the processes alone."""
    return {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [RULES.name],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"{LOOPBACK}:{alerts_port}"]}]}]},
        "scrape_configs": [
            {
                "job_name": job,
                "honor_labels": True,
                "static_configs": [{"targets": [f"{LOOPBACK}:{port}" for port in ports]}],
            }
            for job, ports in jobs.items()
        ],
    }


def _alertmanager(url: str) -> object:
    route = {"receiver": "hook", "group_by": ["alertname", "cluster"], "group_wait": "1s", "group_interval": "1s"}
    return {
        "route": {**route, "repeat_interval": "1h"},
        "receivers": [{"name": "hook", "webhook_configs": [{"url": url, "send_resolved": True}]}],
    }


def wait_for(what: str, condition: Callable[[], bool], limit_s: float) -> float:
    """Wait for a condition; the seconds that it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + limit_s, f"not within {limit_s:g} s: {what}"
        time.sleep(0.1)
    return time.monotonic() - began
