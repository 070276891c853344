-- Access tokens, without their secrets.

CREATE TABLE windlass_token (
  name TEXT NOT NULL PRIMARY KEY,
  body TEXT NOT NULL
) WITHOUT ROWID;
