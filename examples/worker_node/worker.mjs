#!/usr/bin/env node
// A Windlass worker for Node 20 without packages. Take it as a template: put your
// functions into KINDS, keep the rest. README.md says how to run it.
//
// A function gets a Task. `await task.step(name, fn)` runs fn once, however often the
// task is tried; `task.check()` between pieces of long work obeys cancel, pause and
// stop; what the function returns is the result. Throw Retry to try again.

import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";

const env = process.env;
const SERVER = (env.WINDLASS_SERVER ?? "http://127.0.0.1:7450").replace(/\/$/, "");
const NAME = env.WINDLASS_WORKER ?? `node-${process.pid}`;
const [SLOTS, GRACE] = [Number(env.WINDLASS_SLOTS ?? 4), Number(env.WINDLASS_GRACE ?? 3) * 1000];
const HEARTBEAT = 500; // milliseconds while anything is held; at most a third of the lease
const UNITS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

class Retry extends Error {} // try again later, by the rules of the kind
class Release extends Error {} // back to the queue: pause, stop, a lost lease
class LeaseLost extends Error {} // this worker's own lease has ended
const LOST = { wanted: true, lost: true }; // of a task that is not ours any more
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

class Task {
  constructor(worker, { task, token, payload, checkpoint }) {
    Object.assign(this, { worker, token, payload });
    Object.assign(this, { id: task.id, kind: task.kind, attempt: task.attempt });
    this.key = task.idempotency_prefix; // with ":STEP" the idempotency key of that step
    this.version = checkpoint?.version ?? 0;
    this.data = { ...checkpoint?.data };
    this.finished = new Set((checkpoint?.completed ?? []).map((step) => step.name));
    this.wanted = this.lost = false; // somebody wants it stopped; it is not ours any more
  }
  // Runs fn unless it is recorded; its output, an object, is merged into data.
  async step(name, fn) {
    if (!this.finished.has(name)) {
      this.check();
      const output = await fn();
      await this.say("step", { name, outcome: "done", output, version: ++this.version });
      this.finished.add(name);
      Object.assign(this.data, output);
    }
    return this.data;
  }
  progress = (done, total = 0, note = null) => this.say("progress", { done, total, note });
  check() {
    if (this.wanted || this.lost || this.worker.hurry) throw new Release();
  }
  // A wait that ends early when something is wanted.
  async sleep(ms) {
    for (const until = Date.now() + ms; Date.now() < until; this.check()) await sleep(20);
  }
  async say(what, words) {
    const report = { task: this.id, token: this.token, [what]: words };
    const [result] = await this.worker.report([report]);
    if (result === "lease-lost") Object.assign(this, LOST);
    if (this.lost) throw new Release();
    if (result !== "ok") throw new Error(`the ${what} was refused: ${result}`);
  }
}

class Worker {
  id = null;
  held = new Map();
  stopping = false; // take nothing new
  hurry = false; // give back what still runs
  // One call; repeated with backoff until the server answers.
  async call(path, body) {
    const headers = { "content-type": "application/json" };
    if (env.WINDLASS_TOKEN) headers.authorization = `Bearer ${env.WINDLASS_TOKEN}`;
    for (let pause = 100; ; pause = Math.min(pause * 2, 5000)) {
      const signal = AbortSignal.timeout(30_000);
      const request = { method: "POST", headers, body: JSON.stringify(body), signal };
      try {
        const answer = await fetch(SERVER + path, request);
        if (answer.ok) return await answer.json();
        const problem = await answer.json().catch(() => ({}));
        if (answer.status === 409) throw new LeaseLost(problem.code);
        console.error(`${path}: ${problem.detail}; ${problem.hint}`);
        if (answer.status < 500 && answer.status !== 429) process.exit(1);
      } catch (error) {
        if (error instanceof LeaseLost) throw error;
        console.error(`${SERVER} does not answer: ${error.cause?.message ?? error.message}`);
      }
      if (this.hurry) throw new Release();
      await sleep(pause * (0.5 + Math.random() / 2));
    }
  }

