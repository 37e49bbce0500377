"""The process of which workers are forks: loads what they use, and in each of them runs the command ``nightdesk worker``.

    python -m worker.cli.template_process HOME ROOM

It ends with its starter (see ``worker.supervise.worker_template``).
"""

import gc
import sys
from importlib import import_module
from pathlib import Path

from worker import cli
from worker.cli.terminal import complain
from worker.supervise.worker_template import await_orders, show_command

LATER = (
    "celery.app.amqp", "celery.app.control", "celery.app.events", "celery.app.log", "celery.apps.worker", "celery.backends.redis",
    "celery.concurrency.thread", "celery.events.receiver", "celery.fixups.django", "celery.worker.autoscale",
    "celery.worker.components", "celery.worker.consumer", "celery.worker.consumer.delayed_delivery", "celery.worker.strategy",
    "encodings.idna", "kombu.pidbox", "kombu.transport.redis", "tasks.celery_tasks", "typer._adapters", "worker.ledger.answer_cache",
    "worker.ledger.attempts", "worker.ledger.background_responses", "worker.ledger.duties", "worker.ledger.provider_batches",
    "worker.ledger.publishing", "worker.ledger.queue", "worker.ledger.tenant_budgets",
)  # fmt: skip
"""Modules that a worker imports when it begins to work."""


def main() -> None:
    """Serves orders; in a forked worker runs its command and ends with its exit code."""
    # Loading makes many objects and no garbage.
    gc.disable()
    try:
        show_command([sys.executable, "-m", "worker.cli.template_process", sys.argv[1]])
        load()
    except OSError as error:
        complain(error)
        sys.exit(1)
    # A search for garbage in a worker would touch, and so copy, every page.
    gc.freeze()
    order = await_orders()
    if order is not None:
        sys.argv = ["nightdesk", *order.arguments]
        cli.main()


def load() -> None:
    """Imports what a worker will, as the settings have it; raises ``OSError`` where an import began a thread."""
    from worker.cli.commands import load as load_command  # noqa: PLC0415 - after the search for garbage is off

    load_command(["worker"])
    for module in LATER:
        import_module(module)
    import_module("worker.process.main").load_ahead()
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        raise OSError(
            "an imported module began a thread, which a fork would not take along: workers are started singly"
        )


if __name__ == "__main__":
    main()
