"""Random examples: the same few in every `make test`, many new ones in every `make fuzz`."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

FACTOR = int(os.environ.get("FACEFEED_FUZZ", "0"))
"""How many times the usual number of examples `make fuzz` draws; 0 in `make test`, whose examples never change."""

_SLOW_MACHINE = [HealthCheck.too_slow]  # a busy machine is no failure, nor is an example that takes long there


def load_profile() -> None:
    """Sets the defaults of every property test; called before the first of them is imported."""
    settings.register_profile(
        "facefeed",
        derandomize=not FACTOR,
        database=None,  # what failed here once must not decide what is tried here next
        max_examples=100 * max(FACTOR, 1),
        deadline=None,
        suppress_health_check=_SLOW_MACHINE,
        print_blob=True,
    )
    settings.load_profile("facefeed")


def examples(count: int, *, in_test: int | None = None, same_fixtures: bool = False) -> settings:
    """`count` examples of a property, in `make fuzz` many times as many.

    `in_test`: fewer of a slow one in `make test`, which never draws others.
    `same_fixtures`: all examples share one test's fixtures, which the property leaves as they were.
    """
    shared = [HealthCheck.function_scoped_fixture] if same_fixtures else []
    return settings(max_examples=count * FACTOR or in_test or count, suppress_health_check=[*_SLOW_MACHINE, *shared])
