//! Servers that must not start: each says what is wrong, where, and what to do.
//! None of them may have touched a file before it refused.

use crate::rig::{Folder, Server};

#[test]
fn what_sqlite_cannot_do() {
    let folder = Folder::new();
    for role in ["api", "worker"] {
        folder.run(&["serve", "--role", role]).fails(2).said("sqlite").said(role);
    }
    assert!(!folder.file("windlass.db").exists());
    folder.run(&["serve", "--store", "sqlite://no/such/x.db"]).fails(2).said("no/such");
}

#[test]
fn addresses() {
    let folder = Folder::new();
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:7450"] {
        folder.run(&["serve", "--listen", address]).fails(2).said("loopback");
        folder.run(&["dev", "--listen", address]).fails(2).said("loopback");
    }
    folder.run(&["serve", "--listen", "nowhere"]).fails(2).said("127.0.0.1:7450");
}

#[test]
fn what_another_server_has() {
    let server = Server::dev();
    let at = server.url.strip_prefix("http://").unwrap();
    let port = server.folder.run(&["serve", "--store", "memory:", "--listen", at]).fails(2);
    port.said(&format!("cannot listen on {at}")).said("--listen");
    let file = "sqlite://.windlass/windlass.db";
    let second = server.folder.run(&["serve", "--listen", "127.0.0.1:0", "--store", file]);
    let pid = server.process.0.id();
    second.fails(5).said(&format!("windlass.db is open in process {pid}")).said("stop it");
    server.run(&["submit", "demo.hello", "--wait"]).ok();
}

#[test]
fn mistakes_in_the_file() {
    let folder = Folder::new();
    folder.write("windlass.toml", "[store]\nurl = \"memory:\"\n\n[node]\n  leese = \"3s\"\n");
    let wrong = folder.run(&["serve"]).fails(2);
    wrong.said("windlass.toml:5:3: unknown key `leese`").said("hint: did you mean `lease`?");
    folder.run(&["dev"]).fails(2).said("windlass.toml:5:3");
    folder.write("windlass.toml", "[kinds.x]\nsteps = [\"nobody\"]\n");
    folder.run(&["serve"]).fails(2).said("nobody");
    folder.run(&["serve", "--config", "no.toml"]).fails(2).said("no.toml");
    let mut variable = folder.command(&["serve", "--listen", "127.0.0.1:0"]);
    folder.write("windlass.toml", "");
    let variable = variable.env("WINDLASS_NODE__LEESE", "3s").output().unwrap();
    assert!(String::from_utf8(variable.stderr).unwrap().contains("WINDLASS_NODE__LEASE"));
    assert_eq!(variable.status.code(), Some(2));
}
