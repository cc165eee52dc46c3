"""A way to a bucket that counts: passes every request on, and writes a line about each.

    python count.py 127.0.0.1:9000 log.txt      prints its own address, then serves

A line is the method, the status, the part of the queue that the object belongs to, and the path.
"""

import http.client
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

SERVER, LOG = sys.argv[1:]


# Names of tasks, and of the folders that workers list.
TASKS = re.compile(r"/tasks/[0-9a-f][/&]|/tasks/[0-9a-f]?$|/(tasks|tenants)/(&|$)")


def part(target):
    """What the request is about: the record of a key, a task, or what opening the bucket needs."""
    name = unquote(target)
    if "/idempotency/" in name:
        return "idempotency"
    return "tasks" if TASKS.search(name) else "other"


class Counting(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def pass_on(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        server = http.client.HTTPConnection(SERVER)
        # The name that the caller signed is passed on with the rest.
        server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            server.putheader(name, value)
        server.endheaders(body)
        answer = server.getresponse()
        content = answer.read()
        # One write for each line, so that lines of several threads do not mix.
        with open(LOG, "a") as log:
            method = "LIST" if "list-type=" in self.path else self.command
            log.write(f"{method} {answer.status} {part(self.path)} {self.path}\n")
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "content-length", "transfer-encoding"):
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else len(content)
        if length is not None and answer.status != 204:
            self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(content)
        server.close()

    do_DELETE = do_GET = do_HEAD = do_POST = do_PUT = pass_on

    def log_message(self, *_):
        """The log has all of it."""


counting = ThreadingHTTPServer(("127.0.0.1", 0), Counting)
counting.daemon_threads = True
print("{}:{}".format(*counting.server_address), flush=True)
counting.serve_forever()
