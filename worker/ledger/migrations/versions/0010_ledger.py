"""The initial schema: all tables, constraints and indexes, and the database's clock."""

from alembic import op

revision = "0010"
down_revision = None
branch_labels = None
depends_on = None
floor = "0010"

CLOCK = """
-- Every time in the ledger comes from this one function, so that tests can move time by replacing its body.
CREATE FUNCTION nightdesk_now() RETURNS timestamptz LANGUAGE sql STABLE AS 'SELECT now()'
"""

TABLES = """
CREATE TABLE schema_floor (
    revision VARCHAR(32) NOT NULL,
    CONSTRAINT schema_floor_pkey PRIMARY KEY (revision)
);

CREATE TABLE batch (
    id UUID NOT NULL,
    key TEXT,
    name TEXT,
    tenant TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT nightdesk_now() NOT NULL,
    not_before TIMESTAMP WITH TIME ZONE,
    call_window TEXT,
    opens_at TIMESTAMP WITH TIME ZONE,
    closes_at TIMESTAMP WITH TIME ZONE,
    reopens_at TIMESTAMP WITH TIME ZONE,
    deadline TIMESTAMP WITH TIME ZONE,
    max_cost_usd NUMERIC(14, 8),
    reserved_usd NUMERIC(14, 8) DEFAULT 0 NOT NULL,
    spent_usd NUMERIC(14, 8) DEFAULT 0 NOT NULL,
    pruned_usd NUMERIC(14, 8) DEFAULT 0 NOT NULL,
    pruned_unpriced BOOLEAN DEFAULT false NOT NULL,
    least_needed_usd NUMERIC(14, 8),
    hold_from INTEGER,
    paused BOOLEAN DEFAULT false NOT NULL,
    cancelled_at TIMESTAMP WITH TIME ZONE,
    cancelling_by TEXT,
    defaults JSONB DEFAULT '{}' NOT NULL,
    content_head BYTEA,
    content_hash BYTEA,
    content_basis BYTEA,
    key_id UUID,
    erased_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT batch_pkey PRIMARY KEY (id),
    CONSTRAINT batch_reserved_not_negative CHECK (reserved_usd >= 0)
);

CREATE UNIQUE INDEX batch_key ON batch (tenant, key) WHERE key IS NOT NULL;

CREATE UNIQUE INDEX batch_content ON batch (tenant, content_head, content_hash) WHERE content_head IS NOT NULL;

CREATE INDEX batch_content_basis ON batch (tenant, content_basis, created_at DESC) WHERE content_head IS NOT NULL;

CREATE INDEX batch_newest ON batch (created_at DESC);

CREATE INDEX batch_of_tenant ON batch (tenant, created_at DESC, id DESC);

CREATE INDEX batch_closes ON batch (closes_at) WHERE closes_at IS NOT NULL;

CREATE INDEX batch_short ON batch (id) WHERE least_needed_usd IS NOT NULL;

CREATE TABLE provider_batch (
    id UUID NOT NULL,
    provider TEXT NOT NULL,
    model TEXT,
    lane TEXT NOT NULL,
    remote_id TEXT,
    state TEXT NOT NULL,
    calls INTEGER NOT NULL,
    body_bytes BIGINT DEFAULT 0 NOT NULL,
    intended_at TIMESTAMP WITH TIME ZONE DEFAULT nightdesk_now() NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE,
    due_at TIMESTAMP WITH TIME ZONE,
    spilled_at TIMESTAMP WITH TIME ZONE,
    cancelled_at TIMESTAMP WITH TIME ZONE,
    ended_at TIMESTAMP WITH TIME ZONE,
    looks INTEGER DEFAULT 0 NOT NULL,
    next_at TIMESTAMP WITH TIME ZONE NOT NULL,
    detail JSONB DEFAULT '{}' NOT NULL,
    CONSTRAINT provider_batch_pkey PRIMARY KEY (id),
    CONSTRAINT provider_batch_remote_iff_created CHECK ((remote_id IS NULL) = (created_at IS NULL)),
    CONSTRAINT provider_batch_state_known CHECK (state IN ('intended', 'open', 'collected', 'refused', 'abandoned')),
    CONSTRAINT provider_batch_ended_iff_over CHECK ((state IN ('intended', 'open')) = (ended_at IS NULL))
);

CREATE INDEX provider_batch_open ON provider_batch (next_at) WHERE lane = 'provider_batch' AND ended_at IS NULL;

CREATE INDEX provider_batch_response_open ON provider_batch (next_at) WHERE lane <> 'provider_batch' AND ended_at IS NULL;

CREATE INDEX provider_batch_of_model ON provider_batch (provider, model, lane, state, intended_at DESC);

CREATE UNIQUE INDEX provider_batch_remote ON provider_batch (provider, remote_id) WHERE remote_id IS NOT NULL;

CREATE TABLE callback (
    batch_id UUID NOT NULL,
    url TEXT NOT NULL,
    tries INTEGER DEFAULT 0 NOT NULL,
    next_at TIMESTAMP WITH TIME ZONE DEFAULT nightdesk_now() NOT NULL,
    settled_at TIMESTAMP WITH TIME ZONE,
    ended_at TIMESTAMP WITH TIME ZONE,
    last_error TEXT,
    CONSTRAINT callback_pkey PRIMARY KEY (batch_id),
    CONSTRAINT callback_batch_id_fkey FOREIGN KEY(batch_id) REFERENCES batch (id) ON DELETE CASCADE
);

CREATE INDEX callback_due ON callback (next_at) WHERE ended_at IS NULL;

CREATE TABLE input_line (
    batch_id UUID NOT NULL,
    position INTEGER NOT NULL,
    job_id UUID,
    place TEXT,
    field TEXT,
    message TEXT,
    custom_id TEXT,
    CONSTRAINT input_line_pkey PRIMARY KEY (batch_id, position),
    CONSTRAINT input_line_refused_or_repeated CHECK ((job_id IS NULL) = (message IS NOT NULL)),
    CONSTRAINT input_line_batch_id_fkey FOREIGN KEY(batch_id) REFERENCES batch (id) ON DELETE CASCADE
);

CREATE TABLE job (
    id UUID NOT NULL,
    batch_id UUID NOT NULL,
    position INTEGER NOT NULL,
    custom_id TEXT,
    message_id TEXT,
    tenant TEXT NOT NULL,
    key_id UUID,
    idempotency_key TEXT,
    state TEXT NOT NULL,
    step TEXT NOT NULL,
    run SMALLINT DEFAULT 1 NOT NULL,
    round SMALLINT DEFAULT 0 NOT NULL,
    held_reason TEXT,
    rescues SMALLINT DEFAULT 0 NOT NULL,
    request_bytes INTEGER NOT NULL,
    needs_usd NUMERIC(14, 8),
    short_of UUID[],
    priority SMALLINT DEFAULT 0 NOT NULL,
    scheduled_at TIMESTAMP WITH TIME ZONE NOT NULL,
    available_at TIMESTAMP WITH TIME ZONE,
    limited_ms DOUBLE PRECISION,
    deadline TIMESTAMP WITH TIME ZONE,
    lease_token UUID,
    lease_until TIMESTAMP WITH TIME ZONE,
    worker TEXT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT nightdesk_now() NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE,
    finished_at TIMESTAMP WITH TIME ZONE,
    outcome TEXT,
    cost_usd NUMERIC(14, 8) DEFAULT 0 NOT NULL,
    result_published_at TIMESTAMP WITH TIME ZONE,
    errors JSONB,
    failure_kind TEXT,
    standing REAL,
    correction JSONB,
    recheck JSONB,
    replay_of UUID,
    erased_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT job_pkey PRIMARY KEY (id),
    CONSTRAINT job_batch_id_position_key UNIQUE (batch_id, position),
    CONSTRAINT job_state_known CHECK (state IN ('available', 'cancelled', 'completed', 'expired', 'failed', 'pending', 'running', 'scheduled')),
    CONSTRAINT job_step_known CHECK (step IN ('check', 'generate', 'local')),
    CONSTRAINT job_final_iff_finished CHECK ((state IN ('cancelled', 'completed', 'expired', 'failed')) = (finished_at IS NOT NULL)),
    CONSTRAINT job_outcome_iff_completed CHECK ((state = 'completed') = (outcome IS NOT NULL)),
    CONSTRAINT job_outcome_known CHECK (outcome IS NULL OR outcome IN ('abstained', 'answered', 'no_evidence', 'partial', 'refused', 'rejected', 'unverified')),
    CONSTRAINT job_lease_iff_running CHECK ((state = 'running') = (lease_token IS NOT NULL) AND (lease_token IS NULL) = (lease_until IS NULL)),
    CONSTRAINT job_held_only_scheduled CHECK (held_reason IS NULL OR state = 'scheduled'),
    CONSTRAINT job_held_reason_known CHECK (held_reason IS NULL OR held_reason IN ('batch_paused', 'budget', 'key_budget', 'lane_paused', 'price_unknown', 'tenant_budget', 'unknown_outcome')),
    CONSTRAINT job_published_only_final CHECK (result_published_at IS NULL OR finished_at IS NOT NULL),
    CONSTRAINT job_erased_only_final CHECK (erased_at IS NULL OR finished_at IS NOT NULL),
    CONSTRAINT job_batch_id_fkey FOREIGN KEY(batch_id) REFERENCES batch (id)
);

CREATE INDEX job_available ON job (step, priority DESC, tenant, deadline ASC NULLS LAST, id) WHERE state = 'available';

CREATE UNIQUE INDEX job_custom_id ON job (batch_id, custom_id) WHERE custom_id IS NOT NULL;

CREATE INDEX job_deadline ON job (deadline) WHERE deadline IS NOT NULL AND finished_at IS NULL;

CREATE INDEX job_due ON job (scheduled_at) WHERE state = 'scheduled' AND held_reason IS NULL;

CREATE INDEX job_errors ON job (batch_id) INCLUDE (errors) WHERE errors IS NOT NULL;

CREATE INDEX job_failures ON job (batch_id, failure_kind, position) WHERE failure_kind IS NOT NULL;

CREATE INDEX job_finished ON job (finished_at) WHERE finished_at IS NOT NULL;

CREATE INDEX job_doubt ON job (batch_id, standing, id) WHERE standing IS NOT NULL;

CREATE INDEX job_held ON job (held_reason, batch_id, id) WHERE held_reason IS NOT NULL;

CREATE UNIQUE INDEX job_idempotency_key ON job (tenant, idempotency_key) WHERE idempotency_key IS NOT NULL;

CREATE UNIQUE INDEX job_message_id ON job (tenant, coalesce(message_id, id::text)) WHERE erased_at IS NULL;

CREATE INDEX job_needs ON job (batch_id, held_reason, needs_usd, id) WHERE needs_usd IS NOT NULL AND finished_at IS NULL;

CREATE INDEX job_needs_of_tenant ON job (tenant, held_reason, needs_usd, id) WHERE needs_usd IS NOT NULL AND finished_at IS NULL;

CREATE INDEX job_needs_of_key ON job (key_id, held_reason, needs_usd, id) WHERE key_id IS NOT NULL AND needs_usd IS NOT NULL AND finished_at IS NULL;

CREATE INDEX job_pending ON job (tenant, batch_id) WHERE state = 'pending';

CREATE INDEX job_replay_of ON job (replay_of) WHERE replay_of IS NOT NULL;

CREATE INDEX job_running ON job (worker) WHERE state = 'running';

CREATE INDEX job_unpublished ON job (finished_at) WHERE finished_at IS NOT NULL AND result_published_at IS NULL;

CREATE TABLE job_count (
    batch_id UUID NOT NULL,
    state TEXT NOT NULL,
    outcome TEXT,
    held_reason TEXT,
    unpublished BOOLEAN NOT NULL,
    jobs BIGINT NOT NULL,
    folded BOOLEAN DEFAULT false NOT NULL
);

CREATE INDEX job_count_of_batch ON job_count (folded, batch_id);

CREATE TABLE attempt (
    id UUID NOT NULL,
    job_id UUID NOT NULL,
    run SMALLINT NOT NULL,
    round SMALLINT NOT NULL,
    purpose TEXT NOT NULL,
    number SMALLINT NOT NULL,
    lane TEXT NOT NULL,
    provider TEXT NOT NULL,
    model TEXT,
    request_hash BYTEA NOT NULL,
    lease_token UUID NOT NULL,
    opened_at TIMESTAMP WITH TIME ZONE DEFAULT nightdesk_now() NOT NULL,
    closed_at TIMESTAMP WITH TIME ZONE,
    outcome TEXT,
    spent BOOLEAN DEFAULT false NOT NULL,
    provider_request_id TEXT,
    usage JSONB,
    reserved_usd NUMERIC(14, 8) DEFAULT 0,
    cost_usd NUMERIC(14, 8),
    timing_ms JSONB,
    failure JSONB,
    provider_batch_id UUID,
    share_key BYTEA,
    shared_from UUID,
    budget_periods UUID[],
    CONSTRAINT attempt_pkey PRIMARY KEY (id),
    CONSTRAINT attempt_closed_iff_outcome CHECK ((closed_at IS NULL) = (outcome IS NULL)),
    CONSTRAINT attempt_outcome_known CHECK (outcome IS NULL OR outcome IN ('ok', 'unknown') OR outcome LIKE 'error:%'),
    CONSTRAINT attempt_purpose_known CHECK (purpose IN ('generate', 'reask', 'correct', 'escalate', 'judge')),
    CONSTRAINT attempt_shared_is_no_call CHECK (shared_from IS NULL OR (outcome = 'ok' AND purpose = 'generate' AND cost_usd = 0 AND reserved_usd = 0 AND usage IS NULL AND share_key IS NULL)),
    CONSTRAINT attempt_job_id_fkey FOREIGN KEY(job_id) REFERENCES job (id) ON DELETE CASCADE
);

CREATE INDEX attempt_of_job ON attempt (job_id, run);

CREATE INDEX attempt_open ON attempt (opened_at) WHERE closed_at IS NULL AND provider_batch_id IS NULL;

CREATE INDEX attempt_unknown ON attempt (job_id) WHERE outcome = 'unknown';

CREATE INDEX attempt_unpriced ON attempt (job_id) WHERE cost_usd IS NULL AND closed_at IS NOT NULL;

CREATE INDEX attempt_share_key ON attempt (share_key) WHERE share_key IS NOT NULL;

CREATE TABLE provider_batch_call (
    attempt_id UUID NOT NULL,
    job_id UUID NOT NULL,
    provider_batch_id UUID,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    parked_at TIMESTAMP WITH TIME ZONE DEFAULT nightdesk_now() NOT NULL,
    due_at TIMESTAMP WITH TIME ZONE,
    spilled BOOLEAN DEFAULT false NOT NULL,
    body_bytes INTEGER NOT NULL,
    body BYTEA,
    call JSONB NOT NULL,
    CONSTRAINT provider_batch_call_pkey PRIMARY KEY (attempt_id),
    CONSTRAINT provider_batch_call_attempt_id_fkey FOREIGN KEY(attempt_id) REFERENCES attempt (id) ON DELETE CASCADE
);

CREATE INDEX provider_batch_call_of_batch ON provider_batch_call (provider_batch_id, attempt_id) WHERE provider_batch_id IS NOT NULL;

CREATE INDEX provider_batch_call_waiting ON provider_batch_call (provider, model, attempt_id) WHERE provider_batch_id IS NULL;

CREATE INDEX provider_batch_call_of_job ON provider_batch_call (job_id);

CREATE TABLE generation_record (
    job_id UUID NOT NULL,
    run SMALLINT NOT NULL,
    tenant TEXT NOT NULL,
    message_id TEXT NOT NULL,
    retrieval_record_id TEXT,
    trace_id TEXT,
    request_id TEXT,
    contract_version SMALLINT NOT NULL,
    prompt_name TEXT,
    prompt_version TEXT,
    prompt_hash TEXT,
    model_provider TEXT,
    model_name TEXT,
    messages_snapshot JSONB,
    provider_snapshot JSONB,
    output_raw TEXT,
    output_structured JSONB,
    answer TEXT NOT NULL,
    output_format TEXT NOT NULL,
    citations JSONB,
    grounding JSONB,
    quality JSONB NOT NULL,
    status TEXT NOT NULL,
    error_message TEXT,
    failure JSONB,
    usage JSONB,
    timing_ms JSONB NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT nightdesk_now() NOT NULL,
    canonical JSONB,
    replay_of UUID,
    asks JSONB,
    attempt_id UUID,
    frame BYTEA,
    CONSTRAINT generation_record_pkey PRIMARY KEY (job_id, run),
    CONSTRAINT generation_record_status_known CHECK (status IN ('success', 'partial', 'failed')),
    CONSTRAINT generation_record_job_id_fkey FOREIGN KEY(job_id) REFERENCES job (id) ON DELETE CASCADE
);

CREATE TABLE job_event (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    job_id UUID NOT NULL,
    run SMALLINT NOT NULL,
    at TIMESTAMP WITH TIME ZONE DEFAULT nightdesk_now() NOT NULL,
    kind TEXT NOT NULL,
    actor TEXT NOT NULL,
    detail JSONB DEFAULT '{}' NOT NULL,
    CONSTRAINT job_event_pkey PRIMARY KEY (id),
    CONSTRAINT job_event_job_id_fkey FOREIGN KEY(job_id) REFERENCES job (id) ON DELETE CASCADE
);

CREATE INDEX job_event_of_job ON job_event (job_id, id);

CREATE TABLE label (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    job_id UUID NOT NULL,
    run SMALLINT NOT NULL,
    claim SMALLINT,
    verdict TEXT NOT NULL,
    note TEXT,
    actor TEXT NOT NULL,
    at TIMESTAMP WITH TIME ZONE DEFAULT nightdesk_now() NOT NULL,
    CONSTRAINT label_pkey PRIMARY KEY (id),
    CONSTRAINT label_verdict_known CHECK (verdict IN ('contradicted', 'not_checkable', 'supported', 'unsupported')),
    CONSTRAINT label_job_id_fkey FOREIGN KEY(job_id) REFERENCES job (id) ON DELETE CASCADE
);

CREATE UNIQUE INDEX label_of_person ON label (job_id, run, coalesce(claim, 0), actor);

CREATE TABLE job_request (
    job_id UUID NOT NULL,
    head JSONB NOT NULL,
    request_hash BYTEA NOT NULL,
    contract_version SMALLINT NOT NULL,
    prompt JSONB,
    frame BYTEA,
    CONSTRAINT job_request_pkey PRIMARY KEY (job_id),
    CONSTRAINT job_request_job_id_fkey FOREIGN KEY(job_id) REFERENCES job (id) ON DELETE CASCADE
);

CREATE TABLE completion (
    attempt_id UUID NOT NULL,
    job_id UUID NOT NULL,
    run SMALLINT NOT NULL,
    round SMALLINT NOT NULL,
    purpose TEXT NOT NULL,
    won BOOLEAN NOT NULL,
    stored_at TIMESTAMP WITH TIME ZONE DEFAULT nightdesk_now() NOT NULL,
    finish_reason TEXT NOT NULL,
    parsed JSONB NOT NULL,
    prompt JSONB NOT NULL,
    frame BYTEA,
    CONSTRAINT completion_pkey PRIMARY KEY (attempt_id),
    CONSTRAINT completion_attempt_id_fkey FOREIGN KEY(attempt_id) REFERENCES attempt (id) ON DELETE CASCADE
);

CREATE UNIQUE INDEX completion_winner ON completion (job_id, run, round, purpose) WHERE won;

CREATE INDEX completion_beside ON completion (job_id) WHERE NOT won;

CREATE TABLE judge_verdict (
    batch_id UUID NOT NULL,
    key BYTEA NOT NULL,
    attempt_id UUID NOT NULL,
    number SMALLINT NOT NULL,
    CONSTRAINT judge_verdict_pkey PRIMARY KEY (batch_id, key),
    CONSTRAINT judge_verdict_attempt_id_fkey FOREIGN KEY(attempt_id) REFERENCES completion (attempt_id) ON DELETE CASCADE
);

CREATE INDEX judge_verdict_of_attempt ON judge_verdict (attempt_id);

CREATE TABLE worker (
    name TEXT NOT NULL,
    seen_at TIMESTAMP WITH TIME ZONE DEFAULT nightdesk_now() NOT NULL,
    steps TEXT[] DEFAULT '{}' NOT NULL,
    unreachable JSONB DEFAULT '[]' NOT NULL,
    report JSONB,
    CONSTRAINT worker_pkey PRIMARY KEY (name)
);

CREATE TABLE upload (
    id UUID NOT NULL,
    tenant TEXT NOT NULL,
    filename TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT nightdesk_now() NOT NULL,
    submitted_at TIMESTAMP WITH TIME ZONE,
    window_s INTEGER,
    metadata JSONB,
    errors JSONB,
    lines INTEGER,
    batch_id UUID,
    ended_at TIMESTAMP WITH TIME ZONE,
    output_bytes BIGINT,
    error_bytes BIGINT,
    CONSTRAINT upload_pkey PRIMARY KEY (id),
    CONSTRAINT upload_batch_or_errors CHECK ((submitted_at IS NULL AND batch_id IS NULL AND errors IS NULL) OR (submitted_at IS NOT NULL AND (batch_id IS NULL) = (errors IS NOT NULL)))
);

CREATE INDEX upload_of_tenant ON upload (tenant, created_at DESC, id DESC);

CREATE INDEX upload_waiting ON upload (created_at) WHERE submitted_at IS NULL;

CREATE INDEX upload_of_batch ON upload (batch_id) WHERE batch_id IS NOT NULL;

CREATE TABLE upload_piece (
    upload_id UUID NOT NULL,
    number INTEGER NOT NULL,
    content BYTEA NOT NULL,
    CONSTRAINT upload_piece_pkey PRIMARY KEY (upload_id, number),
    CONSTRAINT upload_piece_upload_id_fkey FOREIGN KEY(upload_id) REFERENCES upload (id) ON DELETE CASCADE
);

CREATE TABLE api_key (
    id UUID NOT NULL,
    name TEXT NOT NULL,
    tenant TEXT NOT NULL,
    role TEXT NOT NULL,
    requests_per_second INTEGER,
    requests_per_minute INTEGER,
    jobs_waiting INTEGER,
    jobs_per_minute INTEGER,
    jobs_per_day INTEGER,
    hash BYTEA NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT nightdesk_now() NOT NULL,
    created_by TEXT NOT NULL,
    revoked_at TIMESTAMP WITH TIME ZONE,
    revoked_by TEXT,
    expires_at TIMESTAMP WITH TIME ZONE,
    last_used_at TIMESTAMP WITH TIME ZONE,
    previous_hash BYTEA,
    previous_until TIMESTAMP WITH TIME ZONE,
    previous_used_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT api_key_pkey PRIMARY KEY (id),
    CONSTRAINT api_key_role_known CHECK (role IN ('admin', 'metrics', 'read', 'review', 'submit'))
);

CREATE UNIQUE INDEX api_key_hash ON api_key (hash);

CREATE UNIQUE INDEX api_key_previous_hash ON api_key (previous_hash) WHERE previous_hash IS NOT NULL;

CREATE UNIQUE INDEX api_key_name ON api_key (name) WHERE revoked_at IS NULL;

CREATE TABLE api_key_use (
    key_id UUID NOT NULL,
    day DATE NOT NULL,
    jobs INTEGER NOT NULL,
    minute TIMESTAMP WITH TIME ZONE NOT NULL,
    minute_jobs INTEGER NOT NULL,
    CONSTRAINT api_key_use_pkey PRIMARY KEY (key_id, day),
    CONSTRAINT api_key_use_key_id_fkey FOREIGN KEY(key_id) REFERENCES api_key (id)
);

CREATE TABLE tenant_budget (
    id UUID NOT NULL,
    tenant TEXT NOT NULL,
    key_id UUID,
    period TEXT NOT NULL,
    max_cost_usd NUMERIC(14, 8) NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT nightdesk_now() NOT NULL,
    changed_by TEXT NOT NULL,
    CONSTRAINT tenant_budget_pkey PRIMARY KEY (id),
    CONSTRAINT tenant_budget_tenant_key_id_period_key UNIQUE NULLS NOT DISTINCT (tenant, key_id, period),
    CONSTRAINT tenant_budget_not_negative CHECK (max_cost_usd >= 0),
    CONSTRAINT tenant_budget_key_id_fkey FOREIGN KEY(key_id) REFERENCES api_key (id)
);

CREATE TABLE budget_period (
    id UUID NOT NULL,
    budget_id UUID NOT NULL,
    tenant TEXT NOT NULL,
    key_id UUID,
    begins_at TIMESTAMP WITH TIME ZONE NOT NULL,
    ends_at TIMESTAMP WITH TIME ZONE NOT NULL,
    live BOOLEAN DEFAULT true NOT NULL,
    short BOOLEAN DEFAULT false NOT NULL,
    max_cost_usd NUMERIC(14, 8) NOT NULL,
    reserved_usd NUMERIC(14, 8) DEFAULT 0 NOT NULL,
    spent_usd NUMERIC(14, 8) DEFAULT 0 NOT NULL,
    CONSTRAINT budget_period_pkey PRIMARY KEY (id),
    CONSTRAINT budget_period_budget_id_begins_at_key UNIQUE (budget_id, begins_at),
    CONSTRAINT budget_period_reserved_not_negative CHECK (reserved_usd >= 0),
    CONSTRAINT budget_period_budget_id_fkey FOREIGN KEY(budget_id) REFERENCES tenant_budget (id) ON DELETE CASCADE
);

CREATE INDEX budget_period_live ON budget_period (tenant, key_id) WHERE live;

CREATE TABLE viewer_session (
    hash BYTEA NOT NULL,
    key_hash BYTEA NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT viewer_session_pkey PRIMARY KEY (hash)
);

CREATE INDEX viewer_session_end ON viewer_session (expires_at);

CREATE TABLE lane_pause (
    provider TEXT NOT NULL,
    lane TEXT NOT NULL,
    model TEXT DEFAULT '' NOT NULL,
    paused_at TIMESTAMP WITH TIME ZONE DEFAULT nightdesk_now() NOT NULL,
    kind TEXT NOT NULL,
    why TEXT NOT NULL,
    CONSTRAINT lane_pause_pkey PRIMARY KEY (provider, lane, model)
);

CREATE TABLE dispatch (
    id SMALLINT DEFAULT 1 NOT NULL,
    leader TEXT,
    leads_until TIMESTAMP WITH TIME ZONE,
    leader_has_broker BOOLEAN DEFAULT true NOT NULL,
    check_behind BOOLEAN DEFAULT false NOT NULL,
    republish_after TIMESTAMP WITH TIME ZONE,
    republish_after_id UUID,
    republish_until TIMESTAMP WITH TIME ZONE,
    republished BIGINT DEFAULT 0 NOT NULL,
    CONSTRAINT dispatch_pkey PRIMARY KEY (id),
    CONSTRAINT dispatch_single_row CHECK (id = 1)
);

INSERT INTO dispatch DEFAULT VALUES;

CREATE TABLE metric_total (
    name TEXT NOT NULL,
    labels TEXT[] NOT NULL,
    value DOUBLE PRECISION NOT NULL,
    changed_at TIMESTAMP WITH TIME ZONE DEFAULT nightdesk_now() NOT NULL,
    CONSTRAINT metric_total_pkey PRIMARY KEY (name, labels)
);

CREATE TABLE quarantine (
    job_id UUID NOT NULL,
    duty TEXT NOT NULL,
    reason TEXT NOT NULL,
    tries SMALLINT DEFAULT 1 NOT NULL,
    since TIMESTAMP WITH TIME ZONE DEFAULT nightdesk_now() NOT NULL,
    until TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT quarantine_pkey PRIMARY KEY (job_id, duty)
);

CREATE UNLOGGED TABLE tenant_turn (
    line TEXT NOT NULL,
    priority SMALLINT NOT NULL,
    tenant TEXT NOT NULL,
    turn DOUBLE PRECISION NOT NULL,
    CONSTRAINT tenant_turn_pkey PRIMARY KEY (line, priority, tenant)
);

CREATE TABLE ledger (
    id UUID DEFAULT gen_random_uuid() NOT NULL,
    only_row BOOLEAN DEFAULT true NOT NULL,
    system_identifier BIGINT,
    timeline INTEGER,
    seen_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT ledger_pkey PRIMARY KEY (id),
    CONSTRAINT ledger_only_row_key UNIQUE (only_row),
    CONSTRAINT ledger_single_row CHECK (only_row)
);

INSERT INTO ledger DEFAULT VALUES;

-- The server that the ledger was last seen on. A role that may not ask leaves it to the first worker that may.
DO $$ BEGIN
    UPDATE ledger SET (system_identifier, timeline) = (
        SELECT system_identifier, ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int
        FROM pg_control_system());
EXCEPTION WHEN insufficient_privilege OR feature_not_supported OR undefined_function THEN NULL;
END $$;
"""

