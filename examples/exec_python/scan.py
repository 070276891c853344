"""Counts lines and words of a text file: a handler with every way to end.

Payload: {"path": "sample.txt"}. The server's folder is the working directory.
"""

import json
import os
import sys

SKIP, FATAL, RETRYABLE = 77, 65, 75


def end(code, reason):
    """The last line of stderr is the reason that people see."""
    print(reason, file=sys.stderr)
    sys.exit(code)


def progress(done, total, note):
    line = json.dumps({"progress": {"done": done, "total": total, "note": note}})
    try:
        os.write(3, line.encode() + b"\n")
    except OSError:
        pass  # run by hand, without a descriptor 3


def main():
    call = json.load(sys.stdin)
    payload = call["payload"]
    path = payload.get("path") if isinstance(payload, dict) else None
    if not isinstance(path, str):
        end(FATAL, 'the payload has no "path"')  # will never get better: no retry
    try:
        size = os.path.getsize(path)
        if size == 0:
            end(SKIP, f"{path} is empty")  # counts as done
        lines = words = seen = 0
        with open(path, "rb") as file:
            for line in file:
                lines, words, seen = lines + 1, words + len(line.split()), seen + len(line)
                if lines % 1000 == 0:
                    progress(seen, size, f"{lines} lines")
    except FileNotFoundError:
        end(RETRYABLE, f"{path} is not there yet")  # may get better: tried again
    except OSError as error:
        end(FATAL, f"{path}: {error.strerror}")
    progress(size, size, "done")
    print(f"scanned {path} for {call['idempotency_key']}", file=sys.stderr)  # a log line
    json.dump({"lines": lines, "words": words, "bytes": size}, sys.stdout)


main()
