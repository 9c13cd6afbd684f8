-- Webhooks: the inbox of deliveries, and how events find their callbacks.

-- deliveries: one row for every webhook request that passed verification, whatever came of it. The unique key is what makes a
-- redelivery, even a concurrent one, do nothing.
CREATE TABLE awa_edge.deliveries (
  id               bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  source           text NOT NULL,
  -- The provider's own id of the delivery, the same in every retry; where it has none, a hash of the body.
  delivery_id      text NOT NULL,
  received_at      timestamptz NOT NULL DEFAULT now(),
  state            text NOT NULL,
  -- As it came, without signatures and secrets: what the source's code reads again when a delivery is replayed.
  path_callback_id uuid,
  headers          jsonb NOT NULL DEFAULT '{}',
  body             text NOT NULL,
  -- What the source's code made of it: the callback that it is for, and what it means.
  callback_id      uuid,
  correlation_key  text,
  meaning          jsonb,
  -- The job that it moved, or came too late for. No foreign key: a delivery outlives its job.
  job_id           bigint,
  -- Why it was ignored, or too late.
  reason           text,
  attempts         smallint NOT NULL DEFAULT 1,
  last_error       text,
  -- When the tick tries it again: a failed one, or a parked one whose callback may be there. NULL: not at all.
  next_attempt_at  timestamptz,
  CONSTRAINT delivery_source_has_1_to_200_characters CHECK (char_length(source) BETWEEN 1 AND 200),
  CONSTRAINT delivery_id_has_1_to_200_characters CHECK (char_length(delivery_id) BETWEEN 1 AND 200),
  CONSTRAINT delivery_correlation_key_has_1_to_200_characters CHECK (char_length(correlation_key) BETWEEN 1 AND 200),
  CONSTRAINT delivery_state_is_known CHECK (state IN ('resolved', 'ignored', 'parked', 'late', 'failed')),
  CONSTRAINT failed_delivery_has_an_error CHECK ((state = 'failed') = (last_error IS NOT NULL)),
  CONSTRAINT only_failed_or_parked_delivery_is_tried_again CHECK (next_attempt_at IS NULL OR state IN ('failed', 'parked')),
  CONSTRAINT parked_delivery_names_its_callback
    CHECK (state <> 'parked' OR (meaning IS NOT NULL AND (callback_id IS NULL) <> (correlation_key IS NULL))),
  CONSTRAINT a_delivery_counts_once UNIQUE (source, delivery_id)
);
-- Early events, found when their callback is registered.
CREATE INDEX deliveries_parked_key ON awa_edge.deliveries (source, correlation_key, id)
  WHERE state = 'parked' AND correlation_key IS NOT NULL;
CREATE INDEX deliveries_parked_callback ON awa_edge.deliveries (callback_id) WHERE state = 'parked' AND callback_id IS NOT NULL;
-- The tick: what is to be tried again, and retention, one index for each period.
CREATE INDEX deliveries_due ON awa_edge.deliveries (next_attempt_at, id) WHERE next_attempt_at IS NOT NULL;
CREATE INDEX deliveries_done ON awa_edge.deliveries (received_at) WHERE state IN ('resolved', 'ignored');
CREATE INDEX deliveries_parked ON awa_edge.deliveries (received_at) WHERE state = 'parked';
CREATE INDEX deliveries_abandoned ON awa_edge.deliveries (id) WHERE state = 'failed' AND next_attempt_at IS NULL;
CREATE INDEX deliveries_late_or_failed ON awa_edge.deliveries (received_at) WHERE state IN ('late', 'failed');

-- The newest wait for a correlation key tells a late event from an early one.
CREATE INDEX callbacks_correlation_key ON awa_edge.callbacks (source, correlation_key, created_at)
  WHERE correlation_key IS NOT NULL;
ALTER TABLE awa_edge.callbacks ADD CONSTRAINT callback_correlation_key_has_1_to_200_characters
  CHECK (char_length(correlation_key) BETWEEN 1 AND 200);

-- Has the tick look again at what came early for a callback, for those who register one without looking. Whoever parks a delivery takes
-- the same locks first. A statement of this function sees what was committed when it began, which is after the locks were given: that is
-- what makes it a function.
CREATE FUNCTION awa_edge.make_early_due(for_source text, for_key text, for_callback uuid) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  made_due bigint;
BEGIN
  -- A snapshot that is older than the lock doesn't see what was parked meanwhile, and nobody else would look.
  IF for_source IS NOT NULL AND current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'a callback with a source can be registered under READ COMMITTED only, and not under %',
      upper(current_setting('transaction_isolation')) USING ERRCODE = 'feature_not_supported';
  END IF;
  IF for_callback IS NOT NULL THEN
    PERFORM pg_advisory_xact_lock(hashtextextended(for_callback::text, 0));
  END IF;
  IF for_key IS NOT NULL THEN
    PERFORM pg_advisory_xact_lock(hashtextextended(for_source || chr(31) || for_key, 0));
  END IF;
  UPDATE awa_edge.deliveries SET next_attempt_at = now()
  WHERE state = 'parked' AND (callback_id = for_callback OR (source = for_source AND correlation_key = for_key));
  GET DIAGNOSTICS made_due = ROW_COUNT;
  RETURN made_due;
END
$$;

-- Undoes a statement that moved a job for a delivery which somebody else has taken meanwhile. The caller reads again.
CREATE FUNCTION awa_edge.raise_stale_delivery() RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'the delivery was taken by somebody else' USING ERRCODE = 'AE002';
END
$$;
