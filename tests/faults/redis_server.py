"""Redis dies, forgets, freezes, or does not come back."""

from tests.faults.ground import Account, Ground
from tests.faults.listing import JOBS, experiment


@experiment("Redis killed and restarted with its log")
def redis_restarted(here: Ground) -> Account:
    here.work()
    here.until_answered(10)
    here.crash("valkey")
    here.restart()
    here.mended()
    return here.account(JOBS)


@experiment("Redis killed and restarted without its data")
def redis_without_data(here: Ground) -> Account:
    here.work()
    here.until_answered(20)
    here.crash("valkey")
    for path in here.home.glob("local/data/valkey/appendonlydir/*"):
        path.unlink()
    here.restart()
    here.mended()
    return here.account(JOBS)


@experiment("FLUSHALL in mid-run", quick=True)
def flushed(here: Ground) -> Account:
    here.work()
    here.until_answered(20)
    with here.redis() as client:
        client.flushall()
    here.mended()
    return here.account(JOBS)


@experiment("Redis away for 30 s")
def redis_away(here: Ground) -> Account:
    here.work()
    here.until_answered(10)
    here.crash("valkey")
    here.pause(30)
    here.restart()
    here.mended()
    return here.account(JOBS)


@experiment("Redis frozen for 20 s, its connections open")
def redis_frozen(here: Ground) -> Account:
    here.work()
    here.until_answered(10)
    thaw = here.freeze("valkey")
    try:
        here.pause(20)
    finally:
        thaw()
    here.mended()
    return here.account(JOBS)


@experiment("Redis gone for good: from PostgreSQL alone")
def redis_gone(here: Ground) -> Account:
    here.work()
    here.until_answered(10)
    here.crash("valkey")
    here.mended()
    return here.account(JOBS, published=False)
