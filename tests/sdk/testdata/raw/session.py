"""A session with the standard library alone: python3 session.py SOCKET. It asks the test to
kill the daemon in the middle ("kill", "launch" on its output)."""
import base64
import http.client
import json
import socket
import sys
import time


class Unix(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(sys.argv[1])


def call(method, path, body=None):
    connection = Unix("caisson")
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body)
    connection.request(method, "/v1" + path, body)
    return connection.getresponse()


def ask(method, path, body=None):
    answer = call(method, path, body)
    value = json.loads(answer.read())
    assert answer.status in (200, 201), value
    return value


def say(word):
    print(word, flush=True)
    sys.stdin.readline()


def data(event):
    return event["text"].encode() if "text" in event else base64.b64decode(event["data"])


ask("POST", "/sandboxes", {"name": "raw-py"})
script = "trap 'echo caught' USR1; read a; read b; echo $a $b; for i in $(seq 2000); do echo line $i; done; sleep 1; stty size; exit 3"
started = json.loads(call("POST", "/sandboxes/raw-py/execs", {"exec": {"shell": script, "stdin": True, "tty": {"rows": 5, "cols": 40}}}).readline())
path = "/sandboxes/raw-py/execs/" + started["started"]["exec"]["id"]
ask("POST", path + "/input", {"offset": "0", "data": base64.b64encode(b"one\n").decode()})
ask("POST", path + "/input", {"offset": "0", "data": base64.b64encode(b"one\ntwo\n").decode()})  # a part is there
ask("POST", path + "/resize", {"size": {"rows": 7, "cols": 50}})
got, killed, result = b"", False, None
while result is None:
    stream = call("POST", path + "/attach?stdout_offset=%d" % len(got))
    for line in iter(stream.readline, b""):
        event = json.loads(line)
        if "stdout" in event:
            piece = event["stdout"]
            assert int(piece.get("offset", 0)) == len(got), (piece, len(got))
            got += data(piece)
        if "exit" in event:
            result = event["exit"]
        if len(got) > 5000 and not killed:
            killed = True
            stream.close()
            say("kill")
            say("launch")
            break
text = got.decode().replace("\r\n", "\n")
want = "".join("line %d\n" % (i + 1) for i in range(2000))
assert want in text and "one two\n" in text and text.endswith("7 50\n"), text[-300:]
assert result["exit_code"] == 3, result
answer = call("PUT", "/sandboxes/raw-py/files/tmp/x%20y?make_parents=true", b"\x00\xff" * 100000)
assert answer.status in (200, 201), answer.read()
assert call("GET", "/sandboxes/raw-py/files/tmp/x%20y").read() == b"\x00\xff" * 100000
ask("DELETE", "/sandboxes/raw-py?force=true")
print("ok")
