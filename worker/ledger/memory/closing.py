"""Ends jobs of the in-memory ledger without a worker: cancelled or expired, with the least record."""

from collections.abc import Sequence
from uuid import UUID

from schemas import CONTRACT_VERSION
from schemas.failure import Failure, FailureKind
from schemas.record import GenerationRecord, RecordStatus
from schemas.states import JobState
from worker.ledger.memory.tables import JobRow, MemoryTables


class MemoryClosing(MemoryTables):
    """The part that cancelling and expiring share."""

    def _cancel(self, jobs: Sequence[JobRow], actor: str) -> list[UUID]:
        active = [job for job in jobs if job.active]
        for job in active:
            failure = Failure(kind=FailureKind.CANCELLED, message=f"cancelled by {actor}")
            self._end(job, JobState.CANCELLED, "cancel", failure)
            self._note(job, "cancel", actor)
        return [job.new.id for job in active]

    def _end(self, job: JobRow, state: JobState, verb: str, failure: Failure) -> None:
        """Finish a job without an answer, with the least record."""
        now, request = self._now(), job.request
        self._move(job, state, verb)
        job.records[job.run] = GenerationRecord(
            job_id=job.new.id,
            run=job.run,
            tenant=job.new.tenant,
            message_id=job.message_id,
            retrieval_record_id=request.retrieval_record_id,
            trace_id=request.trace_id,
            request_id=request.request_id,
            contract_version=CONTRACT_VERSION,
            output_format=request.config.output_format,
            status=RecordStatus.FAILED,
            error_message=failure.message,
            failure=failure.model_copy(update={"at": now}),
            created_at=now,
        )
