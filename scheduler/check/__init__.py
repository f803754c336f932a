"""The check that every plan goes through before it is carried out."""

from scheduler.check.plan import check_plan
from scheduler.check.rules import Rule, Violation

__all__ = ["Rule", "Violation", "check_plan"]
