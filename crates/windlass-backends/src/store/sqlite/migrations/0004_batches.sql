-- Bulk jobs: what was ordered, how far it is, what became of the tasks.
CREATE TABLE windlass_batch (
  id INTEGER PRIMARY KEY,
  -- Micros; NULL while it runs.
  finished_at INTEGER,
  body TEXT NOT NULL
);

-- Every node asks every second which jobs run, and there may be many old ones.
CREATE INDEX windlass_batch_running ON windlass_batch (id) WHERE finished_at IS NULL;