_COUNTED = "batch_id, state, outcome, held_reason, finished_at IS NOT NULL AND result_published_at IS NULL"


def _count(*changes: tuple[str, str]) -> str:
    """The statement that adds to the counts: rows of a transition table, each with the number it counts for."""
    rows = " UNION ALL ".join(
        f"SELECT {_COUNTED} AS unpublished, {number} AS jobs FROM {name}" for name, number in changes
    )
    return f"""INSERT INTO job_count (batch_id, state, outcome, held_reason, unpublished, jobs)
        SELECT batch_id, state, outcome, held_reason, unpublished, sum(jobs) FROM ({rows}) c
        GROUP BY 1, 2, 3, 4, 5 HAVING sum(jobs) <> 0; RETURN NULL;"""


COUNTS = f"""
-- Each statement that changes jobs appends what it changed in their counts, in its own transaction: no row that two of them
-- want, and no way to change a job uncounted. Dispatch folds these rows into one for each count.
CREATE FUNCTION count_new_jobs() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN {_count(("new_job", "1"))} END $$;
CREATE FUNCTION count_changed_jobs() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN {_count(("new_job", "1"), ("old_job", "-1"))} END $$;
CREATE FUNCTION count_deleted_jobs() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN {_count(("old_job", "-1"))} END $$;
CREATE FUNCTION count_no_jobs() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN DELETE FROM job_count; RETURN NULL; END $$;

CREATE TRIGGER job_count_new AFTER INSERT ON job
    REFERENCING NEW TABLE AS new_job FOR EACH STATEMENT EXECUTE FUNCTION count_new_jobs();
CREATE TRIGGER job_count_changed AFTER UPDATE ON job
    REFERENCING OLD TABLE AS old_job NEW TABLE AS new_job FOR EACH STATEMENT EXECUTE FUNCTION count_changed_jobs();
CREATE TRIGGER job_count_deleted AFTER DELETE ON job
    REFERENCING OLD TABLE AS old_job FOR EACH STATEMENT EXECUTE FUNCTION count_deleted_jobs();
CREATE TRIGGER job_count_truncated AFTER TRUNCATE ON job FOR EACH STATEMENT EXECUTE FUNCTION count_no_jobs();
"""

