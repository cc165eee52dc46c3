"""A service that charges every time it is asked, on port 3000: Python's own library, nothing to install.

    python3 charges.py [PORT]
"""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Charges(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    made = 0

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        Charges.made += 1
        self.answer(201, b'{"charge": "ch_%d"}\n' % Charges.made)

    def do_GET(self):
        self.answer(200, b'{"charges": %d}\n' % Charges.made)

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 3000), Charges).serve_forever()
