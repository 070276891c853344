#!/usr/bin/env python3
"""A Windlass worker with nothing but the standard library. Take it as a template:
put your functions into KINDS, keep the rest. README.md says how to run it.

A function gets a Task. `task.step(name, fn)` runs fn once, however often the task is
tried; `task.check()` between pieces of long work obeys cancel, pause and stop; what
the function returns is the result. Raise Retry to try again; other errors are final."""

import contextlib, hashlib, json, os, random, re, signal, sys, threading, time
import urllib.error, urllib.request

SERVER = os.environ.get("WINDLASS_SERVER", "http://127.0.0.1:7450").rstrip("/")
NAME = os.environ.get("WINDLASS_WORKER", f"python-{os.getpid()}")
SLOTS, GRACE = int(os.environ.get("WINDLASS_SLOTS", 4)), float(os.environ.get("WINDLASS_GRACE", 3))
HEARTBEAT = 0.5  # seconds while anything is held; at most a third of the server's lease
UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
HEADERS = {"Content-Type": "application/json"}
if os.environ.get("WINDLASS_TOKEN"):
    HEADERS["Authorization"] = "Bearer " + os.environ["WINDLASS_TOKEN"]

class Retry(Exception): "Try again later, by the rules of the kind."
class Release(Exception): "Back to the queue, nothing burnt: pause, stop, a lost lease."
class LeaseLost(Exception): "The lease of this worker has ended."