STORAGE = """
-- Requests and raw answers are written once and read once or twice: default compression made a bulk submit six
-- times slower than leaving them uncompressed out of line.
ALTER TABLE job_request ALTER COLUMN head SET STORAGE EXTERNAL, ALTER COLUMN prompt SET STORAGE EXTERNAL;
ALTER TABLE provider_batch_call ALTER COLUMN body SET STORAGE EXTERNAL, ALTER COLUMN call SET STORAGE EXTERNAL;
ALTER TABLE completion ALTER COLUMN parsed SET STORAGE EXTERNAL, ALTER COLUMN prompt SET STORAGE EXTERNAL;
ALTER TABLE generation_record ALTER COLUMN messages_snapshot SET STORAGE EXTERNAL,
    ALTER COLUMN output_raw SET STORAGE EXTERNAL, ALTER COLUMN answer SET STORAGE EXTERNAL,
    ALTER COLUMN citations SET STORAGE EXTERNAL, ALTER COLUMN grounding SET STORAGE EXTERNAL,
    ALTER COLUMN canonical SET STORAGE EXTERNAL;
-- Room on each page, so that renewals stay on it without touching an index.
ALTER TABLE job SET (fillfactor = 80);
ALTER TABLE batch SET (fillfactor = 50);
-- A queue's table changes all the time: keep dead rows and statistics fresh by number of rows, not by share.
ALTER TABLE job SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000
);
-- Each attempt is changed once, when its call ends; the default would wait until a fifth of all calls ever made are dead rows.
ALTER TABLE attempt SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000
);
-- Changed with every call that is paid for, and few: its versions are cleared while they fit on their page.
ALTER TABLE batch SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
ALTER TABLE budget_period SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
ALTER TABLE worker SET (fillfactor = 50);
ALTER TABLE metric_total SET (fillfactor = 50);
ALTER TABLE tenant_turn SET (fillfactor = 50);
-- Few rows, that come and go all the time.
ALTER TABLE job_count SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
-- Written once: vacuum has only to mark their pages as visible to all, here and there and not a fifth of them at once.
-- Of an erased job their large values are dead, which stand in tables of their own.
ALTER TABLE job_request SET (autovacuum_vacuum_insert_scale_factor = 0.05, toast.autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE completion SET (autovacuum_vacuum_insert_scale_factor = 0.05, toast.autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE generation_record SET (autovacuum_vacuum_insert_scale_factor = 0.05, toast.autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE job_event SET (autovacuum_vacuum_insert_scale_factor = 0.05);
"""

