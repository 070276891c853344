//! The configuration as people meet it: layers over each other, origins, files
//! of secrets, the commands. Each test has a folder and an environment of its
//! own, so none depends on the machine's.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)] // a test fails by panicking

use clap::Parser;
use std::path::Path;
use tempfile::TempDir;
use windlass_server::cli::config::{ConfigCommand, run_in};
use windlass_server::config;
use windlass_server::config::{Config, FileFlags, Loaded, Origins, Surroundings, json, load, text};

/// A folder, an environment and flags.
struct World {
    dir: TempDir,
    around: Surroundings,
    flags: FileFlags,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let around = Surroundings { dir: dir.path().to_owned(), ..Surroundings::default() };
        World { dir, around, flags: FileFlags::default() }
    }

    fn file(&self, name: &str, text: &str) -> &Self {
        let path = self.dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        self
    }

    fn variable(&mut self, name: &str, value: &str) -> &mut Self {
        self.around.variables.insert(name.to_owned(), value.to_owned());
        self
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn load(&self) -> Loaded {
        load(&self.flags, &self.around).unwrap_or_else(|error| panic!("{error}"))
    }

    fn mistakes(&self) -> Vec<String> {
        let error = load(&self.flags, &self.around).expect_err("a mistake");
        error.problems.iter().map(ToString::to_string).collect()
    }

    fn run(&self, command: &ConfigCommand) -> (i32, String) {
        let mut out = vec![];
        let code = run_in(command, &self.flags, &self.around, &mut out).unwrap();
        (code, String::from_utf8(out).unwrap())
    }
}

#[test]
fn each_layer_wins_over_those_before() {
    let mut world = World::new();
    let poll = |world: &World| {
        let loaded = world.load();
        (loaded.config.node.name.clone(), loaded.origin(&["node", "name"]).to_string())
    };
    let said = |name: &str, origin: &str| (name.to_owned(), origin.to_owned());
    assert_eq!(poll(&world), said("windlass", "default"));

    let xdg = world.path().join("xdg");
    world.variable("XDG_CONFIG_HOME", xdg.to_str().unwrap());
    world.file("xdg/windlass/windlass.toml", "[node]\nname = \"user\"\npoll = \"7s\"\n");
    let user = format!("{}/windlass/windlass.toml:2:1", xdg.display());
    assert_eq!(poll(&world), said("user", &user));

    world.file("windlass.toml", "# ours\n\n[node]\n  name = \"here\"\nlease = \"9s\"\n");
    assert_eq!(poll(&world), said("here", "windlass.toml:4:3"));

    world.file("etc/a.toml", "node.name = \"given\"\n");
    world.flags.config = Some("etc/a.toml".into());
    assert_eq!(poll(&world), said("given", "etc/a.toml:1:6"));

    world.variable("WINDLASS_NODE__NAME", "env");
    assert_eq!(poll(&world), said("env", "WINDLASS_NODE__NAME"));

    world.flags.node_name = Some("flag".to_owned());
    assert_eq!(poll(&world), said("flag", "--node-name"));

    // Key by key: what the upper layers do not say stays as below.
    let node = world.load().config.node;
    assert_eq!((node.poll.as_secs(), node.lease.as_secs()), (7, 9));
    assert_eq!(node.claim_max, 1000);
}

#[test]
fn the_users_file_is_also_found_at_home() {
    let mut world = World::new();
    let home = world.path().join("me");
    world.variable("HOME", home.to_str().unwrap());
    world.file("me/.config/windlass/windlass.toml", "[ui]\nmode = \"off\"\n");
    assert_eq!(world.load().config.ui.mode, config::UiMode::Off);
}

#[test]
fn tables_of_values_are_replaced_whole() {
    let mut world = World::new();
    world.file("windlass.toml", "[defaults]\nretry = { retries = 1, first = \"2s\" }\n");
    world.file("b.toml", "[defaults.retry]\nretries = 9\n");
    assert_eq!(world.load().config.defaults.retry.first.as_secs(), 2);
    world.flags.config = Some("b.toml".into());
    let retry = world.load().config.defaults.retry;
    assert_eq!((retry.retries, retry.first.as_secs(), retry.jitter), (9, 5, 0.1));
}

