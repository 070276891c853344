//! Fifty secrets that must show nowhere: in the configuration, in the headers of
//! requests, in the environment of the server, in hidden fields of tasks. Handlers
//! here tell everything they know. Then every log line, metric, page, event,
//! answer and command is looked through.

use crate::rig::{Folder, Ran, Server, until};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;

/// Says all it was given, in every way a handler can, and then ends as told.
const LEAKY: &str = r#"
import json, os, sys
text = sys.stdin.read()
call = json.loads(text)
print(text, file=sys.stderr)
print(dict(os.environ), file=sys.stderr)
os.write(3, json.dumps({"progress": {"done": 1, "total": 2, "note": text[:900], "data": call["payload"]}}).encode() + b"\n")
how = call["payload"]["how"]
if how == "output":
    print("no JSON: " + text)
    sys.exit(0)
if how == "done":
    json.dump({"seen": call["payload"], "n": call["context"]}, sys.stdout)
    sys.exit(0)
secrets = [v for v in call["payload"].values() if isinstance(v, str)]
print("cannot go on with " + " ".join(secrets), file=sys.stderr)
sys.exit({"fatal": 65, "retry": 75, "skip": 77, "unknown": 3}[how])
"#;

/// Secrets by what they are.
#[derive(Default)]
struct Canaries(BTreeMap<String, String>);

impl Canaries {
    fn hatch(&mut self, what: &str) -> String {
        let canary = format!("canary{:03}x{}", self.0.len(), what.replace([' ', '-'], ""));
        self.0.insert(what.to_owned(), canary.clone());
        canary
    }

    fn keep(&mut self, what: &str, secret: String) -> String {
        self.0.insert(what.to_owned(), secret.clone());
        secret
    }

    #[track_caller]
    fn in_none_of(&self, place: &str, text: &str) {
        for (what, canary) in &self.0 {
            if let Some(at) = text.find(canary.as_str()) {
                let from = text.floor_char_boundary(at.saturating_sub(200));
                panic!("{place} shows the {what}: …{}", &text[from..(at + canary.len())]);
            }
        }
    }
}

/// A receiver that refuses everything and says all it was sent.
fn echo() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut heard = vec![0; 64 * 1024];
            let mut length = 0;
            // The document is one line.
            while !heard[..length].ends_with(b"}\n") {
                length += stream.read(&mut heard[length..]).unwrap();
            }
            let body = String::from_utf8_lossy(&heard[..length]).into_owned();
            let head = format!("HTTP/1.1 400 Bad\r\ncontent-length: {}\r\n\r\n", body.len());
            stream.write_all((head + &body).as_bytes()).unwrap();
        }
    });
    at
}

struct Held {
    server: Server,
    canaries: Canaries,
    root: String,
    viewer: String,
    /// The name of a field, and the secret in it.
    fields: Vec<(String, String)>,
}

fn start() -> Held {
    let mut canaries = Canaries::default();
    let folder = Folder::new();
    folder.write("leaky.py", LEAKY);
    let env: String = (0..8)
        .map(|i| format!("KEY_{i} = \"{}\"\n", canaries.hatch(&format!("configured variable {i}"))))
        .collect();
    let (at, bearer, key) =
        (echo(), canaries.hatch("bearer of http"), canaries.hatch("header of http"));
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned();
    let secret = canaries.keep("signing secret", secret);
    folder.write(
        "windlass.toml",
        &format!(
            "[store]\nurl = \"sqlite://w.db\"\n[auth]\nmode = \"token\"\n\
             [redact]\nfields = [\"password\", \"card.number\", \"secrets.*\", \"hide0\", \
             \"hide1\", \"hide2\", \"hide3\", \"hide4\", \"hide5\", \"hide6\", \"hide7\"]\n\
             [defaults]\nstep_retry = {{ retries = 0 }}\nretry = {{ retries = 0 }}\n\
             [kinds.leak]\nsteps = [\"leaky\", \"again\"]\n\
             [handlers.echo]\nhttp = \"http://{at}/\"\nallow_private = true\n\
             secret = \"{secret}\"\n\
             headers = {{ Authorization = \"Bearer {bearer}\", X-Key = \"{key}\" }}\n\
             [handlers.again]\nexec = [\"python3\", \"leaky.py\"]\n\
             [handlers.leaky]\nexec = [\"python3\", \"leaky.py\"]\n[handlers.leaky.env]\n{env}"
        ),
    );
    let create = ["token", "create", "root", "--role", "admin", "--tokens-file", "tokens.toml"];
    let root = folder.run(&create).ok().stdout.trim_end().to_owned();
    let root = canaries.keep("token of root", root);
    let variables: Vec<(String, String)> = (0..10)
        .map(|i| (format!("SECRET_{i}"), canaries.hatch(&format!("variable of the server {i}"))))
        .collect();
    let server = Server::serve_with(folder, &["-vv"], &variables);
    let made = with(&server, &root, &["token", "create", "eve", "--role", "viewer"]);
    let viewer = canaries.keep("token of a viewer", made.ok().stdout.trim_end().to_owned());
    let names = ["password", "number", "a", "b", "hide0", "hide1", "hide2", "hide3", "hide4"];
    let names = names.iter().chain(&["hide5", "hide6", "hide7"]);
    let fields =
        names.map(|name| ((*name).to_owned(), canaries.hatch(&format!("field {name}")))).collect();
    Held { server, canaries, root, viewer, fields }
}

fn with(server: &Server, token: &str, arguments: &[&str]) -> Ran {
    server.command(arguments).env("WINDLASS_TOKEN", token).output().unwrap().into()
}

