-- The ledger. Hot and cold apart: `task` is written at submit, `ready` is what a
-- claim reads (its key is the claim order), `lease` holds what runs, `done` what
-- completed. An ordinary life never writes its task row again. Times are
-- microseconds since 1970, states and outcomes small numbers.
--
-- The file may be the application's too: every name begins with `windlass_`. Prose
-- leaves the prefix out.

-- A queue and a kind in it: one integer in every row instead of two names, and
-- the unit of the claim, so that kinds nobody serves cost a claim nothing.
CREATE TABLE windlass_lane (
  id    INTEGER PRIMARY KEY,
  queue TEXT NOT NULL,
  kind  TEXT NOT NULL,
  UNIQUE (queue, kind)
);

-- settled is the fingerprint of the write that ended the latest attempt: the same
-- write again is then known. While a lease or done row exists, it has the current state and counters, and
-- those here are of before the claim.
CREATE TABLE windlass_task (
  id          INTEGER PRIMARY KEY,
  lane        INTEGER NOT NULL,
  state       INTEGER NOT NULL,
  priority    INTEGER NOT NULL,
  created_at  INTEGER NOT NULL,
  due_at      INTEGER NOT NULL,
  updated_at  INTEGER NOT NULL,
  started_at  INTEGER,
  finished_at INTEGER,
  node        INTEGER,
  run         INTEGER NOT NULL,
  attempt     INTEGER NOT NULL,
  retries     INTEGER NOT NULL,
  crashes     INTEGER NOT NULL,
  token       INTEGER NOT NULL,
  version     INTEGER NOT NULL,
  event_n     INTEGER NOT NULL,
  has_children INTEGER NOT NULL,
  settled     INTEGER NOT NULL,
  held_from   INTEGER,
  deadline    INTEGER,
  parent      INTEGER,
  child_key   TEXT,
  extras      TEXT,
  payload     TEXT NOT NULL,
  waiting_on  TEXT,
  progress    TEXT,
  failure     TEXT,
  children    TEXT,
  result      TEXT
);
CREATE UNIQUE INDEX windlass_task_child ON windlass_task (parent, child_key) WHERE parent IS NOT NULL;
CREATE INDEX windlass_task_live_child ON windlass_task (parent) WHERE parent IS NOT NULL AND state < 16;
-- Only states that lists ask for and an ordinary life never enters: neither
-- queued (3) nor completed (16).
CREATE INDEX windlass_task_state ON windlass_task (state, id) WHERE state NOT IN (3, 16);

-- How tasks completed that are neither child nor parent. Their row would have to
-- be rewritten whole, payload and all; this is a fifth of it. Completion is
-- final, so a row here is only ever deleted together with its task.
CREATE TABLE windlass_done (
  id          INTEGER PRIMARY KEY,
  node        INTEGER NOT NULL,
  started_at  INTEGER NOT NULL,
  finished_at INTEGER NOT NULL,
  run         INTEGER NOT NULL,
  attempt     INTEGER NOT NULL,
  retries     INTEGER NOT NULL,
  crashes     INTEGER NOT NULL,
  token       INTEGER NOT NULL,
  version     INTEGER NOT NULL,
  event_n     INTEGER NOT NULL,
  settled     INTEGER NOT NULL,
  result      TEXT
);

CREATE TABLE windlass_ready (
  lane INTEGER NOT NULL,
  rank INTEGER NOT NULL,
  id   INTEGER NOT NULL,
  PRIMARY KEY (lane, rank, id)
) WITHOUT ROWID;

CREATE TABLE windlass_due (
  at   INTEGER NOT NULL,
  id   INTEGER NOT NULL,
  lane INTEGER NOT NULL,
  PRIMARY KEY (at, id)
) WITHOUT ROWID;

-- Tasks with a deadline, until they start or the deadline passes.
CREATE TABLE windlass_deadline (
  at INTEGER NOT NULL,
  id INTEGER NOT NULL,
  PRIMARY KEY (at, id)
) WITHOUT ROWID;

CREATE TABLE windlass_lease (
  task         INTEGER PRIMARY KEY,
  node         INTEGER NOT NULL,
  token        INTEGER NOT NULL,
  claim        INTEGER NOT NULL,
  in_step      INTEGER NOT NULL,
  alone        INTEGER NOT NULL,
  requests     INTEGER NOT NULL,
  lane         INTEGER NOT NULL,
  priority     INTEGER NOT NULL,
  state        INTEGER NOT NULL,
  due_at       INTEGER NOT NULL,
  started_at   INTEGER NOT NULL,
  run          INTEGER NOT NULL,
  attempt      INTEGER NOT NULL,
  retries      INTEGER NOT NULL,
  crashes      INTEGER NOT NULL,
  version      INTEGER NOT NULL,
  event_n      INTEGER NOT NULL,
  has_children INTEGER NOT NULL,
  has_unique   INTEGER NOT NULL,
  parent       INTEGER,
  correlation  TEXT
);

