"""All experiments, in the order of their families."""

from tests.faults import bounds, network, pages, people, postgres_server, provider, redis_server, refusals, workers
from tests.faults.listing import LISTED, Experiment, NotPossibleHere

__all__ = ["EXPERIMENTS", "FAMILIES", "Experiment", "NotPossibleHere"]

FAMILIES = {
    "workers": workers,
    "bounds": bounds,
    "Redis": redis_server,
    "PostgreSQL": postgres_server,
    "the network": network,
    "the provider": provider,
    "a provider that serves nobody": refusals,
    "producers and people": people,
    "many jobs at once": pages,
}
"""The module of each; being imported puts its experiments on the list."""

EXPERIMENTS = [one for module in FAMILIES.values() for one in LISTED if one.run.__module__ == module.__name__]
