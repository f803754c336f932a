"""What a bed is asked to be: regions and the directed links between them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

MAX_REGIONS = 16
MAX_MBPS = 1000.0
"""What a relay in Python forwards is less; `measure` tells what is left."""

RegionName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]


class NetworkError(Exception):
    """The description of a network names something wrong: the field, its value, and what would be right."""


class Link(BaseModel):
    """One direction between two regions: a first-in-first-out line."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    src: RegionName
    dst: RegionName
    latency_ms: Annotated[float, Field(ge=0, le=2000)]
    """One way, milliseconds: half the round trip, where both directions are alike."""
    mbps: Annotated[float, Field(ge=0.01, le=MAX_MBPS)]
    """Megabits per second."""


class Network(BaseModel):
    """Regions and links. Two regions reach each other where both directions have a link."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    regions: Annotated[tuple[RegionName, ...], Field(min_length=1, max_length=MAX_REGIONS)]
    links: tuple[Link, ...] = ()

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if len(set(self.regions)) != len(self.regions):
            raise ValueError("regions: each name may stand there once")
        ways = [(link.src, link.dst) for link in self.links]
        for src, dst in ways:
            if src == dst or src not in self.regions or dst not in self.regions:
                raise ValueError(f"links: {src} to {dst}: a link joins two different ones of `regions`")
            if ways.count((src, dst)) > 1:
                raise ValueError(f"links: {src} to {dst} stands there twice")
            if (dst, src) not in ways:
                raise ValueError(f"links: {src} to {dst} has no link back, and nothing answers without one")
        return self

    @property
    def pairs(self) -> tuple[tuple[Link, Link], ...]:
        """Both directions of each two regions that are joined, once."""
        back = {(link.src, link.dst): link for link in self.links}
        return tuple((link, back[link.dst, link.src]) for link in self.links if link.src < link.dst)


def network_from_file(path: Path) -> Network:
    """The network in a YAML file: `regions: [a, b]`, `links: [{src, dst, latency_ms, mbps}]`.

    Raises NetworkError.
    """
    try:
        return network_from(yaml.safe_load(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise NetworkError(f"{path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise NetworkError(f"{path} is not YAML: {error}") from error


def network_from(document: object) -> Network:
    """The network in a parsed document. Raises NetworkError."""
    try:
        # By way of JSON, so that lists become tuples and nothing else is converted.
        return Network.model_validate_json(json.dumps(document), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"])) or "document"
        raise NetworkError(f"{field}: {first['msg']}, got {first['input']!r}") from error
    except TypeError as error:
        raise NetworkError(f"document: {error}") from error
