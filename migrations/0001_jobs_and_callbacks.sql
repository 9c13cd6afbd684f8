-- Jobs, their callbacks, the outbox of rescue follow-ups, and queue settings.
-- Every constraint's name is the sentence that is broken when it fires.

CREATE SCHEMA IF NOT EXISTS awa_edge;

-- queues: settings of a queue. A queue without a row has the defaults of the build.
CREATE TABLE awa_edge.queues (
  queue                         text PRIMARY KEY,
  paused_at                     timestamptz,
  keeps_dead_letters            boolean NOT NULL DEFAULT true,
  completed_retention_seconds   double precision,
  failed_retention_seconds      double precision,
  dead_letter_retention_seconds double precision,
  created_at                    timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT queue_name_has_1_to_200_characters CHECK (char_length(queue) BETWEEN 1 AND 200),
  CONSTRAINT completed_retention_is_not_negative
    CHECK (completed_retention_seconds >= 0 AND completed_retention_seconds <= 3153600000),
  CONSTRAINT failed_retention_is_not_negative
    CHECK (failed_retention_seconds >= 0 AND failed_retention_seconds <= 3153600000),
  CONSTRAINT dead_letter_retention_is_not_negative
    CHECK (dead_letter_retention_seconds >= 0 AND dead_letter_retention_seconds <= 3153600000)
);

CREATE TABLE awa_edge.jobs (
  id                  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  kind                text NOT NULL,
  queue               text NOT NULL DEFAULT 'default',
  args                jsonb NOT NULL DEFAULT '{}',
  state               text NOT NULL DEFAULT 'available',
  priority            smallint NOT NULL DEFAULT 2,
  attempt             smallint NOT NULL DEFAULT 0,
  max_attempts        smallint NOT NULL DEFAULT 25,
  run_at              timestamptz NOT NULL DEFAULT now(),
  -- +1 on every claim and never reset: the identity of one attempt, and the guard of every write that ends it.
  run_lease           bigint NOT NULL DEFAULT 0,
  heartbeat_at        timestamptz,
  deadline_at         timestamptz,
  deadline_seconds    double precision,
  attempted_at        timestamptz,
  finalized_at        timestamptz,
  created_at          timestamptz NOT NULL DEFAULT now(),
  errors              jsonb NOT NULL DEFAULT '[]',
  metadata            jsonb NOT NULL DEFAULT '{}',
  progress            jsonb,
  result              jsonb,
  tags                text[] NOT NULL DEFAULT '{}',
  unique_key          bytea,
  unique_states       text[],
  ordering_key        text,
  callback_id         uuid,
  trigger_job_id      bigint,
  trigger_outcome     text,
  trigger_run_lease   bigint,
  dead_lettered_at    timestamptz,
  dead_letter_reason  text,

  CONSTRAINT job_kind_has_1_to_200_characters CHECK (char_length(kind) BETWEEN 1 AND 200),
  CONSTRAINT job_queue_has_1_to_200_characters CHECK (char_length(queue) BETWEEN 1 AND 200),
  CONSTRAINT job_state_is_known CHECK (state IN
    ('scheduled', 'available', 'running', 'waiting_external', 'retryable', 'completed', 'failed', 'cancelled')),
  CONSTRAINT job_priority_is_1_to_4 CHECK (priority BETWEEN 1 AND 4),
  CONSTRAINT job_attempt_is_not_negative CHECK (attempt >= 0),
  CONSTRAINT job_max_attempts_is_1_to_1000 CHECK (max_attempts BETWEEN 1 AND 1000),
  CONSTRAINT job_run_lease_is_not_negative CHECK (run_lease >= 0),
  CONSTRAINT job_deadline_seconds_is_positive CHECK (deadline_seconds > 0 AND deadline_seconds <= 31536000),
  CONSTRAINT job_errors_is_an_array_of_100_at_most
    CHECK (jsonb_typeof(errors) = 'array' AND jsonb_array_length(errors) <= 100),
  CONSTRAINT job_metadata_is_an_object CHECK (jsonb_typeof(metadata) = 'object'),
  CONSTRAINT job_has_20_tags_at_most CHECK (cardinality(tags) <= 20),
  CONSTRAINT job_unique_key_comes_with_its_states CHECK ((unique_key IS NULL) = (unique_states IS NULL)),
  CONSTRAINT job_ordering_key_has_1_to_200_characters CHECK (char_length(ordering_key) BETWEEN 1 AND 200),
  CONSTRAINT running_job_has_a_heartbeat CHECK (state <> 'running' OR heartbeat_at IS NOT NULL),
  CONSTRAINT only_running_job_has_heartbeat_and_deadline
    CHECK (state = 'running' OR (heartbeat_at IS NULL AND deadline_at IS NULL)),
  CONSTRAINT waiting_job_has_a_callback CHECK (state <> 'waiting_external' OR callback_id IS NOT NULL),
  CONSTRAINT only_running_or_waiting_job_has_a_callback
    CHECK (callback_id IS NULL OR state IN ('running', 'waiting_external')),
  CONSTRAINT ended_attempt_is_finalized
    CHECK ((finalized_at IS NOT NULL) = (state IN ('retryable', 'completed', 'failed', 'cancelled'))),
  CONSTRAINT follow_up_names_its_whole_trigger CHECK (
    (trigger_job_id IS NULL) = (trigger_outcome IS NULL) AND (trigger_job_id IS NULL) = (trigger_run_lease IS NULL)),
  CONSTRAINT job_trigger_outcome_is_known CHECK (trigger_outcome IN
    ('completed', 'retried', 'exhausted', 'cancelled', 'waiting_for_callback', 'rescued')),
  CONSTRAINT only_failed_job_is_a_dead_letter CHECK (dead_lettered_at IS NULL OR state = 'failed'),
  CONSTRAINT dead_letter_has_a_reason CHECK ((dead_lettered_at IS NULL) = (dead_letter_reason IS NULL))
)
-- Rows are rewritten a few times each: room on the page keeps heartbeats and progress off the indexes.
WITH (fillfactor = 80);

