"""The same snapshot gets the same plan in every process, whatever its hash seed."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

PROGRAM = """
import itertools, random
from scheduler.cluster import Cluster, Link, Pool, Region
from scheduler.policies import POLICIES, PolicyConfig, decide
from scheduler.price import PriceSeries
from scheduler.snapshot import Snapshot
from tests.busy_worlds import busy
from tests.worlds import BIG, GPU, job
rng = random.Random(11)
names = ["eu", "us", "ap", "sa", "af"]
regions = {name: Region(name, rng.uniform(1, 1.5), 60.0, 60.0) for name in names}
pools = {(name, kind): Pool(name, kind, rng.randint(1, 6)) for name in names for kind in ("g", "big")}
links = {(a, b): Link(a, b, rng.uniform(2, 30), 0.01) for a, b in itertools.permutations(names, 2)}
prices = {name: PriceSeries.flat(rng.uniform(0, 1)).known(0.0) for name in names[1:]}
jobs = tuple(
    job(f"j{n}", seconds=rng.uniform(5, 9), weight_bytes=rng.choice([8, 300]), steps=rng.randint(1, 9),
        inflight_bytes=rng.choice([0, 160]), avoid=rng.sample(names, 2), micro_batches=8)
    for n in range(12)
)
snap = Snapshot(1, 0.0, Cluster({"g": GPU, "big": BIG}, regions, pools, links), prices, jobs)
for name in POLICIES:
    for each in (snap, *map(busy, range(10))):
        print(decide(each, PolicyConfig(name)))
"""


def test_plans_do_not_depend_on_the_hash_seed():
    plans = set()
    for seed in ("0", "1", "4242"):
        run = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
            timeout=120,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
        )
        assert "Start(" in run.stdout
        plans.add(run.stdout)
    assert len(plans) == 1
