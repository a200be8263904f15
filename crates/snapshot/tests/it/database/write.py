# Writes for ever, and says after each commit how many rows there are.
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute('PRAGMA journal_mode=WAL')
db.execute('PRAGMA synchronous=OFF')
db.execute('PRAGMA wal_autocheckpoint=20')
db.execute('CREATE TABLE rows (number INTEGER PRIMARY KEY, text TEXT)')
db.execute('CREATE INDEX by_text ON rows (text)')
rows = 0
while True:
    db.execute('BEGIN')
    for _ in range(7):
        rows += 1
        db.execute('INSERT INTO rows VALUES (?, ?)', (rows, str(rows * 7919 % 1000) * 30))
        db.execute('UPDATE rows SET text = text || ? WHERE number = ?', ('x', rows // 2))
    db.execute('COMMIT')
    print(rows, flush=True)