COMPRESSION = """
-- A server with lz4 compresses what is stored once for little; pglz, which every server has, costs more than all the rest.
DO $$
DECLARE wide record;
BEGIN
    IF (SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'default_toast_compression') THEN
        FOR wide IN
            SELECT a.attrelid::regclass AS relation, a.attname AS name
            FROM pg_attribute a
            WHERE a.attrelid IN ('job_request'::regclass, 'completion'::regclass, 'generation_record'::regclass,
                                 'provider_batch_call'::regclass)
              AND a.attnum > 0 AND a.attstorage = 'e'
        LOOP
            EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET STORAGE EXTENDED, ALTER COLUMN %I SET COMPRESSION lz4',
                           wide.relation, wide.name, wide.name);
        END LOOP;
    END IF;
END $$;
-- Packed already, each a frame of zstandard; and small parts that in a long row would be compressed, for more than a poll of them costs.
ALTER TABLE job_request ALTER COLUMN frame SET STORAGE EXTERNAL;
ALTER TABLE completion ALTER COLUMN frame SET STORAGE EXTERNAL;
ALTER TABLE generation_record ALTER COLUMN frame SET STORAGE EXTERNAL, ALTER COLUMN quality SET STORAGE EXTERNAL,
    ALTER COLUMN timing_ms SET STORAGE EXTERNAL, ALTER COLUMN provider_snapshot SET STORAGE EXTERNAL,
    ALTER COLUMN usage SET STORAGE EXTERNAL;
"""


def upgrade() -> None:
    """Create everything."""
    for statements in (CLOCK, TABLES, COUNTS, STORAGE, COMPRESSION):
        op.execute(statements)


def downgrade() -> None:
    """Refuse: dropping the ledger would lose accepted jobs."""
    raise RuntimeError("the first migration can't be undone; drop the database instead")
