"""The ledger's tables, constraints and indexes, as SQLAlchemy metadata; migrations and cold queries are made of it."""

from sqlalchemy import (
    REAL,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    DateTime,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Numeric,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from schemas.access import Role
from schemas.states import FINAL_STATES, HeldReason, JobState, Outcome, Step

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "fk": "%(table_name)s_%(column_0_name)s_fkey",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s",
    }
)

NOW = text("nightdesk_now()")


def _by_rows(threshold: int) -> dict[str, str]:
    """Vacuum and statistics after so many changed rows, however many the table has."""
    return {
        f"autovacuum_{what}_{unit}": value
        for what in ("vacuum", "analyze")
        for unit, value in (("scale_factor", "0"), ("threshold", str(threshold)))
    }


# Storage settings; their reasons stand beside them in the migration.
_APPENDED = {"autovacuum_vacuum_insert_scale_factor": "0.05"}
_LARGE = {**_APPENDED, "toast.autovacuum_vacuum_scale_factor": "0.05"}
_JOB = {"fillfactor": "80", **_by_rows(20_000)}
_ATTEMPT = _by_rows(50_000)
_BATCH = {"fillfactor": "50", "autovacuum_vacuum_scale_factor": "0.02", "autovacuum_vacuum_threshold": "500"}
_BUSY = {"fillfactor": "50"}
_HINT = {"autovacuum_vacuum_scale_factor": "0", "autovacuum_vacuum_threshold": "10000"}
_COUNT = {"autovacuum_vacuum_scale_factor": "0", "autovacuum_vacuum_threshold": "5000"}
_MONEY = Numeric(14, 8)
_INSTANT = DateTime(timezone=True)


def _one_of(column: str, values: list[str]) -> str:
    return f"{column} IN ({', '.join(repr(value) for value in sorted(values))})"


_FINAL = _one_of("state", [state.value for state in FINAL_STATES])

# The oldest revision whose code may still work on this schema: one row, which a migration raises that takes something away.
schema_floor = Table("schema_floor", metadata, Column("revision", String(32), primary_key=True))

batch = Table(
    "batch",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("key", Text),
    Column("name", Text),
    Column("tenant", Text, nullable=False),
    Column("created_at", _INSTANT, nullable=False, server_default=NOW),
    Column("not_before", _INSTANT),
    # Hours in which its jobs may be called, in one spelling, with their present or next beginning and end, and the beginning after that.
    Column("call_window", Text),
    Column("opens_at", _INSTANT),
    Column("closes_at", _INSTANT),
    Column("reopens_at", _INSTANT),
    Column("deadline", _INSTANT),
    Column("max_cost_usd", _MONEY),
    Column("reserved_usd", _MONEY, nullable=False, server_default=text("0")),
    Column("spent_usd", _MONEY, nullable=False, server_default=text("0")),
    # The part of spent_usd whose attempts are no more: of jobs that were pruned.
    Column("pruned_usd", _MONEY, nullable=False, server_default=text("0")),
    Column("pruned_unpriced", Boolean, nullable=False, server_default=text("false")),
    # The least that a job needs which waits for money; NULL: none waits.
    Column("least_needed_usd", _MONEY),
    # The position from which on jobs that did not begin are still to be held; NULL: none.
    Column("hold_from", Integer),
    Column("paused", Boolean, nullable=False, server_default=text("false")),
    Column("cancelled_at", _INSTANT),
    # The person who cancels, until the last page is done: a lease that meets a job of the batch cancels it, too.
    Column("cancelling_by", Text),
    Column("defaults", JSONB, nullable=False, server_default=text("'{}'")),
    # Made before the submission; NULL: none was asked for.
    Column("estimate", JSONB),
    # SHA-256 of the first jobs and of all, with what decides their answers; NULL: not to be found by its content.
    Column("content_head", LargeBinary),
    Column("content_hash", LargeBinary),
    # SHA-256 of what decides the answers of its first jobs: unchanged jobs of another input may take those.
    Column("content_basis", LargeBinary),
    # The key of the HTTP service that it came with.
    Column("key_id", Uuid),
    Column("erased_at", _INSTANT),
    CheckConstraint("reserved_usd >= 0", name="reserved_not_negative"),
    Index("batch_key", "tenant", "key", unique=True, postgresql_where=text("key IS NOT NULL")),
    Index(
        "batch_content",
        "tenant",
        "content_head",
        "content_hash",
        unique=True,
        postgresql_where=text("content_head IS NOT NULL"),
    ),
    Index(
        "batch_content_basis",
        "tenant",
        "content_basis",
        text("created_at DESC"),
        postgresql_where=text("content_head IS NOT NULL"),
    ),
    Index("batch_newest", text("created_at DESC")),
    Index("batch_of_tenant", "tenant", text("created_at DESC"), text("id DESC")),
    Index("batch_closes", "closes_at", postgresql_where=text("closes_at IS NOT NULL")),
    Index("batch_short", "id", postgresql_where=text("least_needed_usd IS NOT NULL")),
    postgresql_with=_BATCH,
)