#[test]
fn variables_are_toml_where_they_can_be() {
    let mut world = World::new();
    world.file(
        "windlass.toml",
        "[kinds.\"file.ingest\"]\nsteps = [\"scan\"]\n[handlers.scan]\nexec = [\"sh\"]\n",
    );
    world
        .variable("WINDLASS_NODE__CLAIM_MAX", "17")
        .variable("WINDLASS_NODE__NAME", "42")
        .variable("WINDLASS_UI__MODE", "\"off\"")
        .variable("WINDLASS_SERVER__BODY_MAX", "1MiB")
        .variable("WINDLASS_SERVER__BULK_MAX", "4096")
        .variable("WINDLASS_DEFAULTS__RETRY", "{ retries = 2 }")
        .variable("WINDLASS_QUEUES__MEDIA__CONCURRENCY", "9")
        .variable("WINDLASS_KINDS__FILE_INGEST__QUEUE", "media")
        .variable("WINDLASS_HANDLERS__SCAN__EXEC", "[\"sh\", \"-c\", \"true\"]")
        // None of these is a key.
        .variable("WINDLASS_SERVER", "http://127.0.0.1:1")
        .variable("WINDLASS_TOKEN_FILE", "x")
        .variable("WINDLASS_LOG", "debug");
    let Config { node, ui, server, defaults, queues, kinds, handlers, .. } = world.load().config;
    assert_eq!((node.claim_max, node.name.as_str(), ui.mode.as_str()), (17, "42", "off"));
    assert_eq!((server.body_max.as_u64(), server.bulk_max.as_u64()), (1 << 20, 4096));
    assert_eq!((defaults.retry.retries, queues["media"].concurrency), (2, 9));
    assert_eq!(kinds["file.ingest"].queue.as_deref(), Some("media"));
    assert_eq!((kinds.len(), handlers["scan"].exec.len()), (1, 3));
}

#[test]
fn wrong_variables_are_told_by_name() {
    let table = [
        (
            "WINDLASS_NODE__CLAIM_MAX",
            "many",
            "`node.claim_max`: must be a whole number, not a string\nhint: write a whole number from 1 to 1000",
        ),
        (
            "WINDLASS_STORE__URLL",
            "x",
            "unknown key `urll` in [store]\nhint: did you mean `WINDLASS_STORE__URL`?",
        ),
        (
            "WINDLASS_STOR__URL",
            "x",
            "unknown key `stor`\nhint: did you mean `WINDLASS_STORE__URL`?",
        ),
        (
            "WINDLASS_DEFAULTS__RETRY__RETRIES",
            "1",
            "`defaults.retry` is one value\nhint: set it whole, with WINDLASS_DEFAULTS__RETRY",
        ),
        (
            "WINDLASS_LIMITS__X__RATE",
            "1/s",
            "`limits` is not supported by this version yet\nhint: leave it out",
        ),
        (
            "WINDLASS_SERVER__LISTEN",
            "0.0.0.0:7450",
            "`server.listen`: 0.0.0.0:7450 is not a loopback address\nhint: without sign-in Windlass listens on loopback only; set auth.mode = \"token\"",
        ),
    ];
    for (name, value, expected) in table {
        let mut world = World::new();
        world.variable(name, value);
        assert_eq!(world.mistakes(), [format!("{name}: {expected}")]);
    }
}

#[test]
fn mistakes_of_all_layers_are_told_at_once() {
    let mut world = World::new();
    world.file("windlass.toml", "[server]\nlisen = 1\n[kinds.a]\n\n  tasktimeout = \"1s\"\n");
    world.variable("WINDLASS_NODE__POLL", "soon");
    world.flags.store = Some("postgres://u:pw@h".to_owned());
    world.flags.config = Some("absent.toml".into());
    let told = world.mistakes();
    assert_eq!(
        told[0],
        "windlass.toml:2:1: unknown key `lisen` in [server]\nhint: did you mean `listen`?"
    );
    assert_eq!(
        told[1],
        "windlass.toml:5:3: unknown key `tasktimeout` in [kinds.a]\nhint: did you mean `task_timeout`?"
    );
    assert!(told[2].starts_with("absent.toml:1:1: cannot read this file"), "{told:?}");
    assert!(told[3].starts_with("WINDLASS_NODE__POLL: `node.poll`: `soon` is not"), "{told:?}");
    assert_eq!(
        told[4],
        "--store: `store.url`: `postgres:` is not supported by this version yet\nhint: use sqlite://windlass.db or memory:"
    );
    assert_eq!(told.len(), 5);
}

#[test]
fn findings_about_the_whole_have_places_too() {
    let world = World::new();
    world.file("windlass.toml", "[kinds.a]\nsteps = [\"scna\"]\n[handlers.scan]\n");
    assert_eq!(
        world.mistakes(),
        [
            "windlass.toml:2:1: kind `a` names the step `scna`, which has no handler\nhint: did you mean `scan`?",
            "windlass.toml:3:11: handler `scan` has neither `exec` nor `http`\nhint: write exec = [\"python3\", \"scan.py\"], or http = \"https://HOST/PATH\"",
        ]
    );
}