  // Says what is held, which is the heartbeat, and what there is to report.
  async report(reports, leaving = false) {
    const held = [...this.held.values()].map(({ id, token }) => ({ task: id, token }));
    const body = { worker_id: this.id, held, reports, leaving };
    try {
      if (!this.id) throw new LeaseLost();
      const { results, requests } = await this.call("/v1/worker/report", body);
      for (const { task: id, lost } of requests) {
        const task = this.held.get(id);
        if (task) Object.assign(task, lost ? LOST : { wanted: true });
      }
      return results;
    } catch (error) {
      if (!(error instanceof LeaseLost)) throw error;
      if (this.id === body.worker_id) this.id = null; // what we held is somebody else's now
      for (const { task: id } of held) Object.assign(this.held.get(id) ?? {}, LOST);
      return reports.map(() => "lease-lost");
    }
  }

  async run(task) {
    let finish;
    try {
      finish = { outcome: "done", output: (await KINDS[task.kind](task)) ?? null };
    } catch (error) {
      if (error instanceof Release) finish = { outcome: "release" };
      else if (error instanceof Retry) finish = { outcome: "retry", error: error.message };
      else finish = { outcome: "fail", error: `${error.name}: ${error.message}` };
    }
    const end = async (words) => task.lost || task.say("finish", words); // else it ends by itself
    const refused = (e) => e instanceof Release || end({ outcome: "fail", error: e.message });
    await end(finish).catch(refused).catch(() => {});
    if (this.held.get(task.id) === task) this.held.delete(task.id);
  }

  async serve() {
    let [said, idle] = [0, 0]; // when; how long at most while nothing is held
    const beat = setInterval(() => { // also when nothing is held: an answer may have been lost
      if (!this.id || this.hurry || (!this.held.size && Date.now() - said < idle)) return;
      said = Date.now();
      this.report([]).catch(() => {});
    }, HEARTBEAT);
    while (!this.stopping) {
      const max = SLOTS - this.held.size;
      if (max <= 0) { await sleep(20); continue; }
      const body = { worker: NAME, worker_id: this.id, kinds: Object.keys(KINDS), max, wait: "1s" };
      try {
        const answer = await this.call("/v1/worker/lease", body);
        this.id = answer.worker_id;
        const words = [...answer.lease.matchAll(/(\d+)([a-z]+)/g)]; // as in 1m30s
        idle = words.reduce((sum, [, n, unit]) => sum + n * UNITS[unit], 0) / 3;
        for (const task of answer.leases.map((lease) => new Task(this, lease))) {
          this.held.set(task.id, task);
          this.run(task);
        }
      } catch (error) {
        if (error instanceof Release) break;
        if (!(error instanceof LeaseLost)) throw error;
        await this.report([]); // is told the same, and starts anew
      }
    }
    const until = Date.now() + GRACE + 2000; // they finish, or are released in a hurry
    while (this.held.size && Date.now() < until) await sleep(20);
    clearInterval(beat);
    this.hurry = true;
    await this.report([], true).catch(() => {});
  }
}

async function steps(task) {
  for (const name of ["a", "b", "c"]) {
    await task.step(name, () => ({ [name]: task.attempt }));
    if (task.payload.die_after === name && task.attempt === 1) process.kill(process.pid, "SIGKILL");
    await task.sleep((task.payload.pause ?? 0) * 1000);
  }
  return task.data;
}

const KINDS = {
  "test.steps": steps,
  "test.echo": (task) => task.payload,
  "test.fail": () => { throw new Error("told to fail"); },
  "test.retry": ({ attempt }) => { if (attempt < 3) throw new Retry(`attempt ${attempt} of 3`); },
  "test.sleep": (task) => task.sleep(task.payload.seconds * 1000),
  "test.progress": async (task) => {
    for (const done of [1, 2, 3]) await task.progress(done, 3, `part ${done}`);
  },
  // A real one: sha256 of a file, piece by piece, with progress.
  "file.digest": async (task) => {
    const { path } = task.payload;
    const { bytes } = await task.step("measure", async () => ({ bytes: (await stat(path)).size }));
    const hash = createHash("sha256");
    let done = 0;
    for await (const piece of createReadStream(path, { highWaterMark: 1 << 20 })) {
      hash.update(piece);
      await task.progress((done += piece.length), bytes);
      task.check();
    }
    return { bytes, sha256: hash.digest("hex") };
  },
};

const worker = new Worker();
for (const name of ["SIGTERM", "SIGINT"]) process.on(name, () => {
  worker.stopping = true;
  setTimeout(() => (worker.hurry = true), GRACE).unref();
});
await worker.serve();
