"""All experiments, in the order of their families."""

from tests.faults import (
    background,
    bounds,
    doors,
    failover,
    judge_batches,
    lanes,
    many_jobs,
    network,
    nights,
    pgbouncer,
    postgres_server,
    producers,
    provider,
    provider_batches,
    redis_server,
    refusals,
    turns,
    upgrades,
    workers,
)
from tests.faults.registry import REGISTRY, Experiment, NotPossibleHere

__all__ = ["EXPERIMENTS", "FAMILIES", "Experiment", "NotPossibleHere"]

FAMILIES = {
    "workers": workers,
    "bounds": bounds,
    "Redis": redis_server,
    "PostgreSQL": postgres_server,
    "PgBouncer": pgbouncer,
    "a standby of PostgreSQL": failover,
    "the network": network,
    "the provider": provider,
    "batches of the provider": provider_batches,
    "judges in those batches": judge_batches,
    "responses in the background": background,
    "lanes that are left": lanes,
    "a provider that serves no one": refusals,
    "producers and people": producers,
    "many jobs at once": many_jobs,
    "turns of tenants": turns,
    "callers over HTTP": doors,
    "nights": nights,
    "upgrades and backups": upgrades,
}
"""The module of each; being imported puts its experiments on the list."""

EXPERIMENTS = [
    experiment
    for module in FAMILIES.values()
    for experiment in REGISTRY
    if experiment.run.__module__ == module.__name__
]
