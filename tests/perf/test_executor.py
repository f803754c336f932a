"""Our executor beside torch's in the same run: what driving by arrival costs, and what readiness first is worth."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agents.protocol import WorkerModel
from scheduler.pipeline.plan import layouts, orders, split_orders
from scheduler.pipeline.plan.ir import Plan
from service.cli.testbed.bed import BedError, bed_of
from service.cli.testbed.network import Link, Network
from tests.gangs import Gangs
from tests.plans import together
from tests.unit.worker.executor import virtual_time
from tests.unit.worker.executor.virtual_time import hints, jitter
from tests.wire_plans import rank_plans, wire_plan

pytestmark = [pytest.mark.perf, pytest.mark.xdist_group("stage-workers")]

RANK = Path(__file__).with_name("executor_rank.py")
MODEL = WorkerModel(layers=4, hidden=128, heads=4, kv_heads=4, head_dim=32, ffn=384, vocab=256, seq_len=128)

ONE_F_ONE_B = together(layouts.line(2), orders.one_f_one_b(2, 8))
SHAPE = {"model": MODEL, "layers_per_stage": [2, 2], "micro_batch": 1}


def run(
    gangs: Gangs, plan: Plan, env: Mapping[str, object], orders_of: Mapping[str, Plan], **changes: Any
) -> dict[str, list[tuple[float, float]]]:
    """Of every way to run the plan, (seconds, processor seconds) an iteration of rank 0, turn by turn."""
    port, ranks, workers = gangs.free_port(), len(plan.actions), []
    results = [gangs.folder / f"{port}-{rank}.json" for rank in range(ranks)]
    for rank in range(ranks):
        told = wire_plan(plan, rank, order=None, **changes)
        own = {name: wire_plan(each, rank).order for name, each in orders_of.items()}
        given = {
            "ORDERS": json.dumps({name: order and order.model_dump() for name, order in own.items()}),
            "RESULT": results[rank],
            **env,
        }
        as_text = {name: str(value) for name, value in given.items()}
        workers += gangs.start(told, ranks, ranks=[rank], port=port, env=as_text, script=RANK)
    codes = [worker.exit_code() for worker in workers]
    assert codes == [0] * ranks, "\n".join(worker.log.read_text() for worker in workers)
    found: dict[str, list[tuple[float, float]]] = json.loads(results[0].read_text())
    return found


@pytest.mark.parametrize(("latency_s", "strict", "hint"), [(0.0, 0.98, 0.98), (0.02, 0.96, 1.2)])
def test_throughput_beside_torchs_1f1b(gangs: Gangs, latency_s: float, strict: float, hint: float) -> None:
    """Two ranks on two cores, eight micro-batches; each way takes its turn, so that all meet the same machine.

    A latency that nothing but the order could hide is the same for all who keep to one order: there our executor is
    ahead with more in flight, and with the same order on a real link.
    """
    env = {"STUDY": "throughput", "LATENCY_S": latency_s, "TURNS": 36}
    found = run(gangs, ONE_F_ONE_B, env, {}, **SHAPE)

    print(
        f"\n2 ranks × 8 micro-batches, {latency_s * 1e3:.0f} ms a message, held back in the process that sends"
    )
    faster = told(found)
    assert faster["ours, strict"] > strict
    assert faster["ours, hint, cap + 2"] > hint


def test_throughput_on_a_slow_link(gangs: Gangs) -> None:
    """The same between two network namespaces, where gloo asks before it sends what nobody waits for yet."""
    links = [Link(src=src, dst=dst, latency_ms=20, mbps=200) for src, dst in ("ab", "ba")]
    try:
        with bed_of(Network(regions=("a", "b"), links=tuple(links))) as bed:
            env = {"STUDY": "throughput", "LATENCY_S": 0.0, "TURNS": 12, "MASTER_ADDR": bed.address("a")}
            names = [f"{bed.namespace(region).keeper}:{region}" for region in "ab"]
            found = run(gangs, ONE_F_ONE_B, {**env, "NAMESPACES": " ".join(names)}, {}, **SHAPE)
    except BedError as error:
        pytest.skip(f"no slow links on this machine: {error}")

    print("\n2 ranks × 8 micro-batches, 20 ms and 200 Mbit/s between them")
    assert told(found)["ours, strict"] > 1


def told(found: Mapping[str, list[tuple[float, float]]]) -> dict[str, float]:
    """How much faster each way is than torch's Schedule1F1B; printed as well."""
    faster = {name: times_faster(found, "torch Schedule1F1B", name) for name in found}
    for name, turns in found.items():
        wall_s, cpu_s = (statistics.median(times) for times in zip(*turns, strict=True))
        print(
            f"  {name:20} {wall_s * 1e3:7.1f} ms an iteration, processor {cpu_s * 1e3:7.1f} ms; "
            f"{faster[name]:5.3f} × the throughput of torch's Schedule1F1B"
        )
    return faster


