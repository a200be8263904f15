-- What the model's answers to each session have consumed, as the server has counted it. Beside the session and not in
-- it: it grows while somebody else writes that. `cost` is in hundredths of a millionth of a US dollar.

CREATE TABLE spend (
    session_id TEXT   NOT NULL PRIMARY KEY REFERENCES session (id),
    cost       BIGINT NOT NULL,
    tokens     BIGINT NOT NULL
);
