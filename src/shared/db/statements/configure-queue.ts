import type { Statement } from "../port.ts";

/** Settings of a queue. Periods are in seconds, up to a hundred years; `null` stands for the deployment's default. */
export interface QueueSettings {
  /** Nothing is claimed while a queue is paused; jobs can still be enqueued. */
  readonly paused: boolean;
  /** Whether jobs that fail for good are marked as dead letters. */
  readonly keepsDeadLetters: boolean;
  readonly completedRetentionSeconds: number | null;
  readonly failedRetentionSeconds: number | null;
  readonly deadLetterRetentionSeconds: number | null;
}

/** Sets some settings of a queue and leaves the others. One statement, so that two at once don't undo each other. */
export function configureQueue(queue: string, settings: Partial<QueueSettings>): Statement<void> {
  return { text: SQL, values: [queue, JSON.stringify(settings)], decode: () => undefined };
}

const SQL = `
WITH wanted AS (SELECT $2::text::jsonb AS s)
INSERT INTO awa_edge.queues AS q (queue, paused_at, keeps_dead_letters, completed_retention_seconds,
  failed_retention_seconds, dead_letter_retention_seconds)
SELECT $1::text, CASE WHEN (s->>'paused')::boolean THEN now() END, coalesce((s->>'keepsDeadLetters')::boolean, true),
  (s->>'completedRetentionSeconds')::float8, (s->>'failedRetentionSeconds')::float8,
  (s->>'deadLetterRetentionSeconds')::float8
FROM wanted
ON CONFLICT (queue) DO UPDATE SET
  paused_at = CASE
    WHEN NOT (SELECT s ? 'paused' FROM wanted) THEN q.paused_at
    WHEN (SELECT (s->>'paused')::boolean FROM wanted) THEN coalesce(q.paused_at, excluded.paused_at) END,
  keeps_dead_letters = CASE WHEN (SELECT s ? 'keepsDeadLetters' FROM wanted)
    THEN excluded.keeps_dead_letters ELSE q.keeps_dead_letters END,
  completed_retention_seconds = CASE WHEN (SELECT s ? 'completedRetentionSeconds' FROM wanted)
    THEN excluded.completed_retention_seconds ELSE q.completed_retention_seconds END,
  failed_retention_seconds = CASE WHEN (SELECT s ? 'failedRetentionSeconds' FROM wanted)
    THEN excluded.failed_retention_seconds ELSE q.failed_retention_seconds END,
  dead_letter_retention_seconds = CASE WHEN (SELECT s ? 'deadLetterRetentionSeconds' FROM wanted)
    THEN excluded.dead_letter_retention_seconds ELSE q.dead_letter_retention_seconds END`;