# The request that tells the receiver of a batch that it is settled.
callback = Table(
    "callback",
    metadata,
    Column("batch_id", Uuid, ForeignKey("batch.id", ondelete="CASCADE"), primary_key=True),
    Column("url", Text, nullable=False),
    Column("tries", Integer, nullable=False, server_default=text("0")),
    Column("next_at", _INSTANT, nullable=False, server_default=NOW),
    Column("settled_at", _INSTANT),
    # Without an error it was delivered, with one it is given up.
    Column("ended_at", _INSTANT),
    Column("last_error", Text),
    Index("callback_due", "next_at", postgresql_where=text("ended_at IS NULL")),
)

# What was handed in with a batch and is no job of it. It may quote what stood there, and goes when the batch is erased.
input_line = Table(
    "input_line",
    metadata,
    Column("batch_id", Uuid, ForeignKey("batch.id", ondelete="CASCADE"), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    # Known from before; null: refused. The job may be pruned by now, so no foreign key.
    Column("job_id", Uuid),
    Column("place", Text),
    Column("field", Text),
    Column("message", Text),
    Column("custom_id", Text),
    CheckConstraint("(job_id IS NULL) = (message IS NOT NULL)", name="refused_or_repeated"),
)

job = Table(
    "job",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("batch_id", Uuid, ForeignKey("batch.id"), nullable=False),
    Column("position", Integer, nullable=False),
    Column("custom_id", Text),
    Column("message_id", Text),
    Column("tenant", Text, nullable=False),
    # That submitted it over HTTP: its budgets are looked up where calls are opened.
    Column("key_id", Uuid),
    Column("idempotency_key", Text),
    Column("state", Text, nullable=False),
    Column("step", Text, nullable=False),
    Column("run", SmallInteger, nullable=False, server_default=text("1")),
    Column("round", SmallInteger, nullable=False, server_default=text("0")),
    Column("held_reason", Text),
    # Workers lost over this step and round: the job may be the cause.
    Column("rescues", SmallInteger, nullable=False, server_default=text("0")),
    # Of the stored request, so that a lease adds up what it brings without reading it.
    Column("request_bytes", Integer, nullable=False),
    # What it wants reserved: of a job that waits for money, or was let go and has not begun.
    Column("needs_usd", _MONEY),
    # Budgets of its tenant that refused it last: after their period it waits for the next one.
    Column("short_of", ARRAY(Uuid)),
    Column("priority", SmallInteger, nullable=False, server_default=text("0")),
    Column("scheduled_at", _INSTANT, nullable=False),
    Column("available_at", _INSTANT),
    Column("limited_ms", Double),
    Column("deadline", _INSTANT),
    Column("hinted_at", _INSTANT),
    Column("lease_token", Uuid),
    Column("lease_until", _INSTANT),
    Column("worker", Text),
    Column("created_at", _INSTANT, nullable=False, server_default=NOW),
    Column("started_at", _INSTANT),
    Column("finished_at", _INSTANT),
    Column("outcome", Text),
    Column("cost_usd", _MONEY, nullable=False, server_default=text("0")),
    Column("result_published_at", _INSTANT),
    Column("errors", JSONB),
    # Of a job that failed, so that the causes of a batch are counted without its records.
    Column("failure_kind", Text),
    # Of the answer, for the queue of reviewers: the record that has it is not read for that.
    Column("standing", REAL),
    Column("correction", JSONB),
    Column("recheck", JSONB),
    # The job that this one asks again. Names one that may be pruned by now, so no foreign key.
    Column("replay_of", Uuid),
    Column("erased_at", _INSTANT),
    UniqueConstraint("batch_id", "position"),
    CheckConstraint(_one_of("state", [s.value for s in JobState]), name="state_known"),
    CheckConstraint(_one_of("step", [s.value for s in Step]), name="step_known"),
    CheckConstraint(f"({_FINAL}) = (finished_at IS NOT NULL)", name="final_iff_finished"),
    CheckConstraint("(state = 'completed') = (outcome IS NOT NULL)", name="outcome_iff_completed"),
    CheckConstraint("outcome IS NULL OR " + _one_of("outcome", [o.value for o in Outcome]), name="outcome_known"),
    CheckConstraint(
        "(state = 'running') = (lease_token IS NOT NULL) AND (lease_token IS NULL) = (lease_until IS NULL)",
        name="lease_iff_running",
    ),
    CheckConstraint("held_reason IS NULL OR state = 'scheduled'", name="held_only_scheduled"),
    CheckConstraint(
        "held_reason IS NULL OR " + _one_of("held_reason", [r.value for r in HeldReason]), name="held_reason_known"
    ),
    CheckConstraint("result_published_at IS NULL OR finished_at IS NOT NULL", name="published_only_final"),
    # What was erased can't run again: a run has no end.
    CheckConstraint("erased_at IS NULL OR finished_at IS NOT NULL", name="erased_only_final"),
    Index("job_custom_id", "batch_id", "custom_id", unique=True, postgresql_where=text("custom_id IS NOT NULL")),
    # The message id of a job without one is its own id: so it is what its record says, and no other job may take it.
    Index(
        "job_message_id",
        "tenant",
        text("coalesce(message_id, id::text)"),
        unique=True,
        postgresql_where=text("erased_at IS NULL"),
    ),
    Index(
        "job_idempotency_key",
        "tenant",
        "idempotency_key",
        unique=True,
        postgresql_where=text("idempotency_key IS NOT NULL"),
    ),
    # One index serves hints and idle claims: priorities and tenants are skipped through, a tenant's jobs are in working order.
    Index(
        "job_available",
        "step",
        text("priority DESC"),
        "tenant",
        text("deadline ASC NULLS LAST"),
        "id",
        postgresql_where=text("state = 'available'"),
    ),
    Index("job_due", "scheduled_at", postgresql_where=text("state = 'scheduled' AND held_reason IS NULL")),
    # In this order, so that a release walks through one reason's jobs, of one batch or of all.
    Index("job_held", "held_reason", "batch_id", "id", postgresql_where=text("held_reason IS NOT NULL")),
    # Empty while no budget is used up.
    Index(
        "job_needs",
        "batch_id",
        "held_reason",
        "needs_usd",
        "id",
        postgresql_where=text("needs_usd IS NOT NULL AND finished_at IS NULL"),
    ),
    Index(
        "job_needs_of_key",
        "key_id",
        "held_reason",
        "needs_usd",
        "id",
        postgresql_where=text("key_id IS NOT NULL AND needs_usd IS NOT NULL AND finished_at IS NULL"),
    ),
    Index(
        "job_needs_of_tenant",
        "tenant",
        "held_reason",
        "needs_usd",
        "id",
        postgresql_where=text("needs_usd IS NOT NULL AND finished_at IS NULL"),
    ),
    # Without lease_until, so that a renewal changes no index and stays on its page (HOT).
    Index("job_replay_of", "replay_of", postgresql_where=text("replay_of IS NOT NULL")),
    Index("job_running", "worker", postgresql_where=text("state = 'running'")),
    # For the caps on jobs that are not final; a job that is never parked at a provider is never in it.
    Index("job_pending", "tenant", "batch_id", postgresql_where=text("state = 'pending'")),
    Index("job_deadline", "deadline", postgresql_where=text("deadline IS NOT NULL AND finished_at IS NULL")),
    Index(
        "job_unpublished",
        "finished_at",
        postgresql_where=text("finished_at IS NOT NULL AND result_published_at IS NULL"),
    ),
    # The kinds of error of a batch are summed up from this index alone.
    Index("job_errors", "batch_id", postgresql_include=["errors"], postgresql_where=text("errors IS NOT NULL")),
    Index("job_doubt", "batch_id", "standing", "id", postgresql_where=text("standing IS NOT NULL")),
    Index("job_failures", "batch_id", "failure_kind", "position", postgresql_where=text("failure_kind IS NOT NULL")),
    # In the order in which results are published again after Redis lost its data. A group that ends together shares a key.
    Index("job_finished", "finished_at", postgresql_where=text("finished_at IS NOT NULL")),
    postgresql_with=_JOB,
)

# What dispatch has hinted, beside the jobs: noting it writes no version of a job, and no WAL.
job_hint = Table(
    "job_hint",
    metadata,
    Column("job_id", Uuid, primary_key=True),
    Column("hinted_at", _INSTANT, nullable=False),
    prefixes=["UNLOGGED"],
    postgresql_with=_HINT,
)

# When each tenant's last job had its turn, in virtual time. Its loss in a crash costs no more than one round.
tenant_turn = Table(
    "tenant_turn",
    metadata,
    # A step whose jobs are leased, or hinted.
    Column("line", Text, primary_key=True),
    Column("priority", SmallInteger, primary_key=True),
    Column("tenant", Text, primary_key=True),
    Column("turn", Double, nullable=False),
    prefixes=["UNLOGGED"],
    postgresql_with={"fillfactor": "50"},
)

# Number of jobs of each batch by what its status shows: the sum of the rows of a key. Triggers on job append changes.
job_count = Table(
    "job_count",
    metadata,
    Column("batch_id", Uuid, nullable=False),
    Column("state", Text, nullable=False),
    Column("outcome", Text),
    Column("held_reason", Text),
    Column("unpublished", Boolean, nullable=False),
    Column("jobs", BigInteger, nullable=False),
    # Written by dispatch in the place of the changes of its batch.
    Column("folded", Boolean, nullable=False, server_default=text("false")),
    Index("job_count_of_batch", "folded", "batch_id"),
    postgresql_with=_COUNT,
)

job_request = Table(
    "job_request",
    metadata,
    Column("job_id", Uuid, ForeignKey("job.id", ondelete="CASCADE"), primary_key=True),
    # Where sources are packed, their number in their place, and of the config what SQL reads or what is no default.
    Column("head", JSONB, nullable=False),
    Column("request_hash", LargeBinary, nullable=False),
    Column("contract_version", SmallInteger, nullable=False),
    # Of a replay: the prompt that is sent again as it was.
    Column("prompt", JSONB),
    # A frame of zstandard with the JSON of the sources and the config.
    Column("frame", LargeBinary),
    postgresql_with=_LARGE,
)

attempt = Table(
    "attempt",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("job_id", Uuid, ForeignKey("job.id", ondelete="CASCADE"), nullable=False),
    Column("run", SmallInteger, nullable=False),
    Column("round", SmallInteger, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("number", SmallInteger, nullable=False),
    Column("lane", Text, nullable=False),
    Column("provider", Text, nullable=False),
    Column("model", Text),
    Column("request_hash", LargeBinary, nullable=False),
    Column("lease_token", Uuid, nullable=False),
    Column("opened_at", _INSTANT, nullable=False, server_default=NOW),
    Column("closed_at", _INSTANT),
    Column("outcome", Text),
    Column("spent", Boolean, nullable=False, server_default=text("false")),
    Column("provider_request_id", Text),
    Column("usage", JSONB),
    # Null: the price is unknown.
    Column("reserved_usd", _MONEY, server_default=text("0")),
    Column("cost_usd", _MONEY),
    Column("timing_ms", JSONB),
    Column("failure", JSONB),
    Column("provider_batch_id", Uuid),
    # Only of calls whose answer may be shared: what makes them identical.
    Column("share_key", LargeBinary),
    # The attempt whose answer was taken, in place of a call. Names one that may be pruned by now, so no foreign key.
    Column("shared_from", Uuid),
    # The periods of its tenant's budgets in which it is paid for; null where the tenant has none.
    Column("budget_periods", ARRAY(Uuid)),
    CheckConstraint("(closed_at IS NULL) = (outcome IS NULL)", name="closed_iff_outcome"),
    CheckConstraint("outcome IS NULL OR outcome IN ('ok', 'unknown') OR outcome LIKE 'error:%'", name="outcome_known"),
    CheckConstraint("purpose IN ('generate', 'reask', 'correct', 'escalate', 'judge')", name="purpose_known"),
    CheckConstraint(
        "shared_from IS NULL OR (outcome = 'ok' AND purpose = 'generate' AND cost_usd = 0 AND reserved_usd = 0 "
        "AND usage IS NULL AND share_key IS NULL)",
        name="shared_is_no_call",
    ),
    Index("attempt_of_job", "job_id", "run"),
    # Those inside provider batches stay open for hours, and a duty looks at the others every second.
    Index("attempt_open", "opened_at", postgresql_where=text("closed_at IS NULL AND provider_batch_id IS NULL")),
    Index("attempt_unknown", "job_id", postgresql_where=text("outcome = 'unknown'")),
    # Empty where every model has a price.
    Index("attempt_unpriced", "job_id", postgresql_where=text("cost_usd IS NULL AND closed_at IS NOT NULL")),
    # Empty, and never written to, while no tenant shares answers.
    Index("attempt_share_key", "share_key", postgresql_where=text("share_key IS NOT NULL")),
    postgresql_with=_ATTEMPT,
)

completion = Table(
    "completion",
    metadata,
    Column("attempt_id", Uuid, ForeignKey("attempt.id", ondelete="CASCADE"), primary_key=True),
    Column("job_id", Uuid, nullable=False),
    Column("run", SmallInteger, nullable=False),
    Column("round", SmallInteger, nullable=False),
    Column("purpose", Text, nullable=False),
    Column("won", Boolean, nullable=False),
    Column("stored_at", _INSTANT, nullable=False, server_default=NOW),
    # Null where it is packed.
    Column("raw", LargeBinary),
    Column("finish_reason", Text, nullable=False),
    Column("parsed", JSONB, nullable=False),
    Column("prompt", JSONB, nullable=False),
    # A frame of zstandard with the raw answer, its text and its prompt.
    Column("frame", LargeBinary),
    # The database itself keeps "the first completion wins".
    Index("completion_winner", "job_id", "run", "round", "purpose", unique=True, postgresql_where=text("won")),
    # As good as empty: answers that came too late, and parts of broken ones.
    Index("completion_beside", "job_id", postgresql_where=text("NOT won")),
    postgresql_with=_LARGE,
)

judge_verdict = Table(
    "judge_verdict",
    metadata,
    Column("batch_id", Uuid, primary_key=True),
    Column("key", LargeBinary, primary_key=True),
    # What a judge said stands in its answer alone, and goes with it: erased or pruned, nothing is remembered.
    Column("attempt_id", Uuid, ForeignKey("completion.attempt_id", ondelete="CASCADE"), nullable=False),
    Column("number", SmallInteger, nullable=False),
    Index("judge_verdict_of_attempt", "attempt_id"),
)

generation_record = Table(
    "generation_record",
    metadata,
    Column("job_id", Uuid, ForeignKey("job.id", ondelete="CASCADE"), primary_key=True),
    Column("run", SmallInteger, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("message_id", Text, nullable=False),
    Column("retrieval_record_id", Text),
    Column("trace_id", Text),
    Column("request_id", Text),
    Column("contract_version", SmallInteger, nullable=False),
    Column("prompt_name", Text),
    Column("prompt_version", Text),
    Column("prompt_hash", Text),
    Column("model_provider", Text),
    Column("model_name", Text),
    Column("messages_snapshot", JSONB),
    Column("provider_snapshot", JSONB),
    Column("output_raw", Text),
    Column("output_structured", JSONB),
    Column("answer", Text, nullable=False),
    Column("output_format", Text, nullable=False),
    Column("citations", JSONB),
    Column("grounding", JSONB),
    Column("quality", JSONB, nullable=False),
    Column("status", Text, nullable=False),
    Column("error_message", Text),
    Column("failure", JSONB),
    Column("usage", JSONB),
    Column("timing_ms", JSONB, nullable=False),
    Column("created_at", _INSTANT, nullable=False, server_default=NOW),
    Column("canonical", JSONB),
    Column("replay_of", Uuid),
    Column("asks", JSONB),
    # The call of its answer, which holds what the record would repeat.
    Column("attempt_id", Uuid),
    # A frame of zstandard with citations, claims, values, quality and the canonical answer.
    Column("frame", LargeBinary),
    CheckConstraint("status IN ('success', 'partial', 'failed')", name="status_known"),
    postgresql_with=_LARGE,
)

# The labels of people; a person has one on an answer or a claim of it.
label = Table(
    "label",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("job_id", Uuid, ForeignKey("job.id", ondelete="CASCADE"), nullable=False),
    Column("run", SmallInteger, nullable=False),
    Column("claim", SmallInteger),
    Column("verdict", Text, nullable=False),
    Column("note", Text),
    Column("actor", Text, nullable=False),
    Column("at", _INSTANT, nullable=False, server_default=NOW),
    CheckConstraint("verdict IN ('contradicted', 'not_checkable', 'supported', 'unsupported')", name="verdict_known"),
    Index("label_of_person", "job_id", "run", text("coalesce(claim, 0)"), "actor", unique=True),
)

job_event = Table(
    "job_event",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("job_id", Uuid, ForeignKey("job.id", ondelete="CASCADE"), nullable=False),
    Column("run", SmallInteger, nullable=False),
    Column("at", _INSTANT, nullable=False, server_default=NOW),
    Column("kind", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("detail", JSONB, nullable=False, server_default=text("'{}'")),
    Index("job_event_of_job", "job_id", "id"),
    postgresql_with=_APPENDED,
)

provider_batch = Table(
    "provider_batch",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("provider", Text, nullable=False),
    Column("model", Text),
    Column("lane", Text, nullable=False),
    Column("remote_id", Text),
    Column("state", Text, nullable=False),
    Column("calls", Integer, nullable=False),
    Column("body_bytes", BigInteger, nullable=False, server_default=text("0")),
    Column("intended_at", _INSTANT, nullable=False, server_default=NOW),
    Column("created_at", _INSTANT),
    # The earliest deadline of its jobs that may be moved to another lane.
    Column("due_at", _INSTANT),
    # When it was to be cancelled for that deadline; cancelled_at: when the provider was asked to.
    Column("spilled_at", _INSTANT),
    Column("cancelled_at", _INSTANT),
    Column("ended_at", _INSTANT),
    Column("looks", Integer, nullable=False, server_default=text("0")),
    # When some worker looks after it next; in the future while one does.
    Column("next_at", _INSTANT, nullable=False),
    Column("detail", JSONB, nullable=False, server_default=text("'{}'")),
    CheckConstraint("(remote_id IS NULL) = (created_at IS NULL)", name="remote_iff_created"),
    CheckConstraint("state IN ('intended', 'open', 'collected', 'refused', 'abandoned')", name="state_known"),
    CheckConstraint("(state IN ('intended', 'open')) = (ended_at IS NULL)", name="ended_iff_over"),
    Index("provider_batch_open", "next_at", postgresql_where=text("lane = 'provider_batch' AND ended_at IS NULL")),
    # Of responses in the background there is one a call.
    Index(
        "provider_batch_response_open",
        "next_at",
        postgresql_where=text("lane <> 'provider_batch' AND ended_at IS NULL"),
    ),
    Index("provider_batch_of_model", "provider", "model", "lane", "state", text("intended_at DESC")),
    Index(
        "provider_batch_remote", "provider", "remote_id", unique=True, postgresql_where=text("remote_id IS NOT NULL")
    ),
)

# The calls of pending jobs, until their provider batch is collected.
provider_batch_call = Table(
    "provider_batch_call",
    metadata,
    Column("attempt_id", Uuid, ForeignKey("attempt.id", ondelete="CASCADE"), primary_key=True),
    Column("job_id", Uuid, nullable=False),
    Column("provider_batch_id", Uuid),
    Column("provider", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("parked_at", _INSTANT, nullable=False, server_default=NOW),
    Column("due_at", _INSTANT),
    # To be taken back: it is not sent any more, and its job goes on by another lane.
    Column("spilled", Boolean, nullable=False, server_default=text("false")),
    Column("body_bytes", Integer, nullable=False),
    # Emptied once the provider has it.
    Column("body", LargeBinary),
    Column("call", JSONB, nullable=False),
    Index(
        "provider_batch_call_of_batch",
        "provider_batch_id",
        "attempt_id",
        postgresql_where=text("provider_batch_id IS NOT NULL"),
    ),
    Index(
        "provider_batch_call_waiting",
        "provider",
        "model",
        "attempt_id",
        postgresql_where=text("provider_batch_id IS NULL"),
    ),
    Index("provider_batch_call_of_job", "job_id"),
)

worker = Table(
    "worker",
    metadata,
    Column("name", Text, primary_key=True),
    Column("seen_at", _INSTANT, nullable=False, server_default=NOW),
    Column("steps", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    # Providers to which it gets no connection: provider, since_s (Unix time) and why.
    Column("unreachable", JSONB, nullable=False, server_default=text("'[]'")),
    # Who answers there: provider, models, and which keys are there, as worker_report has it.
    Column("report", JSONB),
    postgresql_with=_BUSY,
)

# Files that callers upload for a batch to come. Their content goes when the batch is made; errors tell why none was.
upload = Table(
    "upload",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("filename", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("created_at", _INSTANT, nullable=False, server_default=NOW),
    Column("submitted_at", _INSTANT),
    Column("window_s", Integer),
    Column("metadata", JSONB),
    Column("errors", JSONB),
    Column("lines", Integer),
    Column("batch_id", Uuid),
    Column("ended_at", _INSTANT),
    Column("output_bytes", BigInteger),
    Column("error_bytes", BigInteger),
    CheckConstraint(
        "(submitted_at IS NULL AND batch_id IS NULL AND errors IS NULL)"
        " OR (submitted_at IS NOT NULL AND (batch_id IS NULL) = (errors IS NOT NULL))",
        name="batch_or_errors",
    ),
    Index("upload_of_tenant", "tenant", text("created_at DESC"), text("id DESC")),
    Index("upload_waiting", "created_at", postgresql_where=text("submitted_at IS NULL")),
    Index("upload_of_batch", "batch_id", postgresql_where=text("batch_id IS NOT NULL")),
)

upload_piece = Table(
    "upload_piece",
    metadata,
    Column("upload_id", Uuid, ForeignKey("upload.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("content", LargeBinary, nullable=False),
)

# Keys of callers over HTTP, by their hashes.
api_key = Table(
    "api_key",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("name", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("requests_per_second", Integer),
    Column("requests_per_minute", Integer),
    Column("jobs_waiting", Integer),
    Column("jobs_per_minute", Integer),
    Column("jobs_per_day", Integer),
    Column("hash", LargeBinary, nullable=False),
    Column("created_at", _INSTANT, nullable=False, server_default=NOW),
    Column("created_by", Text, nullable=False),
    Column("revoked_at", _INSTANT),
    Column("revoked_by", Text),
    Column("expires_at", _INSTANT),
    Column("last_used_at", _INSTANT),
    Column("previous_hash", LargeBinary),
    Column("previous_until", _INSTANT),
    Column("previous_used_at", _INSTANT),
    CheckConstraint(_one_of("role", [role.value for role in Role]), name="role_known"),
    Index("api_key_hash", "hash", unique=True),
    Index("api_key_previous_hash", "previous_hash", unique=True, postgresql_where=text("previous_hash IS NOT NULL")),
    Index("api_key_name", "name", unique=True, postgresql_where=text("revoked_at IS NULL")),
)

# Jobs that a key with limits submitted by day, and in the last minute in which it did.
api_key_use = Table(
    "api_key_use",
    metadata,
    Column("key_id", Uuid, ForeignKey("api_key.id"), primary_key=True),
    Column("day", Date, primary_key=True),
    Column("jobs", Integer, nullable=False),
    Column("minute", _INSTANT, nullable=False),
    Column("minute_jobs", Integer, nullable=False),
)

tenant_budget = Table(
    "tenant_budget",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("tenant", Text, nullable=False),
    # Of one key of the tenant; NULL: of all its jobs.
    Column("key_id", Uuid, ForeignKey("api_key.id")),
    # A day or recurring hours of a time zone, in one spelling; of a key also "total".
    Column("period", Text, nullable=False),
    Column("max_cost_usd", _MONEY, nullable=False),
    Column("created_at", _INSTANT, nullable=False, server_default=NOW),
    Column("changed_by", Text, nullable=False),
    UniqueConstraint("tenant", "key_id", "period", postgresql_nulls_not_distinct=True),
    CheckConstraint("max_cost_usd >= 0", name="not_negative"),
)

budget_period = Table(
    "budget_period",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("budget_id", Uuid, ForeignKey("tenant_budget.id", ondelete="CASCADE"), nullable=False),
    Column("tenant", Text, nullable=False),
    Column("key_id", Uuid),
    Column("begins_at", _INSTANT, nullable=False),
    Column("ends_at", _INSTANT, nullable=False),
    # Not over yet, or the last one that is known: so a budget is never without a period.
    Column("live", Boolean, nullable=False, server_default=text("true")),
    # What it refused waits for the next one.
    Column("short", Boolean, nullable=False, server_default=text("false")),
    # Beside its sums, so that the one row that a call locks says what is left.
    Column("max_cost_usd", _MONEY, nullable=False),
    Column("reserved_usd", _MONEY, nullable=False, server_default=text("0")),
    Column("spent_usd", _MONEY, nullable=False, server_default=text("0")),
    UniqueConstraint("budget_id", "begins_at"),
    CheckConstraint("reserved_usd >= 0", name="reserved_not_negative"),
    Index("budget_period_live", "tenant", "key_id", postgresql_where=text("live")),
    postgresql_with=_BATCH,
)

viewer_session = Table(
    "viewer_session",
    metadata,
    Column("hash", LargeBinary, primary_key=True),
    Column("key_hash", LargeBinary, nullable=False),
    Column("expires_at", _INSTANT, nullable=False),
    Index("viewer_session_end", "expires_at"),
)

lane_pause = Table(
    "lane_pause",
    metadata,
    Column("provider", Text, primary_key=True),
    Column("lane", Text, primary_key=True),
    # Empty: every model of the provider.
    Column("model", Text, primary_key=True, server_default=text("''")),
    Column("paused_at", _INSTANT, nullable=False, server_default=NOW),
    Column("kind", Text, nullable=False),
    Column("why", Text, nullable=False),
)

# One row: who leads the duties, and how far slow ones are.
dispatch = Table(
    "dispatch",
    metadata,
    Column("id", SmallInteger, primary_key=True, autoincrement=False, server_default=text("1")),
    Column("leader", Text),
    Column("leads_until", _INSTANT),
    Column("leader_has_broker", Boolean, nullable=False, server_default=text("true")),
    # So many answers wait for their check that no more are generated.
    Column("check_behind", Boolean, nullable=False, server_default=text("false")),
    # Hints from before are gone with Redis's data.
    Column("hints_lost_at", _INSTANT),
    # Results are published again in the order of their end; null until: there is nothing to publish again.
    Column("republish_after", _INSTANT),
    Column("republish_after_id", Uuid),
    Column("republish_until", _INSTANT),
    Column("republished", BigInteger, nullable=False, server_default=text("0")),
    CheckConstraint("id = 1", name="single_row"),
)

# Counters and buckets of all workers together; each adds its own every few seconds.
metric_total = Table(
    "metric_total",
    metadata,
    Column("name", Text, primary_key=True),
    Column("labels", ARRAY(Text), primary_key=True),
    Column("value", Double, nullable=False),
    Column("changed_at", _INSTANT, nullable=False, server_default=NOW),
    postgresql_with=_BUSY,
)

# No foreign key: of a job whose row is damaged this must still be writable.
quarantine = Table(
    "quarantine",
    metadata,
    Column("job_id", Uuid, primary_key=True),
    Column("duty", Text, primary_key=True),
    Column("reason", Text, nullable=False),
    Column("tries", SmallInteger, nullable=False, server_default=text("1")),
    Column("since", _INSTANT, nullable=False, server_default=NOW),
    Column("until", _INSTANT, nullable=False),
)

# One row: the id that the spools of workers are named by, and the PostgreSQL on which the ledger was last seen. Another one may
# have lost the last commits; null: none was seen yet.
ledger = Table(
    "ledger",
    metadata,
    Column("id", Uuid, primary_key=True, server_default=text("gen_random_uuid()")),
    Column("only_row", Boolean, nullable=False, unique=True, server_default=text("true")),
    Column("system_identifier", BigInteger),
    Column("timeline", Integer),
    # When this PostgreSQL took the place of another one; null: it is the first.
    Column("seen_at", _INSTANT),
    CheckConstraint("only_row", name="single_row"),
)