-- One appended row per recorded step; `live` ones are the checkpoint.
CREATE TABLE windlass_step (
  task     INTEGER NOT NULL,
  version  INTEGER NOT NULL,
  live     INTEGER NOT NULL,
  outcome  INTEGER NOT NULL,
  run      INTEGER NOT NULL,
  attempt  INTEGER NOT NULL,
  node     INTEGER NOT NULL,
  at       INTEGER NOT NULL,
  duration INTEGER NOT NULL,
  name     TEXT NOT NULL,
  class    TEXT,
  reason   TEXT,
  output   TEXT,
  PRIMARY KEY (task, version)
) WITHOUT ROWID;

-- Attempts after which the task went on; the latest one is in its task row.
CREATE TABLE windlass_attempt (
  task       INTEGER NOT NULL,
  token      INTEGER NOT NULL,
  run        INTEGER NOT NULL,
  attempt    INTEGER NOT NULL,
  node       INTEGER NOT NULL,
  started_at INTEGER NOT NULL,
  ended_at   INTEGER NOT NULL,
  ended      INTEGER NOT NULL,
  settled    INTEGER NOT NULL,
  failure    TEXT,
  PRIMARY KEY (task, token)
) WITHOUT ROWID;

CREATE TABLE windlass_dead_letter (task INTEGER PRIMARY KEY);

CREATE TABLE windlass_idempotency (
  key   TEXT PRIMARY KEY,
  body  BLOB NOT NULL,
  task  INTEGER NOT NULL,
  until INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX windlass_idempotency_until ON windlass_idempotency (until);
-- A task stays as long as a key answers with it.
CREATE INDEX windlass_idempotency_task ON windlass_idempotency (task);

-- until is NULL for keys that hold until their task ends.
CREATE TABLE windlass_unique_key (
  key   TEXT PRIMARY KEY,
  task  INTEGER NOT NULL,
  until INTEGER
) WITHOUT ROWID;
CREATE INDEX windlass_unique_key_until ON windlass_unique_key (until) WHERE until IS NOT NULL;

CREATE TABLE windlass_parent_due (parent INTEGER PRIMARY KEY);

CREATE TABLE windlass_queue (
  name        TEXT PRIMARY KEY,
  paused      INTEGER NOT NULL,
  concurrency INTEGER,
  depth_max   INTEGER
) WITHOUT ROWID;

CREATE TABLE windlass_node (
  id           INTEGER PRIMARY KEY,
  slot         INTEGER NOT NULL UNIQUE,
  name         TEXT NOT NULL,
  remote       INTEGER NOT NULL,
  queues       TEXT NOT NULL,
  version      TEXT NOT NULL,
  joined_at    INTEGER NOT NULL,
  heartbeat_at INTEGER NOT NULL,
  lease_until  INTEGER NOT NULL,
  stage        INTEGER NOT NULL,
  paused       INTEGER NOT NULL,
  announced    INTEGER NOT NULL,
  consumed     INTEGER NOT NULL,
  failed       INTEGER NOT NULL
);

-- The events of one transaction share a row; position is that of the first.
CREATE TABLE windlass_event (
  position INTEGER PRIMARY KEY,
  count    INTEGER NOT NULL,
  at       INTEGER NOT NULL,
  body     BLOB NOT NULL
);

CREATE TABLE windlass_audit (
  seq     INTEGER PRIMARY KEY AUTOINCREMENT,
  at      INTEGER NOT NULL,
  who     TEXT NOT NULL,
  origin  TEXT NOT NULL,
  action  TEXT NOT NULL,
  target  TEXT NOT NULL,
  outcome TEXT NOT NULL
);

CREATE TABLE windlass_setting (
  key   TEXT PRIMARY KEY,
  value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE windlass_schedule (
  name TEXT PRIMARY KEY,
  body TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE windlass_rate_limit (
  name TEXT PRIMARY KEY,
  body TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE windlass_outbox (
  seq   INTEGER PRIMARY KEY AUTOINCREMENT,
  lane  INTEGER NOT NULL,
  topic INTEGER NOT NULL,
  task  INTEGER,
  body  TEXT NOT NULL
);

CREATE TABLE windlass_outbox_lane (
  lane       INTEGER PRIMARY KEY,
  node       INTEGER NOT NULL,
  until      INTEGER NOT NULL,
  not_before INTEGER NOT NULL
);

-- What the store itself remembers: the number of this schema, the newest node id,
-- the outbox rule, how many tasks completed. Every Windlass, older and newer, reads
-- the key `schema` of this table first.
CREATE TABLE windlass_meta (
  key   TEXT PRIMARY KEY,
  value INTEGER NOT NULL
) WITHOUT ROWID;