#[test]
fn values_can_come_from_files_and_are_not_shown() {
    let mut world = World::new();
    world.file("secret.url", "sqlite://hush.db\n");
    world.file("windlass.toml", "[store]\nurl_file = \"secret.url\"\n");
    let loaded = world.load();
    assert_eq!(loaded.config.store.url.expose(), "sqlite://hush.db");
    let shown = [
        text(&loaded, Origins::Shown),
        json(&loaded, Origins::Shown).to_string(),
        format!("{loaded:?}"),
        format!("{:?}", loaded.config),
    ];
    for shown in &shown {
        assert!(!shown.contains("hush"), "{shown}");
    }
    assert!(shown[0].contains("url_file = \"secret.url\"  # windlass.toml:2:1"), "{}", shown[0]);

    // A later layer may use the other form.
    world.variable("WINDLASS_STORE__URL", "memory:");
    assert_eq!(world.load().config.store.url.expose(), "memory:");
    world.variable("WINDLASS_STORE__URL_FILE", "secret.url");
    let told = world.mistakes();
    assert!(told[0].contains("another variable sets the same key"), "{told:?}");
}

#[test]
fn bad_files_of_values_are_told_without_their_content() {
    let world = World::new();
    world.file("secret.url", "postgres://user:hush@host\n");
    let table = [
        ("url_file = \"gone.url\"", "windlass.toml:2:12: `store.url_file`: cannot read gone.url"),
        ("url_file = \"\"", "windlass.toml:2:12: `store.url_file`: must name a file"),
        (
            "url = \"memory:\"\nurl_file = \"ok.url\"",
            "windlass.toml:3:1: both `store.url` and `store.url_file` are set",
        ),
        (
            "url_file = \"secret.url\"",
            "windlass.toml:2:12: `store.url_file`: secret.url does not hold",
        ),
    ];
    world.file("ok.url", "memory:");
    for (line, expected) in table {
        world.file("windlass.toml", &format!("[store]\n{line}\n"));
        let told = world.mistakes();
        assert!(told[0].starts_with(expected) && !told[0].contains("hush"), "{told:?}");
    }
}

#[test]
fn passwords_and_secret_variables_are_not_shown() {
    let world = World::new();
    let handler =
        "exec = [\"sh\"]\nenv = { API_KEY = \"hush\", LANG = \"C\", DB = \"x://u:hush@h\" }";
    world.file("windlass.toml", &format!("[handlers.a]\n{handler}\n"));
    let loaded = world.load();
    assert_eq!(loaded.config.handlers["a"].env["API_KEY"], "hush");
    let shown = text(&loaded, Origins::Hidden);
    for shown in [&shown, &format!("{loaded:?}"), &json(&loaded, Origins::Hidden).to_string()] {
        assert!(!shown.contains("hush") && shown.contains("***"), "{shown}");
    }
    assert!(shown.contains("LANG = \"C\""), "{shown}");
}