-- A job holds its unique key while its state is among its unique_states.
CREATE UNIQUE INDEX jobs_unique_key ON awa_edge.jobs (unique_key)
  WHERE unique_key IS NOT NULL AND state = ANY (unique_states);
-- Claim: what is due in a queue, in order.
CREATE INDEX jobs_due ON awa_edge.jobs (queue, priority, run_at, id)
  WHERE state IN ('scheduled', 'available', 'retryable');
-- Rescue sweeps.
CREATE INDEX jobs_running_heartbeat ON awa_edge.jobs (heartbeat_at) WHERE state = 'running';
CREATE INDEX jobs_running_deadline ON awa_edge.jobs (deadline_at)
  WHERE state = 'running' AND deadline_at IS NOT NULL;
-- Retention, one index for each period.
CREATE INDEX jobs_completed ON awa_edge.jobs (finalized_at) WHERE state = 'completed';
CREATE INDEX jobs_failed_or_cancelled ON awa_edge.jobs (finalized_at)
  WHERE state IN ('failed', 'cancelled') AND dead_lettered_at IS NULL;
CREATE INDEX jobs_dead_letters ON awa_edge.jobs (dead_lettered_at) WHERE dead_lettered_at IS NOT NULL;
-- From a job to the follow-ups that it triggered.
CREATE INDEX jobs_trigger ON awa_edge.jobs (trigger_job_id) WHERE trigger_job_id IS NOT NULL;

-- callbacks: one row for every wait of every attempt. Rows stay after they are resolved, which is how a repeated,
-- a late and an unknown callback are told apart. A row is pending exactly while its job's callback_id names it.
CREATE TABLE awa_edge.callbacks (
  id              uuid PRIMARY KEY,
  job_id          bigint NOT NULL REFERENCES awa_edge.jobs (id) ON DELETE CASCADE,
  run_lease       bigint NOT NULL,
  name            text NOT NULL DEFAULT '',
  state           text NOT NULL DEFAULT 'pending',
  timeout_at      timestamptz NOT NULL,
  created_at      timestamptz NOT NULL DEFAULT now(),
  resolved_at     timestamptz,
  -- The state that the resolution moved the job to: a repeated callback gets the same answer.
  resolved_to     text,
  payload         jsonb,
  error           text,
  source          text,
  correlation_key text,
  rules           jsonb,
  CONSTRAINT callback_state_is_known CHECK (state IN
    ('pending', 'completed', 'failed', 'retried', 'resumed', 'expired', 'cancelled', 'superseded')),
  CONSTRAINT callback_name_has_200_characters_at_most CHECK (char_length(name) <= 200),
  CONSTRAINT resolved_callback_has_a_time CHECK ((state = 'pending') = (resolved_at IS NULL)),
  CONSTRAINT callback_resolved_from_outside_names_the_state_of_its_job
    CHECK ((state IN ('completed', 'failed', 'retried', 'resumed')) = (resolved_to IS NOT NULL)),
  CONSTRAINT callback_correlation_key_comes_with_its_source
    CHECK (correlation_key IS NULL OR source IS NOT NULL)
);
CREATE UNIQUE INDEX callbacks_one_pending_per_job ON awa_edge.callbacks (job_id) WHERE state = 'pending';
CREATE UNIQUE INDEX callbacks_one_pending_per_correlation_key ON awa_edge.callbacks (source, correlation_key)
  WHERE state = 'pending' AND correlation_key IS NOT NULL;
CREATE INDEX callbacks_pending_timeout ON awa_edge.callbacks (timeout_at) WHERE state = 'pending';
-- The foreign key's other side, and a job's history.
CREATE INDEX callbacks_job ON awa_edge.callbacks (job_id);

-- rescue_followups: the outbox of rescues. Written by the statement that rescues the job, removed by the statement
-- that inserts its follow-ups. No foreign key: a row carries the whole job as it was right after the rescue, and
-- outlives it.
CREATE TABLE awa_edge.rescue_followups (
  id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  job_id          bigint NOT NULL,
  run_lease       bigint NOT NULL,
  kind            text NOT NULL,
  reason          text NOT NULL,
  job             jsonb NOT NULL,
  attempts        smallint NOT NULL DEFAULT 0,
  next_attempt_at timestamptz NOT NULL DEFAULT now(),
  last_error      text,
  abandoned_at    timestamptz,
  created_at      timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT rescue_reason_is_known CHECK (reason IN ('stale_heartbeat', 'deadline_exceeded', 'expired_callback')),
  CONSTRAINT one_rescue_ends_one_attempt UNIQUE (job_id, run_lease)
);
CREATE INDEX rescue_followups_due ON awa_edge.rescue_followups (next_attempt_at, id) WHERE abandoned_at IS NULL;
CREATE INDEX rescue_followups_abandoned ON awa_edge.rescue_followups (abandoned_at) WHERE abandoned_at IS NOT NULL;
