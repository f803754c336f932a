"""Which policies may run a cluster."""

from __future__ import annotations

import pytest

from scheduler.errors import InvalidValueError
from scheduler.policies import MAIN, STUDIES
from service.policy import policy_of
from service.settings import Settings


@pytest.mark.parametrize("name", MAIN)
def test_every_main_policy_may_run_a_cluster(name: str) -> None:
    assert policy_of(Settings(policy=name)).name == name


@pytest.mark.parametrize("name", STUDIES)
def test_a_policy_of_a_study_may_not_and_is_refused_with_those_that_may(name: str) -> None:
    with pytest.raises(InvalidValueError, match=", ".join(MAIN)):
        policy_of(Settings(policy=name))
