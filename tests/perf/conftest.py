"""Figures are printed, not the log of what is measured."""

from __future__ import annotations

import logging

import pytest
import structlog


@pytest.fixture(autouse=True)
def silent_log(logging_of_its_own: None) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
