"""The ledger in memory: the official fake, held to the same contract as the one over PostgreSQL."""

from worker.ledger.memory.ledger import MemoryLedger

__all__ = ["MemoryLedger"]