def times_faster(found: Mapping[str, list[tuple[float, float]]], base: str, way: str) -> float:
    """Median over the turns, each compared with the same turn of `base`."""
    pairs = zip(found[base], found[way], strict=True)
    return statistics.median(base_turn[0] / way_turn[0] for base_turn, way_turn in pairs)


@pytest.mark.parametrize(("latency_s", "least"), [(0.0, 1.1), (0.04, 1.2)])
def test_readiness_first_under_jitter(gangs: Gangs, latency_s: float, least: float) -> None:
    """4 ranks, 16 micro-batches; computations are sleeps of 40 ms (F, I, W) with σ 0.5, the same for all ways.

    Virtual time (tests/unit/worker/executor) says 1.26 for W as filler without latency, and 1.58 with that of an F.
    """
    ranks, micro_batches = 4, 16
    plan = together(layouts.line(ranks), orders.one_f_one_b(ranks, micro_batches))
    split = together(layouts.line(ranks), split_orders.zb_h1(ranks, micro_batches))

    env = {"STUDY": "jitter", "LATENCY_S": latency_s, "TURNS": 3}
    found = run(gangs, plan, env, {"1f1b": plan, "zb-h1": split})

    print(f"\n4 ranks × 16 micro-batches, σ 0.5, {latency_s * 1e3:.0f} ms a message, 3 seeds")
    for name, turns in found.items():
        print(
            f"  {name:28} mean {statistics.mean(wall_s for wall_s, _ in turns) * 1e3:7.1f} ms, "
            f"{times_faster(found, 'fixed 1F1B', name):5.2f} × faster than the fixed order"
        )
    assert times_faster(found, "fixed 1F1B", "hint, W as filler, cap + 2P") >= least


def test_readiness_first_in_virtual_time() -> None:
    """8 ranks, 32 micro-batches, F = I = W = 1 with σ 0.5: the executor's decisions without what a machine adds."""
    ranks, micro_batches, seeds = 8, 32, 20
    plan = together(layouts.line(ranks), orders.one_f_one_b(ranks, micro_batches))
    split = together(layouts.line(ranks), split_orders.zb_h1(ranks, micro_batches))
    fixed = rank_plans(plan)
    print(f"\n8 ranks × 32 micro-batches, σ 0.5, {seeds} seeds: times faster than fixed 1F1B, mean (least)")
    for latency in (0.0, 1.0, 4.0):
        kept = [
            virtual_time.run(fixed, jitter(seed), lambda _, latency=latency: latency)[0]
            for seed in range(seeds)
        ]
        for name, hinted in (("whole", plan), ("W as filler", split)):
            for more in (0, 2 * ranks):
                plans = hints(hinted, more)
                ratios = [
                    kept[seed] / virtual_time.run(plans, jitter(seed), lambda _, latency=latency: latency)[0]
                    for seed in range(seeds)
                ]
                print(
                    f"  latency {latency:g} F, {name:11}, cap + {more:2}  "
                    f"{statistics.mean(ratios):5.2f} ({min(ratios):4.2f})"
                )
                if hinted is split and more:
                    assert statistics.mean(ratios) >= 1.2
