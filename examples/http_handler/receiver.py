"""Counts the words of a file, asked by Windlass over HTTP.

Verifies the signature first, as Standard Webhooks says; a try that comes again gets
the answer of the first one. Standard library only: python3 receiver.py [PORT]
"""

import base64, hashlib, hmac, json, os, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = base64.b64decode(open("hook.secret").read().strip().removeprefix("whsec_"))
OLDEST = 5 * 60  # seconds; an older request may be a recorded one
BODY_MAX = 16 * 1024 * 1024
answered = {}  # idempotency key -> answer; a database in real life


def is_genuine(headers, body):
    sent = headers.get("webhook-timestamp", "")
    if not sent.isdigit() or abs(time.time() - int(sent)) > OLDEST:
        return False
    signed = f"{headers.get('webhook-id', '')}.{sent}.".encode() + body
    wanted = "v1," + base64.b64encode(hmac.digest(SECRET, signed, hashlib.sha256)).decode()
    # There may be several signatures, while a secret is changed for another.
    given = headers.get("webhook-signature", "").split(" ")
    return any(hmac.compare_digest(wanted.encode(), one.encode()) for one in given)


def count(payload):
    """Status, headers and body of the answer."""
    path = payload.get("path")
    if path is None:
        return 422, {}, "the payload has no path"  # fatal: no retry
    if not os.path.exists(path):
        return 503, {"retry-after": "1"}, f"{path} is not there yet"  # tried again
    text = open(path).read()
    if not text:
        return 200, {"windlass-outcome": "skip"}, f"{path} is empty"  # skipped
    return 200, {}, json.dumps({"lines": text.count("\n"), "words": len(text.split())})


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are used again

    def do_POST(self):
        length = int(self.headers.get("content-length", 0))
        if length > BODY_MAX:
            return self.answer(413, {"connection": "close"}, "too large")
        body = self.rfile.read(length)
        if not is_genuine(self.headers, body):
            return self.answer(401, {}, "the signature does not fit")
        key = self.headers["idempotency-key"]
        if key not in answered:
            status, headers, text = count(json.loads(body)["payload"])
            if status != 200:
                return self.answer(status, headers, text)
            answered[key] = (status, headers, text)
        self.answer(*answered[key])

    def answer(self, status, headers, text):
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(text.encode()))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    print(f"listening on 127.0.0.1:{port}", flush=True)
    ThreadingHTTPServer(("127.0.0.1", port), Receiver).serve_forever()
