# Looks into a database that nobody else has open.
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
print(db.execute('PRAGMA integrity_check').fetchone()[0], end=' ')
print(db.execute('SELECT count(*) FROM rows').fetchone()[0], end=' ')
print(db.execute('SELECT max(number) FROM rows').fetchone()[0])
