//! Sign-in as people meet it: the first token, a server that asks, commands with
//! and without a token, and what each says when it is not let in.

use crate::rig::{Folder, Ran, Server, get};

const CONFIG: &str = "[store]\nurl = \"memory:\"\n[auth]\nmode = \"token\"\n";

fn token(ran: Ran) -> String {
    let token = ran.ok().stdout.trim_end().to_owned();
    assert!(token.starts_with("wl_") && token.len() == 59, "{token}");
    token
}

fn with(server: &Server, token: &str, arguments: &[&str]) -> Ran {
    server.command(arguments).env("WINDLASS_TOKEN", token).output().unwrap().into()
}

/// A server with sign-in, and its administrator's token.
fn signed_in() -> (Server, String) {
    let folder = Folder::new();
    folder.write("windlass.toml", CONFIG);
    let create = ["token", "create", "root", "--role", "admin", "--tokens-file", "tokens.toml"];
    let token = token(folder.run(&create));
    (Server::serve(folder), token)
}

#[test]
fn a_server_without_a_token_does_not_start() {
    let folder = Folder::new();
    folder.write("windlass.toml", CONFIG);
    let refused = folder.run(&["serve", "--listen", "127.0.0.1:0"]).fails(2);
    refused.said("windlass token create admin --role admin --tokens-file tokens.toml");
    folder.write("tokens.toml", "[[token]]\nname = \"x\"\n");
    folder.run(&["serve", "--listen", "127.0.0.1:0"]).fails(2).said("tokens.toml");
}

#[test]
fn beyond_loopback_with_tokens_only() {
    let (server, root) = signed_in();
    let Server { process, folder, .. } = server;
    drop(process);
    folder.write("windlass.toml", &CONFIG.replace("token", "off"));
    folder.run(&["serve", "--listen", "0.0.0.0:0"]).fails(2).said("auth.mode");
    // It starts, and says what is missing when there is no TLS.
    folder.write("windlass.toml", CONFIG);
    let checked =
        folder.command(&["config", "check"]).env("WINDLASS_SERVER__LISTEN", "0.0.0.0:1").output();
    let checked: Ran = checked.unwrap().into();
    assert!(checked.ok().stdout.contains("tls_cert"));
    assert!(!root.is_empty());
}

#[test]
fn commands_show_their_token() {
    let (server, root) = signed_in();
    server.run(&["task", "list"]).fails(4).said("asks for a token").said("WINDLASS_TOKEN");
    with(&server, "wl_0123456789ab_wrong", &["task", "list"]).fails(4).said("not known here");
    let ci = token(with(&server, &root, &["token", "create", "ci", "--role", "submitter"]));
    with(&server, &ci, &["task", "list"]).ok();
    with(&server, &ci, &["queue", "pause", "default", "-y"]).fails(4).said("role `operator`");
    with(&server, &ci, &["token", "list"]).fails(4).said("role `admin`");

    server.folder.write("ci.token", &format!("{ci}\n"));
    server.run(&["task", "list", "--token-file", "ci.token"]).ok();
    let listed = with(&server, &root, &["token", "list"]).ok();
    assert!(listed.stdout.contains("ci") && listed.stdout.contains("file"), "{listed:?}");
    let listed = server.folder.run(&["token", "list", "--tokens-file", "tokens.toml"]).ok();
    assert!(listed.stdout.contains("root") && !listed.stdout.contains("ci"), "{listed:?}");

    with(&server, &root, &["token", "revoke", "ci"]).fails(2).said("--yes");
    with(&server, &root, &["token", "revoke", "ci", "-y"]).ok().said("revoked");
    with(&server, &ci, &["task", "list"]).fails(4);
    with(&server, &root, &["token", "revoke", "ci", "-y"]).fails(3);
    with(&server, &root, &["queue", "pause", "default", "-y"]).ok();
    let audit = with(&server, &root, &["audit", "list", "-o", "jsonl"]).ok();
    let newest = audit.lines()[0].to_owned();
    assert!(newest.contains("\"who\":\"root\"") && newest.contains("\"pause\""), "{newest}");
    assert!(!server.log().contains(&root) && !server.log().contains(&ci));
}

#[test]
fn probes_need_no_token_and_pages_do() {
    let (server, _) = signed_in();
    let at = server.url.strip_prefix("http://").unwrap();
    for path in ["/livez", "/readyz"] {
        assert!(get(at, path).unwrap().starts_with("HTTP/1.1 200"), "{path}");
    }
    for path in ["/", "/metrics", "/v1/tasks"] {
        let answer = get(at, path).unwrap();
        assert!(answer.starts_with("HTTP/1.1 401"), "{path}: {answer}");
    }
}

#[test]
fn tokens_of_a_file() {
    let folder = Folder::new();
    let create = |name: &str, more: &[&str]| {
        let begin = ["token", "create", name, "--tokens-file", "t.toml", "--role"];
        folder.run(&[&begin[..], more].concat())
    };
    token(create("a", &["viewer", "--expires", "1d"]));
    create("a", &["viewer"]).fails(5).said("revoke it first");
    create("b c", &["viewer"]).fails(2).said("cannot be a token's name");
    create("b", &["boss"]).fails(2);
    let made = create("b", &["admin", "-o", "json"]).ok().json();
    assert_eq!((&made["name"], &made["role"]), (&"b".into(), &"admin".into()));
    folder.run(&["token", "revoke", "a", "--tokens-file", "t.toml"]).ok();
    folder.run(&["token", "revoke", "a", "--tokens-file", "t.toml"]).fails(3);
    let text = std::fs::read_to_string(folder.file("t.toml")).unwrap();
    assert!(!text.contains(made["token"].as_str().unwrap()) && text.contains("blake3:"), "{text}");
}