#[test]
fn what_an_http_handler_sends_is_not_shown() {
    let mut world = World::new();
    let secret = "whsec_aHVzaGh1c2hodXNoaHVzaGh1c2hodXNo";
    world.file("hook.secret", &format!("{secret}\n")).file("key.txt", "hush\r\n");
    let handler = "http = \"https://example.com/x?sig=hush\"\nsecret_file = \"hook.secret\"\n\
        headers = { X-Tenant = \"hush\", X-Key_file = \"key.txt\" }";
    world.file("windlass.toml", &format!("[handlers.a]\n{handler}\n"));
    let loaded = world.load();
    let a = &loaded.config.handlers["a"];
    assert_eq!(a.http.as_ref().unwrap().expose(), "https://example.com/x?sig=hush");
    assert_eq!(a.secret.as_ref().unwrap().expose(), secret);
    let sent = ["X-Key", "X-Tenant"].map(|name| (name.to_owned(), "hush".to_owned()));
    assert_eq!(a.headers, sent.into());
    let shown = text(&loaded, Origins::Shown);
    for shown in [&shown, &format!("{loaded:?}"), &json(&loaded, Origins::Hidden).to_string()] {
        assert!(!shown.contains("hush") && !shown.contains("aHVz"), "{shown}");
    }
    for part in [
        "example.com/***\"  # windlass.toml:2:1",
        "secret_file = \"hook.secret\"",
        "X-Key = \"***\"",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(loaded.warnings.len(), 0, "{:?}", loaded.warnings);

    world.variable("WINDLASS_HANDLERS__A__HTTP", "http://10.0.0.1/hush");
    let told = world.mistakes();
    let expected = "WINDLASS_HANDLERS__A__HTTP: handler `a`: `http`: 10.0.0.1 is a private address, \
        which is refused\nhint: set allow_private = true if it is meant";
    assert_eq!(told, [expected]);
    world.variable("WINDLASS_HANDLERS__A__ALLOW_PRIVATE", "true");
    assert!(world.load().config.handlers["a"].allow_private);
}

#[test]
fn a_header_stands_once() {
    let world = World::new();
    world.file("key.txt", "hush");
    let headers = "headers = { X-Key = \"hush\", X-Key_file = \"key.txt\" }";
    world.file("windlass.toml", &format!("[handlers.a]\nhttp = \"https://x\"\n{headers}\n"));
    let told = world.mistakes();
    assert!(told[0].contains("`handlers.a.headers`: `X-Key_file` stands twice"), "{told:?}");
    let headers = "headers = { X-Key = \"a\", x-key = \"b\" }";
    world.file("windlass.toml", &format!("[handlers.a]\nhttp = \"https://x\"\n{headers}\n"));
    assert!(world.mistakes()[0].contains("`x-key` stands twice"), "{:?}", world.mistakes());
}

#[test]
fn show_prints_what_holds_as_toml_that_says_the_same() {
    let mut world = World::new();
    world.file(
        "windlass.toml",
        "[queues.media]\n[kinds.\"a.b\"]\nsteps = [\"scan\"]\ndeadline = \"1h\"\nretry = { retries = 2 }\n[handlers.scan]\nexec = [\"sh\"]\n",
    );
    let before = world.load().config;
    let (code, shown) = world.run(&ConfigCommand::Show { origin: true });
    assert_eq!(code, 0);
    for line in [
        "listen = \"127.0.0.1:7450\"  # default",
        "[kinds.\"a.b\"]",
        "deadline = \"1h\"  # windlass.toml:4:1",
        "concurrency = 4  # default",
        "lease = \"30s\"  # default",
    ] {
        assert!(shown.lines().any(|l| l == line), "{line} is not in\n{shown}");
    }
    world.file("windlass.toml", &shown);
    assert_eq!(world.load().config, before);
    world.variable("WINDLASS_NODE__POLL", "3s");
    let json = json(&world.load(), Origins::Shown);
    assert_eq!(json["node"]["poll"]["value"], "3s");
    assert_eq!(json["node"]["poll"]["origin"], "WINDLASS_NODE__POLL");
    assert_eq!(json["kinds"]["a.b"]["retry"]["value"]["retries"], 2);
}

#[test]
fn check_says_ok_or_lists_what_is_wrong() {
    let world = World::new();
    assert_eq!(world.run(&ConfigCommand::Check), (0, "ok\n".to_owned()));
    world.file("windlass.toml", "[handlers.a]\nexec = [\"no-such-program-here\"]\n");
    let (code, out) = world.run(&ConfigCommand::Check);
    assert_eq!(code, 0);
    assert!(out.starts_with("warning: windlass.toml:2:1: handler `a`: there is no"), "{out}");
    assert!(out.ends_with("\nok\n"), "{out}");
    world.file("windlass.toml", "[ui]\nmode = \"of\"\n");
    let (code, out) = world.run(&ConfigCommand::Check);
    assert_eq!(code, 1);
    assert!(out.starts_with("windlass.toml:2:8: `ui.mode`: `of` is none of"), "{out}");
}

#[test]
fn print_default_passes_check_and_changes_nothing() {
    let world = World::new();
    let (code, printed) = world.run(&ConfigCommand::PrintDefault);
    assert_eq!(code, 0);
    world.file("windlass.toml", &printed);
    assert_eq!(world.run(&ConfigCommand::Check), (0, "ok\n".to_owned()));
    assert_eq!(world.load().config, Config::default());
}

#[test]
fn the_example_of_the_guide_holds() {
    let guide = include_str!("../../../docs/guide/configuration.md");
    let example = |n: usize| guide.split("```toml\n").nth(n).unwrap().split("```").next().unwrap();
    let world = World::new();
    world.file("windlass.toml", &format!("{}\n{}", example(1), example(2)));
    let loaded = world.load();
    assert_eq!(loaded.origin(&["server", "listen"]).to_string(), "windlass.toml:2:1");
    assert_eq!(loaded.origin(&["node", "name"]).to_string(), "windlass.toml:11:1");
    assert_eq!(loaded.config.kinds["index"].queue.as_deref(), Some("media"));
}

#[derive(Debug, Parser)]
struct Line {
    #[command(subcommand)]
    command: ConfigCommand,
    #[command(flatten)]
    flags: FileFlags,
}

#[test]
fn the_command_line_reads_its_flags() {
    let line = ["x", "--store", "memory:", "--role", "worker", "show", "--origin"];
    let line = Line::try_parse_from(line).unwrap();
    assert_eq!(line.command, ConfigCommand::Show { origin: true });
    let world = World { flags: line.flags, ..World::new() };
    let told = world.mistakes();
    assert!(told[0].starts_with("--role: role `worker` needs a store"), "{told:?}");
    let line = Line::try_parse_from(["x", "print-default"]).unwrap();
    assert_eq!(line.command, ConfigCommand::PrintDefault);
}
