//! A secret in the configuration is in no output, whatever goes wrong with it.
//! Each case looks at both streams and at the log of servers that do start.

use crate::rig::{Folder, Ran, Server, free_port};

const SECRET: &str = "hunter2sEcret";

fn keeps_quiet(ran: &Ran) {
    assert!(!ran.stdout.contains(SECRET) && !ran.stderr.contains(SECRET), "{ran:?}");
    assert_ne!(ran.code, 0, "nothing went wrong: {ran:?}");
}

#[test]
fn urls_that_are_refused() {
    let urls = [
        format!("postgres://ann:{SECRET}@db.example/x"),
        format!("nonsense://ann:{SECRET}@db.example/x"),
        format!("sqlite://x.db?password={SECRET}"),
        format!("sqlite://no/such/folder/x.db?password={SECRET}"),
    ];
    for url in &urls {
        let folder = Folder::new();
        keeps_quiet(&folder.run(&["serve", "--listen", "127.0.0.1:0", "--store", url]));
        let mut variable = folder.command(&["serve", "--listen", "127.0.0.1:0"]);
        keeps_quiet(&variable.env("WINDLASS_STORE__URL", url).output().unwrap().into());
        folder.write("windlass.toml", &format!("[store]\nurl = \"{url}\"\n"));
        keeps_quiet(&folder.run(&["serve", "-vv", "--listen", "127.0.0.1:0"]));
        keeps_quiet(&folder.run(&["doctor", "--server", "http://127.0.0.1:1"]));
        let shown = folder.run(&["config", "show"]);
        assert!(!shown.stdout.contains(SECRET), "{shown:?}");
    }
    for part in ["REDIS", "TRANSPORT"] {
        let mut folder = Folder::new().command(&["serve", "--listen", "127.0.0.1:0"]);
        let url = format!("redis://:{SECRET}@cache.example");
        let ran = folder.current_dir("/").env(format!("WINDLASS_{part}__URL"), url).output();
        keeps_quiet(&ran.unwrap().into());
    }
}

#[test]
fn nothing_of_a_file_of_secrets_is_shown() {
    let texts = [
        SECRET.to_owned(),
        format!("postgres://ann:{SECRET}@db.example/x"),
        format!("sqlite://{SECRET}/x.db"),
        format!("sqlite://x.db?{SECRET}"),
    ];
    for text in &texts {
        let folder = Folder::new();
        folder.write("store.url", text);
        folder.write("windlass.toml", "[store]\nurl_file = \"store.url\"\n");
        keeps_quiet(&folder.run(&["serve", "-vv", "--listen", "127.0.0.1:0"]));
        keeps_quiet(&folder.run(&["doctor", "--server", "http://127.0.0.1:1"]));
    }
}

#[test]
fn a_server_that_runs_keeps_quiet_too() {
    let folder = Folder::new();
    folder.write("store.url", &format!("sqlite://{SECRET}.db"));
    let config = format!(
        "[store]\nurl_file = \"store.url\"\n\
         [handlers.tell]\nexec = [\"true\"]\nenv = {{ API_TOKEN = \"{SECRET}\" }}\n"
    );
    folder.write("windlass.toml", &config);
    let server = Server::serve(folder);
    server.run(&["submit", "tell", "--wait"]).ok();
    assert!(server.folder.file(&format!("{SECRET}.db")).exists());
    assert!(!server.log().contains(SECRET), "{}", server.log());
    for arguments in [&["config", "show", "--origin"][..], &["doctor"]] {
        let shown = server.run(arguments).ok();
        assert!(!shown.stdout.contains(SECRET), "{shown:?}");
    }
    keeps_quiet(&server.run(&["serve", "--listen", "127.0.0.1:0"]));
}

#[test]
fn what_an_http_handler_sends_is_not_shown() {
    let folder = Folder::new();
    let (at, key) = (free_port(), format!("whsec_{SECRET}{}", "A".repeat(43 - SECRET.len())));
    folder.write("token", SECRET);
    folder.write("hook.url", &format!("http://{at}/{SECRET}"));
    let config = format!(
        "[defaults]\nretry = {{ retries = 0 }}\nstep_retry = {{ retries = 0 }}\n\
         [handlers.tell]\nhttp = \"http://{at}/x?sig={SECRET}\"\nallow_private = true\n\
         secret = \"{key}=\"\nheaders = {{ X-A = \"{SECRET}\", X-B_file = \"token\" }}\n\
         [handlers.other]\nhttp_file = \"hook.url\"\nallow_private = true\n"
    );
    folder.write("windlass.toml", &config);
    let server =
        Server::serve_with(folder, &[], &[("WINDLASS_LOG".to_owned(), "debug".to_owned())]);
    for kind in ["tell", "other"] {
        let ran = server.run(&["submit", kind, "--wait"]);
        keeps_quiet(&ran);
        assert!(ran.stderr.contains("cannot be reached"), "it was tried: {ran:?}");
    }
    assert!(server.log().contains("no answer"), "tries are logged: {}", server.log());
    assert!(!server.log().contains(SECRET), "{}", server.log());
    for arguments in [&["config", "show", "--origin"][..], &["config", "check"], &["doctor"]] {
        let shown = server.run(arguments).ok();
        assert!(!shown.stdout.contains(SECRET), "{shown:?}");
    }
    let shown = server.run(&["config", "show"]).ok().stdout;
    for line in ["/***\"", "secret = \"***\"", "X-A = \"***\"", "http_file = \"hook.url\""] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
}

#[test]
fn http_handlers_that_are_refused() {
    for line in [
        format!("http = \"http://ann:{SECRET}@example.com/\""),
        format!("http = \"nonsense://{SECRET}\""),
        format!("http = \"http://127.0.0.1/{SECRET}\""),
        format!("http = \"https://example.com\"\nsecret = \"{SECRET}\""),
        format!("http = \"https://example.com\"\nheaders = {{ Host = \"{SECRET}\" }}"),
        format!("http = \"https://example.com\"\nheaders = {{ X = \"\\n{SECRET}\" }}"),
    ] {
        let folder = Folder::new();
        folder.write("windlass.toml", &format!("[handlers.a]\n{line}\n"));
        keeps_quiet(&folder.run(&["serve", "-vv", "--listen", "127.0.0.1:0"]));
        keeps_quiet(&folder.run(&["config", "check"]));
        folder.write("text", SECRET);
        let file = "[handlers.a]\nhttp = \"https://example.com\"\nsecret_file = \"text\"\n";
        folder.write("windlass.toml", file);
        keeps_quiet(&folder.run(&["config", "check"]));
    }
}
