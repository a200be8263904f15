"""An S3 server in memory, by moto, with one bucket. Says its port, and ends with its standard input.

Started with INITIAL_NO_AUTH_ACTION_COUNT=1 it refuses every key after the bucket is made.
"""

import http.client
import sys

from moto.server import ThreadedMotoServer

server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
_, port = server.get_host_and_port()
connection = http.client.HTTPConnection("127.0.0.1", port)
connection.request("PUT", "/" + sys.argv[1])
answer = connection.getresponse()
assert answer.status == 200, answer.read()
answer.read()
connection.close()
print(port, flush=True)
sys.stdin.read()
server.stop()
