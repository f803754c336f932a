"""Who can reach a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from service.db.records import NodeRecord

FILE_SCHEME = "file://"


def regions_that_reach(
    uri: str | None, writers: Collection[NodeRecord], of_addresses: Callable[[set[str]], Iterable[str]]
) -> frozenset[str]:
    """The regions that can reach a checkpoint which these nodes write; empty where any can.

    A folder (`file://`, and the server's own where the job names no place) is on the machines of those who write it:
    it can be reached from the regions of the chain and from regions with nodes at the same address (several agents of
    one machine). `of_addresses` answers the regions of all nodes at these addresses.
    """
    if uri is not None and not uri.startswith(FILE_SCHEME):
        return frozenset()
    regions = {node.region for node in writers}
    addresses = {node.address for node in writers}
    if len(addresses) == 1:
        regions |= set(of_addresses(addresses))
    return frozenset(regions)
