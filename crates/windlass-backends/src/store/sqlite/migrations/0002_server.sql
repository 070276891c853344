-- What the HTTP server shows: logs of steps, queues that drain, and counts by
-- queue that need no task row.

-- The end of what a handler outside Rust wrote to its stderr. The last column, so
-- that a checkpoint is read without it.
ALTER TABLE windlass_step ADD COLUMN log TEXT;

-- It takes no new tasks.
ALTER TABLE windlass_queue ADD COLUMN draining INTEGER NOT NULL DEFAULT 0;

-- A dead letter is counted for its queue without looking at its task.
ALTER TABLE windlass_dead_letter ADD COLUMN lane INTEGER NOT NULL DEFAULT 0;
UPDATE windlass_dead_letter SET lane =
  coalesce((SELECT t.lane FROM windlass_task t WHERE t.id = windlass_dead_letter.task), 0);
CREATE INDEX windlass_dead_letter_lane ON windlass_dead_letter (lane);

-- States that are neither ended nor in a small table of their own: scheduled,
-- retrying, waiting, paused, rolling back. A held rollback is one of them, too.
CREATE INDEX windlass_task_resting ON windlass_task (state, lane) WHERE state IN (2, 5, 6, 7, 8);