impl Held {
    fn payload(&self, how: &str) -> String {
        let of = |name: &str| &self.fields.iter().find(|(n, _)| n == name).unwrap().1;
        let mut payload = serde_json::json!({
            "how": how, "password": of("password"), "card": [{"number": of("number")}],
            "secrets": {"a": of("a"), "b": {"deep": of("b")}},
        });
        for (name, secret) in self.fields.iter().filter(|(name, _)| name.starts_with("hide")) {
            payload[name] = secret.as_str().into();
        }
        payload.to_string()
    }

    /// Tasks that end in every way.
    fn work(&self) -> Vec<String> {
        let hows = ["done", "fatal", "retry", "unknown", "skip", "output"];
        let mut ids = vec![];
        for how in hows {
            let data = self.payload(how);
            let arguments = ["submit", "leak", "--data", &data, "-o", "id"];
            let id = with(&self.server, &self.root, &arguments).ok().stdout.trim_end().to_owned();
            with(&self.server, &self.root, &["task", "wait", &id]);
            ids.push(id);
        }
        let arguments = ["submit", "echo", "--data", &self.payload("any"), "-o", "id"];
        let id = with(&self.server, &self.root, &arguments).ok().stdout.trim_end().to_owned();
        with(&self.server, &self.root, &["task", "wait", &id]).fails(10);
        let told = with(&self.server, &self.root, &["task", "show", &id, "-o", "json"]).ok();
        let detail = told.json()["failure"]["detail"].as_str().unwrap_or_default().to_owned();
        assert!(detail.contains("authorization: [redacted]"), "nothing came back: {told:?}");
        ids.push(id);
        ids
    }

    /// Requests whose headers hold secrets, all of them refused or ignored.
    fn knock(&mut self, client: &reqwest::Client, runtime: &tokio::runtime::Runtime) {
        let headers = [
            "authorization",
            "proxy-authorization",
            "cookie",
            "x-api-key",
            "x-auth-token",
            "x-amz-security-token",
            "referer",
            "x-forwarded-authorization",
            "private-token",
            "x-csrf-token",
            "idempotency-key",
            "traceparent",
        ];
        for (i, name) in headers.into_iter().enumerate() {
            let canary = self.canaries.hatch(&format!("header {name}"));
            let value = match name {
                "authorization" => format!("Bearer wl_0123456789ab_{canary}"),
                _ => canary,
            };
            let bad = if i % 2 == 0 { "{" } else { "{\"kind\":\"nobody\"}" };
            let request = client.post(format!("{}/v1/tasks", self.server.url)).body(bad);
            let request = match name {
                "authorization" => request.header(name, value),
                _ => request.header(name, value).bearer_auth(&self.root),
            };
            let refused = runtime.block_on(async {
                let response = request.send().await.unwrap();
                (response.status().as_u16(), response.text().await.unwrap())
            });
            assert!((400..500).contains(&refused.0), "{refused:?}");
            self.canaries.in_none_of("a refusal", &refused.1);
        }
    }
}

#[test]
fn fifty_secrets_show_nowhere() {
    windlass_server::tls::use_ring();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = reqwest::Client::new();
    let mut held = start();
    held.knock(&client, &runtime);
    let ids = held.work();
    while held.canaries.0.len() < 50 {
        let n = held.canaries.0.len();
        let canary = held.canaries.hatch(&format!("token that is no token {n}"));
        with(&held.server, &canary, &["task", "list"]).fails(4);
    }
    assert!(held.canaries.0.len() >= 50);
    let Held { server, canaries, viewer, .. } = &held;
    // The handlers did tell: what is kept for operators has it.
    let whole = with(server, &held.root, &["task", "show", &ids[1], "-o", "json"]).ok().stdout;
    assert!(held.fields.iter().all(|(_, secret)| whole.contains(secret)), "{whole}");
    until("the end of the log", || server.log().contains("cannot go on with").then_some(()));
    assert!(server.log().contains("[redacted]"));
    canaries.in_none_of("the log", &server.log());

    let get = |path: &str| {
        let request = client.get(format!("{}{path}", server.url)).bearer_auth(viewer);
        runtime.block_on(async { request.send().await.unwrap().text().await.unwrap() })
    };
    let mut paths: Vec<String> = [
        "/",
        "/metrics",
        "/readyz?verbose",
        "/v1/tasks",
        "/v1/stats",
        "/v1/events?limit=500",
        "/v1/dead-letters",
        "/v1/dead-letters?group_by=error",
        "/v1/dead-letters/export",
        "/v1/audit",
        "/v1/kinds",
        "/v1/nodes",
        "/v1/queues",
    ]
    .map(str::to_owned)
    .into();
    for id in &ids {
        let parts = ["", "/attempts", "/history", "/logs", "/result", "/checkpoint", "/why"];
        paths.extend(parts.iter().map(|part| format!("/v1/tasks/{id}{part}")));
        paths.push(format!("/v1/dead-letters/{id}"));
    }
    for path in &paths {
        canaries.in_none_of(path, &get(path));
    }
    for arguments in [
        &["task", "list", "-o", "json"][..],
        &["task", "show", &ids[1]],
        &["task", "logs", &ids[1]],
        &["dead", "list"],
        &["dead", "show", &ids[1]],
        &["config", "show", "--origin"],
        &["doctor"],
        &["config", "check"],
    ] {
        let ran = with(server, viewer, arguments);
        canaries.in_none_of(&arguments.join(" "), &format!("{}{}", ran.stdout, ran.stderr));
    }
}
