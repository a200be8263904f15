"""A server for tests: its argument says how it behaves."""

import json
import os
import sys
import threading
import time

BEHAVIOR = sys.argv[1] if len(sys.argv) > 1 else "good"
LOCK = threading.Lock()


def send(message):
    with LOCK:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def answer(id, result):
    send({"jsonrpc": "2.0", "id": id, "result": result})


def text(id, text):
    answer(id, {"content": [{"type": "text", "text": text}]})


def tool(name, **more):
    return {"name": name, "description": "does " + name, "inputSchema": {"type": "object"}, **more}


PAGES = {
    None: ([tool("echo", annotations={"readOnlyHint": True}), tool("do.it")], "2"),
    "2": ([tool("wait"), tool("die"), tool("huge"), tool("fail"), tool("env"), tool("log"), tool("picture")], None),
}

if BEHAVIOR == "sloppy":
    either = {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
    PAGES = {
        None: (
            [
                {"name": "bare"},
                tool("nulls", description=None, annotations=None, inputSchema=None),
                tool("untyped", inputSchema={"properties": {"a": {"type": "string"}}}),
                tool("either", inputSchema=either),
                {"description": "nobody"},
            ],
            None,
        )
    }


def call(id, name, arguments):
    if name == "echo":
        text(id, json.dumps(arguments, ensure_ascii=False))
    elif name == "wait":
        if arguments.get("file"):
            open(arguments["file"], "w").close()
        if not arguments.get("forever"):
            threading.Timer(arguments["seconds"], text, (id, "waited")).start()
    elif name == "die":
        print("I die", file=sys.stderr, flush=True)
        os._exit(3)
    elif name == "huge":
        sys.stdout.write("x" * (9 * 1024 * 1024))
        sys.stdout.flush()
        time.sleep(600)
    elif name == "picture":
        data = arguments["data"] * arguments.get("times", 1)
        answer(id, {"content": [{"type": "image", "mimeType": "image/png", "data": data}]})
    elif name == "fail":
        send({"jsonrpc": "2.0", "id": id, "error": {"code": -32000, "message": "it failed"}})
    elif name == "env":
        text(id, " ".join(sorted(os.environ)))
    elif name == "log":
        text(id, "; ".join(HEARD))
    else:
        text(id, "did " + name)


HEARD = []
if BEHAVIOR == "slow":
    time.sleep(600)
if BEHAVIOR == "dead":
    print("no license", file=sys.stderr, flush=True)
    sys.exit(1)
if BEHAVIOR == "garbage":
    print("Starting up...\n{not json\n[]\n7\n\n{}\n" + '{"id": 99, "result": 1}', flush=True)
send({"jsonrpc": "2.0", "method": "notifications/message", "params": {}})
send({"jsonrpc": "2.0", "id": "p", "method": "ping"})
send({"jsonrpc": "2.0", "id": 1, "method": "roots/list"})
for line in sys.stdin:
    message = json.loads(line)
    id, method, params = message.get("id"), message.get("method"), message.get("params") or {}
    if method == "initialize":
        answer(id, {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}})
    elif method == "tools/list":
        tools, cursor = PAGES[params.get("cursor")]
        answer(id, {"tools": tools, **({"nextCursor": cursor} if cursor else {})})
    elif method == "tools/call":
        call(id, params["name"], params.get("arguments") or {})
    elif method == "notifications/cancelled":
        HEARD.append("cancelled")
    elif method is None:
        HEARD.append("result" if "result" in message else str(message["error"]["code"]))
