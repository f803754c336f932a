"""Recomputes a replay from its files, the scenario and its inputs, and says what does not add up.

    python tests/replay_checker.py SCENARIO RESULT_DIR...

A program of its own: it shares no code with the project and needs nothing but PyYAML. It recomputes each job's
steps, energy, electricity, egress and rent within 1e-6, follows each job from stop to restart (where its state lies,
what of it travels, how long writing, travelling and reading take), looks that no pool of GPUs, link, uplink or
downlink is over its capacity at any time, that no gang is broken, and that the summary's figures follow from the
rows. It ends with exit code 1 where something is wrong.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import yaml

TOLERANCE = 1e-6
CAPACITY_TOLERANCE = 1e-9
HOUR = 3600.0
# layers, hidden, heads, key-value heads, feed-forward, its matrices, vocabulary, positions learned, head tied
MODELS = {
    "gpt313b": (24, 2048, 16, 16, 8192, 2, 50257, 2048, True),
    "gpt3175b": (96, 12288, 96, 96, 49152, 2, 50257, 2048, True),
    "llama27b": (32, 4096, 32, 32, 11008, 3, 32000, 0, False),
    "llama213b": (40, 5120, 40, 40, 13824, 3, 32000, 0, False),
    "llama270b": (80, 8192, 64, 8, 28672, 3, 32000, 0, False),
    "llama318b": (32, 4096, 32, 8, 14336, 3, 128000, 0, False),
    "llama3170b": (80, 8192, 64, 8, 28672, 3, 128000, 0, False),
}
V_SHAPED = ("zb-v", "v-half", "dualpipev", "hanayo")
LOOPED = ("interleaved", "looped-bfs")
TRACE_MODELS = (
    (2, "gpt313b", 2048),
    (8, "llama27b", 4096),
    (32, "llama213b", 4096),
    (128, "llama3170b", 4096),
    (math.inf, "gpt3175b", 2048),
)
STATE_BYTES = 18  # a parameter: weights, master weights, gradients, two moments
UNITS = {"s": 1.0, "m": 60.0, "h": HOUR, "d": 24 * HOUR}


def state_bytes(model: str) -> float:
    """The checkpoint of a model: all its parameters with their optimizer."""
    layers, hidden, heads, kv_heads, ffn, matrices, vocab, positions, tied = MODELS[model]
    layer = 2 * hidden * hidden * (1 + kv_heads / heads) + matrices * hidden * ffn + 2 * hidden
    outside = vocab * hidden * (1 if tied else 2) + positions * hidden + hidden
    return STATE_BYTES * (layers * layer + outside)


def seconds(value: float | str) -> float:
    """A duration of the scenario: a number, or one with a unit."""
    if isinstance(value, str):
        return float(value[:-1]) * UNITS[value[-1]] if value[-1] in UNITS else float(value)
    return float(value)


def bytes_of(value: float | str) -> float:
    """A size of the scenario: a number, or one with a unit."""
    if isinstance(value, str):
        return float(value[:-2]) * {"MB": 1e6, "GB": 1e9, "TB": 1e12}[value[-2:]]
    return float(value)


def uniform(text: str) -> float:
    """Between 0 and 1: the first eight bytes of the text's SHA-256."""
    return (int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") + 0.5) / 2**64


def plain(name: str) -> str:
    """What a model's name is compared as."""
    return "".join(character for character in name.lower() if character.isalnum())


class Inputs:
    """The scenario, read apart from the project's own reader."""

    def __init__(self, path: Path) -> None:
        self.folder = path.parent
        self.scenario = yaml.safe_load(path.read_text(encoding="utf-8"))
        start = self.scenario["start"]
        if isinstance(start, str):
            start = datetime.fromisoformat(start)
        if start.tzinfo is None:
            start = start.replace(tzinfo=UTC)
        self.start = start.timestamp()
        scale = self.scenario.get("scale") or {}
        self.scale = {key: float(scale.get(key, 1)) for key in ("bandwidth", "gpus", "arrivals")}
        self.regions = {region["name"]: region for region in self.scenario["regions"]}
        self.gpus = {
            name: sum(math.floor(count * self.scale["gpus"] + 1e-9) for count in region["gpus"].values())
            for name, region in self.regions.items()
        }
        self.links = self._links()
        restart = self.scenario.get("restart") or {}
        self.restart_fixed = seconds(restart.get("fixed", "60s"))
        self.storage_bps = float(restart.get("storage_gbps_per_gpu", 1)) * 1e9
        self.checkpoint_every = seconds(restart.get("checkpoint_every", "30m"))
        self.carried = float((self.scenario.get("truth") or {}).get("bandwidth", 1))
        self.outages = list(self._outages(self.scenario.get("faults") or {}))
        self._price_tables: dict[str, dict[float, dict[str, str]]] = {}

    def _rows(self, relative: str) -> list[dict[str, str]]:
        with (self.folder / relative).open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def _links(self) -> dict[tuple[str, str], tuple[float, float]]:
        """(src, dst) -> (capacity in bit/s, USD per GB)."""
        given = self.scenario.get("links") or []
        names = {"src": "src", "dst": "dst", "gbps": "gbps", "egress_usd_per_gb": "egress_usd_per_gb"}
        if isinstance(given, dict):
            names.update(given.get("columns") or {})
            given = self._rows(given["csv"])
        return {
            (row[names["src"]], row[names["dst"]]): (
                float(row[names["gbps"]]) * 1e9 * self.scale["bandwidth"],
                float(row.get(names["egress_usd_per_gb"]) or 0),
            )
            for row in given
        }

    def price_integral(self, region: str, start: float, end: float) -> float:
        """Integral of USD per kWh over hours between two times in seconds from the start of the scenario."""
        price = self.regions[region]["price"]
        if "usd_per_kwh" in price:
            return price["usd_per_kwh"] * (end - start) / HOUR
        parts = []
        offset = self.start % HOUR  # hours begin at offsets of the scenario's clock
        left = start
        while left < end:
            index = math.floor((left + offset) / HOUR)
            right = min(end, (index + 1) * HOUR - offset)
            if right <= left:  # left stands a rounding error before the hour
                index, right = index + 1, min(end, (index + 2) * HOUR - offset)
            parts.append(self._hour_price(price, self.start - offset + index * HOUR) * (right - left) / HOUR)
            left = right
        return math.fsum(parts)

    def _hour_price(self, price: dict, hour: float) -> float:
        if "hourly_usd_per_kwh" in price:
            return price["hourly_usd_per_kwh"][int(hour % 86400 // HOUR)]
        name = price["csv"]
        if name not in self._price_tables:
            rows = self._rows(name)
            column = next(iter(rows[0]))
            self._price_tables[name] = {
                datetime.fromisoformat(row[column].replace("Z", "+00:00")).timestamp(): row for row in rows
            }
        value = float(self._price_tables[name][hour][price["column"]])
        return value / 1000 if price["unit"] == "usd_per_mwh" else value

    def _outages(self, faults: dict) -> Iterator[tuple[str, float, float, int]]:
        """(region, from, until, GPUs) of every fault: whole nodes of eight, the last of a pool what is left."""
        if not faults:
            return
        pools = sorted(
            (name, kind, math.floor(count * self.scale["gpus"] + 1e-9))
            for name, region in self.regions.items()
            for kind, count in region["gpus"].items()
        )
        nodes = [(name, min(8, gpus - at)) for name, _, gpus in pools for at in range(0, gpus, 8)]
        seed = faults.get("seed", 0)
        if "generator" in faults:
            drawn = {name: seconds(faults["generator"][name]) for name in ("mean_between", "mean_repair")}
            span = seconds(faults["generator"].get("span", "365d"))
            for index, (name, gpus) in enumerate(nodes):
                now, number = 0.0, 0
                while True:
                    start = now - drawn["mean_between"] * math.log(uniform(f"{seed}/up/{index}/{number}"))
                    if start >= span:
                        break
                    now = start - drawn["mean_repair"] * math.log(uniform(f"{seed}/down/{index}/{number}"))
                    yield name, start, now, gpus
                    number += 1
            return
        down = self._traced_outages(faults["trace"])
        size = max(faults.get("nodes", 400), len(down), len(nodes))
        places = sorted(range(size), key=lambda place: uniform(f"{seed}/node/{place}"))
        skip = seconds(faults.get("skip", 0))
        for place, node in zip(places, sorted(down), strict=False):
            for start, end in down[node] if place < len(nodes) else ():
                if end >= skip:
                    yield nodes[place][0], max(0.0, start - skip), end - skip, nodes[place][1]

    def _traced_outages(self, name: str) -> dict[str, list[list[float]]]:
        """node -> its spans of time, those that overlap as one."""
        path = self.folder / name
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            events = json.load(file)
        spans: dict[str, list[list[float]]] = defaultdict(list)
        level: dict[str, int] = defaultdict(int)
        for event in sorted(events, key=lambda event: event["event_time"]):
            node, now = event["node_id"], event["event_time"] * 86400.0
            if event["event_type"] == "fault_start":
                if not level[node] and spans[node] and spans[node][-1][1] == now:
                    spans[node][-1][1] = math.inf
                elif not level[node]:
                    spans[node].append([now, math.inf])
                level[node] += 1
            else:
                level[node] -= 1
                if not level[node]:
                    spans[node][-1][1] = now
        return spans

    def expected_jobs(self) -> dict[str, dict]:
        """job_id -> what is known of it beforehand; empty where jobs are drawn by a generator."""
        jobs = self.scenario["jobs"]
        if isinstance(jobs, list):
            return {job["name"]: {"document": job} for job in jobs}
        if "trace" not in jobs:
            return {}
        return {
            row["job_id"]: {
                "submit": float(row["submit_s"]) / self.scale["arrivals"],
                "gpus": int(row["gpus"]),
            }
            for row in self._rows(jobs["trace"])
        }


class Checker:
    """Collects what is wrong with one result folder."""

    def __init__(self, inputs: Inputs, folder: Path) -> None:
        self.inputs = inputs
        self.problems: list[str] = []
        self.expected = inputs.expected_jobs()
        self.jobs = {row["job_id"]: row for row in self._read(folder / "jobs.csv")}
        self.job_count = len(self._read(folder / "jobs.csv"))
        self.allocations = defaultdict(list)
        for row in self._read(folder / "allocations.csv"):
            self.allocations[row["job_id"], int(row["generation"])].append(row)
        self.links = defaultdict(list)
        for row in self._read(folder / "links.csv"):
            self.links[row["job_id"], int(row["generation"])].append(row)
        self.summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))

    @staticmethod
    def _read(path: Path) -> list[dict[str, str]]:
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def wrong(self, where: str, what: str) -> None:
        self.problems.append(f"{where}: {what}")

    def same(self, where: str, what: str, told: float, recomputed: float, scale: float | None = None) -> None:
        """Within the tolerance, relative to `scale` (the sum of magnitudes where terms cancel)."""
        size = max(abs(recomputed), abs(told)) if scale is None else scale
        if not abs(told - recomputed) <= TOLERANCE * size:
            self.wrong(where, f"{what} is told as {told!r}, recomputed as {recomputed!r}")

    def check(self) -> list[str]:
        self.check_jobs()
        for key in self.allocations:
            self.check_gang(*key)
        for key in self.links:
            if key not in self.allocations:
                self.wrong(f"job {key[0]}", f"links of generation {key[1]}, which has no allocation")
        for job_id, row in self.jobs.items():
            self.check_job(job_id, row)
            self.check_life(job_id, row)
        self.check_capacities()
        self.check_summary()
        return self.problems

    def check_jobs(self) -> None:
        if self.job_count != len(self.jobs):
            self.wrong("jobs.csv", "a job_id stands twice")
        expected = self.expected
        if expected and expected.keys() != self.jobs.keys():
            missing = sorted(expected.keys() ^ self.jobs.keys())
            self.wrong("jobs.csv", f"the jobs are not those of the scenario: {missing[:5]}")
        for job_id, known in expected.items():
            if job_id in self.jobs and "submit" in known:
                self.same(f"job {job_id}", "submit_s", float(self.jobs[job_id]["submit_s"]), known["submit"])
        for job_id, _ in self.allocations:
            if job_id not in self.jobs:
                self.wrong(f"job {job_id}", "an allocation of a job that is not in jobs.csv")

    def check_gang(self, job_id: str, generation: int) -> None:
        """All regions of a generation start and end together, with whole stages of one size; cuts join them."""
        where = f"job {job_id}, generation {generation}"
        rows, cuts = self.allocations[job_id, generation], self.cuts(job_id, generation)
        for name in ("start_s", "end_s"):
            if len({row[name] for row in [*rows, *cuts]}) != 1:
                self.wrong(where, f"gang broken: {name} differs between its regions and cuts")
        for name in ("iteration_s", "steps", "restart_s", "stop_s", "steps_lost"):
            if len({row[name] for row in rows}) != 1:
                self.wrong(where, f"gang broken: {name} differs between its regions")
        if len({row["region"] for row in rows}) != len(rows):
            self.wrong(where, "a region stands twice")
        sizes = {int(row["gpus"]) / int(row["stages"]) for row in rows}
        if len(sizes) != 1 or not sizes.copy().pop().is_integer():
            self.wrong(where, f"gang broken: GPUs a stage differ or are no whole number: {sorted(sizes)}")
        first = rows[0]
        start, end, steps = float(first["start_s"]), float(first["end_s"]), int(first["steps"])
        if not end >= start or steps < 0:
            self.wrong(where, f"{steps} steps from {start} to {end}")
        self.check_cuts(where, job_id, rows, cuts)
        for row in rows:
            self.check_power(where, row)

    def cuts(self, job_id: str, generation: int) -> list[dict[str, str]]:
        """The rows of its cuts."""
        return [row for row in self.links[job_id, generation] if row["use"] == "cut"]

    def sent_state(self, job_id: str, generation: int) -> list[dict[str, str]]:
        """The rows of state that travelled to where it begins."""
        return [row for row in self.links[job_id, generation] if row["use"] == "state"]

    def check_cuts(self, where: str, job_id: str, rows: list[dict], cuts: list[dict]) -> None:
        joined = [(row["region"]) for row in rows]
        wanted = set()
        for left, right in pairwise(joined):
            wanted |= {(left, right), (right, left)}
        if sorted((cut["src"], cut["dst"]) for cut in cuts) != sorted(wanted):
            self.wrong(
                where,
                f"gang broken: cuts {sorted((c['src'], c['dst']) for c in cuts)}, wanted {sorted(wanted)}",
            )
        sent = self.bytes_per_step(job_id)
        for cut in cuts:
            link = self.inputs.links.get((cut["src"], cut["dst"]))
            if link is None:
                self.wrong(where, f"there is no link {cut['src']} -> {cut['dst']}")
                continue
            self.same(where, "usd_per_gb", float(cut["usd_per_gb"]), link[1])
            if not float(cut["reserved_bps"]) > 0:
                self.wrong(where, "a cut without bandwidth")
            if sent is not None:
                self.same(where, "bytes of a cut", float(cut["bytes"]), sent * steps_done(rows[0]))
            # what was sent must have fitted through what was reserved
            seconds = float(cut["end_s"]) - float(cut["start_s"])
            carried = float(cut["reserved_bps"]) * self.inputs.carried
            if float(cut["bytes"]) * 8 > carried * seconds * (1 + TOLERANCE):
                self.wrong(where, f"more bytes than {cut['reserved_bps']} bit/s carry in {seconds} s")

    def check_power(self, where: str, row: dict) -> None:
        kinds = [self.scenario_gpu(name) for name in self.inputs.regions[row["region"]]["gpus"]]
        if None in kinds:
            return  # a preset of the project: its figures are not in the inputs
        low = min(kind.get("idle_w", kind["power_w"]) for kind in kinds if kind)
        high = max(kind["power_w"] for kind in kinds if kind)
        # a GPU is busy in steps alone; whoever restarts or writes state leaves it idle
        held = float(row["end_s"]) - float(row["start_s"])
        trained = steps_done(row) * float(row["iteration_s"]) / held if held else 0.0
        most = low + (high - low) * min(1.0, trained) if len(kinds) == 1 else high
        if not low * (1 - TOLERANCE) <= float(row["power_w"]) <= most * (1 + TOLERANCE):
            self.wrong(where, f"power_w {row['power_w']} is not between idle {low} and {most}")

    def scenario_gpu(self, name: str) -> dict | None:
        return (self.inputs.scenario.get("gpus") or {}).get(name)

    def bytes_per_step(self, job_id: str) -> float | None:
        """Bytes of a cut in one direction: data × micro_batch × seq × hidden × 2 (or 4) × micro_batches; there and back
        on a V, twice there and once back in a loop."""
        known = self.expected.get(job_id)
        if known is None:
            return None
        if "gpus" in known:
            gpus, stages = known["gpus"], 1
            while stages * 2 <= min(16, gpus / 8):
                stages *= 2
            size = math.ceil(gpus / stages)
            data = size / min(8, size)
            _, model, seq = next(entry for entry in TRACE_MODELS if gpus <= entry[0])
            return data * seq * MODELS[model][1] * 2 * 8 * stages
        document = known["document"]
        model, training = document["model"], document["training"]
        hidden, seq = model.get("hidden"), model.get("seq_len")
        if hidden is None:
            hidden = MODELS.get(plain(model["preset"]), (None, None))[1]
        if hidden is None or seq is None:
            return None
        element = 4 if training.get("dtype") == "fp32" else 2
        data = (document.get("parallelism") or {}).get("data", 1)
        message = data * training.get("micro_batch", 1) * seq * hidden * element
        crossings = {**dict.fromkeys(V_SHAPED, 2), **dict.fromkeys(LOOPED, 3)}.get(
            training.get("schedule"), 1
        )
        return message * crossings * training.get("micro_batches", 8)

    def check_job(self, job_id: str, row: dict) -> None:
        where = f"job {job_id}"
        generations = sorted(generation for job, generation in self.allocations if job == job_id)
        if row["state"] == "rejected":
            if generations or row["finish_s"] or float(row["electricity_usd"]) or int(row["steps"]):
                self.wrong(where, "rejected, but it ran")
            return
        if row["state"] not in ("succeeded", "failed") or not generations:
            self.wrong(where, f"ends in state {row['state']} with generations {generations}")
            return
        runs = [self.allocations[job_id, generation] for generation in generations]
        if generations != list(range(1, int(row["generations"]) + 1)):
            self.wrong(where, f"generations {generations}, told {row['generations']}")
        self.same(where, "steps", int(row["steps"]), sum(int(run[0]["steps"]) for run in runs))
        submit, start = float(row["submit_s"]), float(row["first_start_s"])
        self.same(where, "first_start_s", start, float(runs[0][0]["start_s"]))
        if start < submit:
            self.wrong(where, f"started at {start}, submitted at {submit}")
        if row["state"] == "succeeded":
            self.check_finish(where, row, runs)
        elif row["finish_s"] or row["jct_s"]:
            self.wrong(where, "failed, but it finished")
        migrations = sum(bool(self.sent_state(job_id, generation)) for generation in generations)
        if int(row["migrations"]) != migrations:
            self.wrong(where, f"migrations {row['migrations']}, state travelled to {migrations} generations")
        if not 0 <= int(row["preemptions"]) <= len(runs) - (row["state"] == "succeeded"):
            self.wrong(where, f"preemptions {row['preemptions']} of {len(runs)} generations")
        for before, after in pairwise(runs):
            if float(after[0]["start_s"]) < float(before[0]["end_s"]):
                self.wrong(where, "a generation starts before the last one has ended")
        chain = ">".join(f"{part['region']}:{part['stages']}" for part in runs[-1])
        if chain != row["chain"]:
            self.wrong(where, f"chain {row['chain']}, its allocations are {chain}")
        self.check_beginnings(where, job_id, runs)
        self.check_costs(where, row, [part for run in runs for part in run])

    def check_beginnings(self, where: str, job_id: str, runs: list[list[dict]]) -> None:
        """Every chain begins at home, and its data are brought there once, over the link of least egress."""
        document = self.expected.get(job_id, {}).get("document") or {}
        home = (document.get("placement") or {}).get("home")
        been: set[str] = set()
        for generation, rows in enumerate(runs, start=1):
            first = rows[0]["region"]
            if home not in (None, first):
                self.wrong(where, f"generation {generation} begins in {first}, not at home in {home}")
            wanted = []
            for data in document.get("data") or []:
                held = data.get("regions") or [first]
                if first not in held and first not in been:
                    links = [self.inputs.links.get((region, first)) for region in held]
                    usd = min((link[1] for link in links if link), default=math.nan)
                    wanted.append((bytes_of(data["size"]), usd))
            been.add(first)
            told = [row for row in self.links[job_id, generation] if row["use"] == "data"]
            paid = sorted((float(row["bytes"]), float(row["usd_per_gb"])) for row in told)
            if paid != sorted(wanted) or any(
                row["dst"] != first or float(row["reserved_bps"]) for row in told
            ):
                self.wrong(where, f"generation {generation}: data {paid} brought to {first}, wanted {wanted}")

    def check_finish(self, where: str, row: dict, runs: list[list[dict]]) -> None:
        document = self.expected.get(row["job_id"], {}).get("document")
        if (
            document is not None
        ):  # a traced job's steps follow from the rate of a run that is not in the files
            steps = document.get("actual_steps", document["training"]["steps"])
            self.same(where, "steps", int(row["steps"]), steps)
        submit, finish = float(row["submit_s"]), float(row["finish_s"])
        self.same(where, "finish_s", finish, float(runs[-1][0]["end_s"]))
        if float(row["jct_s"]) != finish - submit:
            self.wrong(where, f"jct_s {row['jct_s']} from {submit} to {finish}")

    def check_life(self, job_id: str, row: dict) -> None:
        """Follows a job from generation to generation: each restarts, trains, and writes its state or finishes."""
        model = self.model_of(job_id)
        lies: list[str] | None = None
        faults, checkpoints = 0, 0
        for generation in range(1, int(row["generations"]) + 1):
            where, rows = f"job {job_id}, generation {generation}", self.allocations[job_id, generation]
            if not rows:
                return
            first = rows[0]
            held = float(first["end_s"]) - float(first["start_s"])
            restart, stop = float(first["restart_s"]), float(first["stop_s"])
            step, trained = float(first["iteration_s"]), steps_done(first) * float(first["iteration_s"])
            slack = TOLERANCE * max(held, step)
            cut_short = generation > 1 and held - restart <= slack and not stop and not trained
            moves = self.check_transfers(where, rows, generation, lies, model)
            self.check_restart(where, rows, generation, moves, model, cut_short=cut_short)
            lost = held - restart - stop - trained
            last = generation == int(row["generations"]) and row["state"] == "succeeded"
            if last and (stop or abs(lost) > slack or int(first["steps_lost"])):
                self.wrong(where, f"steps × iteration_s is {trained} s, held for {held - restart} s")
            elif not -slack <= lost <= step + slack:
                self.wrong(where, f"{lost} s that are neither restart_s nor steps × iteration_s nor stop_s")
            if cut_short or last:
                faults += cut_short
                continue
            # whoever stops as it was told writes all of its state
            writing = None if model is None else self.storage(rows, model)
            hit = not stop or first["steps_lost"] != "0"
            if writing is not None:  # else how long that takes is not known from here
                hit = stop < writing * (1 - TOLERANCE)
            faults += hit or writing is None
            if hit:
                checkpoints = math.floor((held - restart - stop) / self.inputs.checkpoint_every)
                kept = math.floor(checkpoints * self.inputs.checkpoint_every / step)
                if int(first["steps"]) != min(kept, steps_done(first)):
                    self.wrong(where, f"keeps {first['steps']} steps after a fault, checkpoints hold {kept}")
            elif int(first["steps_lost"]):
                self.wrong(where, "steps_lost, though nothing failed under it")
            elif writing is not None:
                self.same(where, "stop_s", stop, writing)
            if model is not None and (not hit or checkpoints):
                lies = stands(rows, model)
        if int(row["faults"]) > faults or (row["faults"] != "0" and not self.inputs.outages):
            self.wrong(f"job {job_id}", f"faults {row['faults']}, at most {faults} generations were hit")

    def check_transfers(
        self, where: str, rows: list[dict], generation: int, lies: list[str] | None, model: str | None
    ) -> float:
        """What crossed regions before the restart; answers for how long it travelled, were it not cut short."""
        sent = self.sent_state(rows[0]["job_id"], generation)
        if model is not None:
            crossing: dict[tuple[str, str], float] = defaultdict(float)
            for src, dst in zip(lies or [], stands(rows, model), strict=False):
                if src != dst:
                    crossing[src, dst] += state_bytes(model) / MODELS[model][0]
            if sorted(crossing) != sorted((each["src"], each["dst"]) for each in sent):
                self.wrong(
                    where, f"state travels {[(e['src'], e['dst']) for e in sent]}, not {list(crossing)}"
                )
        longest = 0.0
        start, end = float(rows[0]["start_s"]), float(rows[0]["end_s"])
        for each in sent:
            link = self.inputs.links.get((each["src"], each["dst"]))
            if link is None:
                self.wrong(where, f"there is no link {each['src']} -> {each['dst']}")
                continue
            self.same(where, "usd_per_gb", float(each["usd_per_gb"]), link[1])
            granted, volume, until = (float(each[name]) for name in ("reserved_bps", "bytes", "end_s"))
            rate = granted * self.inputs.carried
            if each["start_s"] != rows[0]["start_s"] or not rate > 0:
                self.wrong(where, "state does not travel from the start, on bandwidth of its own")
                continue
            whole = volume if model is None else crossing[each["src"], each["dst"]]
            arrival = start + self.inputs.restart_fixed + whole * 8 / rate
            longest = max(longest, whole * 8 / rate)
            if until < end or (model is not None and end >= arrival):
                self.same(where, "bytes of state", volume, whole)
                self.same(where, "arrival of state", until, arrival)
            else:
                travelled = max(0.0, end - start - self.inputs.restart_fixed)
                self.same(where, "bytes of state cut short", volume, travelled * rate / 8, whole)
        return longest

    def check_restart(
        self,
        where: str,
        rows: list[dict],
        generation: int,
        travel: float,
        model: str | None,
        *,
        cut_short: bool,
    ) -> None:
        told, held = float(rows[0]["restart_s"]), float(rows[0]["end_s"]) - float(rows[0]["start_s"])
        if generation == 1:
            if told:
                self.wrong(where, f"restart_s {told} of a job that never ran before")
        elif cut_short:
            self.same(where, "restart_s cut short", told, held)
        elif model is not None:
            needed = self.inputs.restart_fixed + travel + self.storage(rows, model)
            self.same(where, "restart_s", told, needed)

    def storage(self, rows: list[dict], model: str) -> float:
        """How long the largest stage writes or reads its part of the state."""
        layers, stages = MODELS[model][0], sum(int(row["stages"]) for row in rows)
        gpus = int(rows[0]["gpus"]) / int(rows[0]["stages"])
        largest = math.ceil(layers / stages) / layers
        return state_bytes(model) * largest * 8 / (self.inputs.storage_bps * gpus)

    def model_of(self, job_id: str) -> str | None:
        """What the job trains, where its state can be known from here."""
        known = self.expected.get(job_id)
        if known is None:
            return None
        if "gpus" in known:
            return next(model for most, model, _ in TRACE_MODELS if known["gpus"] <= most)
        preset = plain(known["document"]["model"].get("preset", ""))
        return preset if preset in MODELS else None

    def check_costs(self, where: str, row: dict, parts: list[dict]) -> None:
        energy, electricity, size, rent = [], [], [], []
        for part in parts:
            start, end = float(part["start_s"]), float(part["end_s"])
            region = self.inputs.regions[part["region"]]
            kilowatts = int(part["gpus"]) * float(part["power_w"]) * region.get("pue", 1.0) / 1000
            energy.append(kilowatts * (end - start) / HOUR)
            usd = kilowatts * self.inputs.price_integral(part["region"], start, end)
            electricity.append(usd)
            size.append(abs(usd))
            rent.append(int(part["gpus"]) * (end - start) / HOUR * region.get("rent_usd_per_gpu_hour", 0))
        cuts = [cut for (job, _), rows in self.links.items() if job == row["job_id"] for cut in rows]
        egress = [float(cut["bytes"]) / 1e9 * float(cut["usd_per_gb"]) for cut in cuts]
        self.same(where, "energy_kwh", float(row["energy_kwh"]), math.fsum(energy))
        self.same(
            where, "electricity_usd", float(row["electricity_usd"]), math.fsum(electricity), math.fsum(size)
        )
        self.same(where, "egress_usd", float(row["egress_usd"]), math.fsum(egress))
        self.same(where, "rent_usd", float(row["rent_usd"]), math.fsum(rent))

    def check_capacities(self) -> None:
        used: dict[tuple[str, ...], list[tuple[float, float, float]]] = defaultdict(list)
        for rows in self.allocations.values():
            for row in rows:
                span = (float(row["start_s"]), float(row["end_s"]))
                used["GPUs of", row["region"]].append((*span, int(row["gpus"])))
        for region, start, end, gpus in self.inputs.outages:
            used["GPUs of", region].append((start, end, gpus))
        for rows in self.links.values():
            for row in rows:
                span = (float(row["start_s"]), float(row["end_s"]), float(row["reserved_bps"]))
                used["link", row["src"], row["dst"]].append(span)
                used["uplink of", row["src"]].append(span)
                used["downlink of", row["dst"]].append(span)
        for what, spans in sorted(used.items()):
            self.check_capacity(what, spans)

    def check_capacity(self, what: tuple[str, ...], spans: list[tuple[float, float, float]]) -> None:
        kind, names = what[0], what[1:]
        if kind == "GPUs of":
            capacity = float(self.inputs.gpus[names[0]])
        elif kind == "link":
            capacity = self.inputs.links.get(names, (0.0, 0.0))[0]
        else:
            field = "uplink_gbps" if kind == "uplink of" else "downlink_gbps"
            capacity = self.inputs.regions[names[0]].get(field, math.inf) * 1e9
        # ends come before starts of the same moment: what is given back can be taken at once; none is without length
        spans = [span for span in spans if span[1] > span[0]]
        events = sorted([(end, 0, -amount) for _, end, amount in spans] + [(s, 1, a) for s, _, a in spans])
        level, worst, at = 0.0, 0.0, 0.0
        for time, _, change in events:
            level += change
            if level > worst:
                worst, at = level, time
        if worst > capacity * (1 + CAPACITY_TOLERANCE):
            self.wrong(" ".join(what), f"{worst!r} held at {at} s, but there is {capacity!r}")

    def check_summary(self) -> None:
        ran = [row for row in self.jobs.values() if row["state"] == "succeeded"]
        states: dict[str, int] = defaultdict(int)
        for row in self.jobs.values():
            states[row["state"]] += 1
        told = self.summary
        if told["jobs"] != {"total": len(self.jobs), "by_state": dict(states)}:
            self.wrong("summary.json", f"jobs {told['jobs']}, counted {dict(states)}")
        totals = {
            name: math.fsum(float(r[f"{name}_usd"]) for r in self.jobs.values())
            for name in ("electricity", "egress", "rent")
        }
        totals["owner_paid"] = totals["electricity"] + totals["egress"]
        totals["renter_paid"] = totals["rent"] + totals["egress"]
        for name, value in totals.items():
            self.same("summary.json", f"costs_usd.{name}", told["costs_usd"][name], value)
        self.same(
            "summary.json",
            "energy_kwh",
            told["energy_kwh"],
            math.fsum(float(r["energy_kwh"]) for r in self.jobs.values()),
        )
        if not ran:
            return
        jct = sorted(float(row["jct_s"]) for row in ran)
        self.same("summary.json", "jct_s.mean", told["jct_s"]["mean"], math.fsum(jct) / len(jct))
        position = 0.95 * (len(jct) - 1)
        low = math.floor(position)
        high = min(low + 1, len(jct) - 1)
        self.same(
            "summary.json",
            "jct_s.p95",
            told["jct_s"]["p95"],
            jct[low] + (jct[high] - jct[low]) * (position - low),
        )
        makespan = max(float(row["finish_s"]) for row in ran) - min(float(row["submit_s"]) for row in ran)
        self.same("summary.json", "makespan_s", told["makespan_s"], makespan)


def steps_done(row: dict) -> int:
    """Whole steps, those that a fault undid included."""
    return int(row["steps"]) + int(row["steps_lost"])


def stands(rows: list[dict], model: str) -> list[str]:
    """The region of each layer: whole layers to every stage, one more to the last ones."""
    layers, stages = MODELS[model][0], sum(int(row["stages"]) for row in rows)
    least, larger = divmod(layers, stages)
    regions = [row["region"] for row in rows for _ in range(int(row["stages"]))]
    return [region for stage, region in enumerate(regions) for _ in range(least + (stage >= stages - larger))]


def check(scenario: Path, folder: Path) -> list[str]:
    """Everything that is wrong with a result of a replay of this scenario."""
    return Checker(Inputs(scenario), folder).check()


def main(arguments: list[str]) -> int:
    if len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    failed = False
    for name in arguments[1:]:
        problems = check(Path(arguments[0]), Path(name))
        failed = failed or bool(problems)
        print(f"{name}: {'right' if not problems else f'{len(problems)} problems'}")
        for problem in problems[:50]:
            print(f"  {problem}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
