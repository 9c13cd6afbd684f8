-- What the role awa_worker may do: run the statements of src/shared/db/statements/, and nothing else. To be run by the role that
-- migrated. Safe to repeat: `npm run migrate` does, each time, where the role is there. It takes back what it or anybody else of that
-- role gave before, so that the role never has more than what stands here.
BEGIN;

ALTER DEFAULT PRIVILEGES IN SCHEMA awa_edge REVOKE ALL ON TABLES FROM awa_worker;
ALTER DEFAULT PRIVILEGES IN SCHEMA awa_edge REVOKE ALL ON SEQUENCES FROM awa_worker;
REVOKE ALL ON SCHEMA awa_edge FROM awa_worker;
REVOKE ALL ON ALL TABLES IN SCHEMA awa_edge FROM awa_worker;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA awa_edge FROM awa_worker;

GRANT USAGE ON SCHEMA awa_edge TO awa_worker;
-- Retention and the purge of dead letters delete these.
GRANT SELECT, INSERT, UPDATE, DELETE ON awa_edge.jobs, awa_edge.deliveries, awa_edge.rescue_followups TO awa_worker;
-- A callback goes with its job, by the foreign key, which needs no right. Queues and schedules are never deleted.
GRANT SELECT, INSERT, UPDATE ON awa_edge.callbacks, awa_edge.queues, awa_edge.schedules TO awa_worker;
-- Which schema it is.
GRANT SELECT ON awa_edge.migrations TO awa_worker;
-- The id of a job is taken before its row is written, for its follow-ups to name it. Other identity columns need no right.
GRANT USAGE ON SEQUENCE awa_edge.jobs_id_seq TO awa_worker;
-- Each runs with the rights of its caller.
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA awa_edge TO awa_worker;

COMMIT;
