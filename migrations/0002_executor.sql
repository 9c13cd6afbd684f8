-- Running jobs: the order of claims, ordering keys, waits of handlers, and periodic jobs.

-- Claim: what is due in a queue, in order. A job of priority p stands where one of priority 1 would that came due p - 1 minutes
-- later: priorities decide among jobs of about the same age, and no job is passed for ever. The order of a waiting row never
-- changes, so nothing has to be written to age it. run_at comes last, for what isn't due yet to be told from the index alone.
DROP INDEX awa_edge.jobs_due;
CREATE INDEX jobs_due ON awa_edge.jobs
  (queue, ((run_at AT TIME ZONE 'UTC') + (priority - 1) * interval '60 seconds'), id, run_at)
  WHERE state IN ('scheduled', 'available', 'retryable');

-- Of the jobs of a queue with the same ordering key one is under way at a time, whatever two claims at once believe.
CREATE UNIQUE INDEX jobs_one_under_way_per_ordering_key ON awa_edge.jobs (queue, ordering_key)
  WHERE ordering_key IS NOT NULL AND state IN ('running', 'waiting_external');
-- The line of an ordering key, first in first out.
CREATE INDEX jobs_ordering_key_line ON awa_edge.jobs (queue, ordering_key, id)
  WHERE ordering_key IS NOT NULL AND state IN ('scheduled', 'available', 'running', 'waiting_external', 'retryable');

-- The attempt whose handler awaits this callback by its name; NULL for a callback that no handler awaits. When an awaited one times
-- out, the handler is told: that is no lost attempt.
ALTER TABLE awa_edge.callbacks ADD COLUMN awaited_in_attempt smallint;

-- Ends a transaction whose job isn't its attempt's any more. For a caller's own transaction, which has no other way to notice.
CREATE FUNCTION awa_edge.raise_stale_attempt(job_id bigint, run_lease bigint) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'attempt % of job % is stale: it was ended by somebody else', run_lease, job_id
    USING ERRCODE = 'AE001';
END
$$;

-- schedules: periodic jobs. The definitions come from the build and are written here by the tick; last_fire_at is where each stands.
CREATE TABLE awa_edge.schedules (
  name         text PRIMARY KEY,
  kind         text NOT NULL,
  queue        text NOT NULL,
  expression   text NOT NULL,
  timezone     text NOT NULL,
  missed_fires text NOT NULL,
  paused_at    timestamptz,
  -- The newest fire of this expression that was enqueued, or passed over. NULL: none yet, and then fires count from starts_after on,
  -- which is when the schedule was first written, or where it stood when its expression changed.
  last_fire_at timestamptz,
  starts_after timestamptz NOT NULL DEFAULT now(),
  created_at   timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT schedule_name_has_1_to_200_characters CHECK (char_length(name) BETWEEN 1 AND 200),
  CONSTRAINT schedule_missed_fires_is_known CHECK (missed_fires IN ('coalesce', 'catch_up'))
);

-- Dead letters in the order in which they are listed, replayed and purged.
CREATE INDEX jobs_dead_letter_ids ON awa_edge.jobs (id) WHERE dead_lettered_at IS NOT NULL;
