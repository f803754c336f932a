"""Exact search for a chain of regions where greedy growth finds none: OR-Tools, a path as a circuit.

Bandwidth decides which pairs of regions may be neighbours, and which regions can stand inside a chain (two cuts
share one uplink and downlink) or at its ends only. Whether a chain with enough slots exists under both is the
longest path problem in small; CP-SAT proves it either way.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

import networkx as nx

from scheduler.allocator import solver_for

if TYPE_CHECKING:
    from ortools.sat.python import cp_model


@dataclass(frozen=True, slots=True)
class Site:
    """A region with room for so many stages, and with bandwidth for one cut or for two."""

    slots: int
    cuts: int


def search_chain(
    sites: Mapping[str, Site],
    linked: Set[tuple[str, str]],
    begins: Collection[str],
    stages: int,
    max_regions: int,
    seed: int,
) -> tuple[str, ...] | None:
    """The chain of the fewest regions (then the most slots) that holds so many stages; None if there is none.

    `linked` holds the pairs (a, b), a < b, that may be neighbours, `begins` the sites that may be the first. None
    as well if the solver's limit is reached before it finds one, which small networks (a dozen regions) do not come
    near.
    """
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(sorted(sites))
    graph.add_edges_from(sorted(linked))
    found = []
    for component in sorted(map(sorted, nx.connected_components(graph))):
        part = {region: sites[region] for region in component}
        edges = sorted(pair for pair in linked if pair[0] in part)
        first = [region for region in begins if region in part]
        if first and _bound(part, edges, max_regions) >= stages:
            chain = _solve(part, edges, first, stages, max_regions, seed)
            if chain is not None:
                found.append(chain)
    return min(
        found, key=lambda chain: (len(chain), -sum(sites[r].slots for r in chain), chain), default=None
    )


def _bound(sites: Mapping[str, Site], edges: list[tuple[str, str]], max_regions: int) -> int:
    """No chain has more slots than this: at most two of its regions have a single neighbour in it."""
    degree = dict.fromkeys(sites, 0)
    for pair in edges:
        for region in pair:
            degree[region] += 1
    inner = [site.slots for region, site in sites.items() if min(site.cuts, degree[region]) >= 2]
    outer = sorted(
        (site.slots for region, site in sites.items() if min(site.cuts, degree[region]) < 2), reverse=True
    )
    return sum(sorted(inner + outer[:2], reverse=True)[:max_regions])


def _solve(
    sites: Mapping[str, Site],
    edges: list[tuple[str, str]],
    begins: Collection[str],
    stages: int,
    max_regions: int,
    seed: int,
) -> tuple[str, ...] | None:
    from ortools.sat.python import cp_model  # a second of import, for the few plans that need it

    model = cp_model.CpModel()
    names = sorted(sites)
    number = {region: index for index, region in enumerate(names, 1)}  # 0 stands before and after the chain
    used = {region: model.new_bool_var(region) for region in names}
    first = {region: model.new_bool_var("") for region in names if region in begins}
    arcs: list[tuple[int, int, cp_model.LiteralT]] = []
    at: dict[str, list[cp_model.IntVar]] = {region: [] for region in names}
    steps: dict[tuple[str, str], cp_model.IntVar] = {}
    for region in names:
        arcs.append((number[region], number[region], ~used[region]))
        if region in first:
            arcs.append((0, number[region], first[region]))
        arcs.append((number[region], 0, model.new_bool_var("")))
    for a, b in edges:
        for src, dst in ((a, b), (b, a)):
            step = steps[src, dst] = model.new_bool_var("")
            arcs.append((number[src], number[dst], step))
            at[a].append(step)
            at[b].append(step)
    model.add_circuit(arcs)
    for region, site in sites.items():
        model.add(sum(at[region]) <= site.cuts)
    model.add(sum(site.slots * used[region] for region, site in sites.items()) >= stages)
    model.add(sum(used.values()) <= max_regions)
    total = 1 + sum(site.slots for site in sites.values())
    model.minimize(sum((total - site.slots) * used[region] for region, site in sites.items()))
    solver = solver_for(seed)
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    following = {src: dst for (src, dst), step in steps.items() if solver.value(step)}
    chain = [next(region for region in first if solver.value(first[region]))]
    while chain[-1] in following:
        chain.append(following[chain[-1]])
    return tuple(chain)