class Task:
    def __init__(self, worker, lease):
        about, checkpoint = lease["task"], lease["checkpoint"] or {}
        self.worker, self.token, self.payload = worker, lease["token"], lease["payload"]
        self.id, self.kind, self.attempt = about["id"], about["kind"], about["attempt"]
        self.key = about["idempotency_prefix"]  # with ":STEP" the idempotency key of that step
        self.version, self.data = checkpoint.get("version", 0), dict(checkpoint.get("data", {}))
        self.finished = {step["name"] for step in checkpoint.get("completed", [])}
        self.wanted, self.lost = threading.Event(), False  # to stop; it is not ours any more

    def step(self, name, fn):
        """Runs fn unless it is recorded; its output, a dict, is merged into data."""
        if name not in self.finished:
            self.check()
            output, self.version = fn(), self.version + 1
            self.say("step", dict(name=name, outcome="done", output=output, version=self.version))
            self.finished.add(name)
            self.data.update(output or {})
        return self.data

    def progress(self, done, total=0, note=None):
        self.say("progress", {"done": done, "total": total, "note": note})

    def stop(self, lost):
        self.lost |= lost
        self.wanted.set()

    def check(self):
        if self.wanted.is_set() or self.worker.hurry.is_set(): raise Release()

    def sleep(self, seconds):
        """A wait that ends early when something is wanted."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.wanted.wait(min(0.1, left)); self.check()

    def say(self, what, words):
        result = self.worker.report([{"task": self.id, "token": self.token, what: words}])[0]
        if result != "ok":
            self.stop(lost=result == "lease-lost")
            raise Release() if self.lost else ValueError(f"the {what} was refused: {result}")

class Worker:
    def __init__(self):
        self.id, self.idle, self.held, self.lock = None, 0, {}, threading.Lock()
        self.stopping, self.hurry = threading.Event(), threading.Event()

    def call(self, path, body):  # repeated with backoff until the server answers
        request = urllib.request.Request(SERVER + path, json.dumps(body).encode(), HEADERS)
        pause = 0.1
        while True:
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                told = error.read().decode(errors="replace")
                if error.code == 409: raise LeaseLost(told) from None
                print(f"{path}: {error.code} {told}", file=sys.stderr)
                if error.code < 500 and error.code != 429: os._exit(1)  # no repeating helps
            except OSError as error:
                print(f"{SERVER} does not answer: {error}", file=sys.stderr)
            if self.hurry.is_set(): raise Release()
            time.sleep(pause * random.uniform(0.5, 1))
            pause = min(pause * 2, 5)

    def report(self, reports, leaving=False):
        """Says what is held, which is the heartbeat, and what there is to report."""
        with self.lock:
            me, held = self.id, dict(self.held)
        names = [{"task": task.id, "token": task.token} for task in held.values()]
        body = {"worker_id": me, "held": names, "reports": reports, "leaving": leaving}
        try:
            if me is None: raise LeaseLost()
            answer = self.call("/v1/worker/report", body)
        except LeaseLost:  # what we held is somebody else's now
            with self.lock:
                self.id = None if self.id == me else self.id
            for task in held.values(): task.stop(lost=True)
            return ["lease-lost"] * len(reports)
        for request in answer["requests"]:  # cancel or pause: what we do is the same
            task = held.get(request["task"])
            if task: task.stop(request.get("lost", False))
        return answer["results"]

    def heartbeat(self):  # also when nothing is held: an answer may have been lost
        said = 0
        while not self.hurry.wait(HEARTBEAT):
            if self.id and (self.held or time.monotonic() - said >= self.idle):
                said = time.monotonic()
                with contextlib.suppress(Release): self.report([])

    def run(self, task):
        try:
            finish = {"outcome": "done", "output": KINDS[task.kind](task)}
        except Release:
            finish = {"outcome": "release"}
        except Retry as error:
            finish = {"outcome": "retry", "error": str(error)}
        except Exception as error:
            finish = {"outcome": "fail", "error": f"{type(error).__name__}: {error}"}
        try:
            if not task.lost: task.say("finish", finish)
        except ValueError as error:  # it must not stay ours for ever
            task.say("finish", {"outcome": "fail", "error": str(error)})
        except Release: pass  # the lease ends by itself
        finally:
            with self.lock:
                self.held = {id: one for id, one in self.held.items() if one is not task}

    def serve(self):
        threading.Thread(target=self.heartbeat, daemon=True).start()
        while not self.stopping.is_set():
            free, me = SLOTS - len(self.held), self.id
            if free <= 0:
                time.sleep(0.02); continue
            try:
                answer = self.call("/v1/worker/lease", {"worker": NAME, "worker_id": me,
                                   "kinds": list(KINDS), "max": free, "wait": "1s"})
            except LeaseLost:
                self.report([])  # is told the same, and starts anew
                continue
            except Release:
                break
            tasks = [Task(self, lease) for lease in answer["leases"]]
            words = re.findall(r"(\d+)([a-z]+)", answer["lease"])  # as in 1m30s
            lease = sum(int(number) * UNITS[unit] for number, unit in words)
            with self.lock:
                self.id, self.idle = answer["worker_id"], lease / 3
                self.held.update((task.id, task) for task in tasks)
            for task in tasks:
                threading.Thread(target=self.run, args=(task,), daemon=True).start()
        until = time.monotonic() + GRACE + 2  # they finish, or are released in a hurry
        while self.held and time.monotonic() < until:
            time.sleep(0.02)
        self.hurry.set()
        with contextlib.suppress(Release):
            self.report([], leaving=True)

def steps(task):
    for name in ("a", "b", "c"):
        task.step(name, lambda: {name: task.attempt})
        if task.payload.get("die_after") == name and task.attempt == 1:
            os._exit(9)  # as a crash would
        task.sleep(task.payload.get("pause", 0))
    return task.data

def retry(task):
    if task.attempt < 3: raise Retry(f"attempt {task.attempt} of 3")

def progress(task):
    for done in (1, 2, 3):
        task.progress(done, 3, f"part {done}")

def digest(task):
    """A real one: the sha256 of a file, piece by piece, with progress."""
    path, hasher = task.payload["path"], hashlib.sha256()
    size = task.step("measure", lambda: {"bytes": os.path.getsize(path)})["bytes"]
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            hasher.update(piece)
            task.progress(file.tell(), size)
            task.check()
    return {"bytes": size, "sha256": hasher.hexdigest()}

KINDS = {"file.digest": digest, "test.echo": lambda task: task.payload, "test.steps": steps,
         "test.fail": lambda task: task.payload["what is not there"], "test.retry": retry,
         "test.progress": progress, "test.sleep": lambda task: task.sleep(task.payload["seconds"])}

def stop(*_):
    worker.stopping.set()
    threading.Thread(target=lambda: (time.sleep(GRACE), worker.hurry.set()), daemon=True).start()

worker = Worker()
for number in (signal.SIGTERM, signal.SIGINT): signal.signal(number, stop)
worker.serve()
