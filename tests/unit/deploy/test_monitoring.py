"""Rules and dashboards ask only for what is told: each metric and label exists, and the rules do as they say."""

from __future__ import annotations

import functools
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from service.metrics import Metrics

DEPLOY = Path(__file__).parents[3] / "deploy"
RULES = DEPLOY / "prometheus" / "rules" / "bacepipe.yml"
RULE_TESTS = DEPLOY / "prometheus" / "tests" / "bacepipe_test.yml"
DASHBOARDS = sorted((DEPLOY / "grafana" / "dashboards").glob("*.json"))

# dcgm-exporter's own, https://github.com/NVIDIA/dcgm-exporter: not ours to tell.
FOREIGN = {"DCGM_FI_DEV_GPU_UTIL": {"Hostname"}}
TARGET_LABELS = {"instance", "job"}  # put on by Prometheus when it scrapes

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_METRIC = re.compile(r"\b(bace_[a-z0-9_]+|DCGM_[A-Z0-9_]+|bace:[a-z0-9_:]+)(\{[^}]*\})?")
_GROUPING = re.compile(r"\b(?:by|on|without|group_left|group_right|ignoring)\s*\(([^)]*)\)")
_LABEL = re.compile(r"([a-zA-Z_][a-zA-Z0-9_]*)\s*(?:=~|!~|!=|=)")


@functools.cache
def _samples() -> dict[str, set[str]]:
    """Every sample name that a server exposes, with its labels."""
    samples: dict[str, set[str]] = {**FOREIGN, **_recorded()}
    for family in Metrics().registry.collect():
        instrument = _instrument(family.name)
        labels = set(instrument)
        endings = {
            "counter": ["_total"],
            "histogram": ["_bucket", "_sum", "_count"],
            "gauge": [""],
        }[family.type]
        for ending in endings:
            samples[family.name + ending] = labels | ({"le"} if ending == "_bucket" else set())
    return samples


def _instrument(name: str) -> tuple[str, ...]:
    found = [thing._labelnames for thing in vars(Metrics()).values() if getattr(thing, "_name", None) == name]
    assert len(found) == 1, f"{name} is told by {len(found)} instruments"
    return tuple(found[0])


def _recorded() -> dict[str, set[str]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    recorded = {}
    for rule in (rule for group in groups for rule in group["rules"] if "record" in rule):
        grouping = re.search(r"sum by \(([^)]*)\)", rule["expr"])
        recorded[rule["record"]] = {label.strip() for label in grouping[1].split(",")} if grouping else set()
    return recorded


def _queries() -> Iterator[tuple[str, str]]:
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            yield f"rule {rule.get('alert', rule.get('record'))}", rule["expr"]
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                yield f"{path.stem}: {panel['title']}", target["expr"]


@pytest.mark.parametrize(("where", "query"), list(_queries()))
def test_every_metric_and_label_of_a_query_exists(where: str, query: str) -> None:
    samples = _samples()
    used = _METRIC.findall(query)
    assert used, f"{where} asks for nothing of ours"
    allowed = set(TARGET_LABELS)
    for name, selector in used:
        assert name in samples, f"{where}: nobody tells {name}"
        labels = set(_LABEL.findall(_STRING.sub('""', selector)))
        assert labels <= samples[name] | TARGET_LABELS, f"{where}: {name} has no {labels - samples[name]}"
        allowed |= samples[name]
    for grouping in _GROUPING.findall(query):
        labels = {label.strip() for label in grouping.split(",") if label.strip()}
        assert labels <= allowed, f"{where}: nothing here has {labels - allowed}"


def test_every_label_of_a_legend_and_a_message_exists() -> None:
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                for label in re.findall(r"\{\{\s*(\w+)\s*\}\}", target["legendFormat"]):
                    names = [name for name, _ in _METRIC.findall(target["expr"])]
                    known = set.union(*(_samples()[name] for name in names)) | TARGET_LABELS
                    assert label in known, f"{path.stem}: {panel['title']} shows {label}"
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            for label in re.findall(r"\$labels\.(\w+)", str(rule.get("annotations", {}))):
                names = [name for name, _ in _METRIC.findall(rule["expr"])]
                assert label in set.union(*(_samples()[name] for name in names))


def test_every_metric_is_named_as_prometheus_wants_it_and_none_by_job() -> None:
    for family in Metrics().registry.collect():
        assert family.name.startswith("bace_")
        assert family.documentation
        assert not {"job_id", "job", "allocation_id", "node_id"} & set(_instrument(family.name))
        if family.type == "histogram":
            assert family.name.endswith("_seconds")


def test_every_alert_has_a_rule_test_and_says_what_to_do() -> None:
    alerts = {
        rule["alert"]: rule
        for group in yaml.safe_load(RULES.read_text())["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }
    fired = {
        case["alertname"]
        for test in yaml.safe_load(RULE_TESTS.read_text())["tests"]
        for case in test.get("alert_rule_test", ())
        if case["exp_alerts"]
    }
    assert fired == set(alerts)
    for rule in alerts.values():
        assert rule["labels"]["severity"] in ("page", "warn")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["action"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "rules", str(RULES)],
        ["check", "config", "--syntax-only", str(DEPLOY / "prometheus" / "prometheus.yml")],
        ["test", "rules", str(RULE_TESTS)],
    ],
)
def test_prometheus_itself_agrees(promtool: str, arguments: list[str]) -> None:
    done = subprocess.run([promtool, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_dashboards_are_provisioned_and_have_ids_of_their_own() -> None:
    boards = [json.loads(path.read_text()) for path in DASHBOARDS]
    assert len(boards) == 4
    assert len({board["uid"] for board in boards}) == 4
    source = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yml").read_text())
    uids = {entry["uid"] for entry in source["datasources"]}
    for board in boards:
        assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
        assert {panel["datasource"]["uid"] for panel in board["panels"]} <= uids
    provider = yaml.safe_load((DEPLOY / "grafana/provisioning/dashboards/bacepipe.yml").read_text())
    assert provider["providers"][0]["type"] == "file"
