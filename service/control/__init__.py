"""The control loops of the one instance that leads."""

from __future__ import annotations

from service.control.plane import ControlPlane

__all__ = ["ControlPlane"]
