//! What the binary says about itself and the machine it is on: version,
//! completions, configuration, the doctor.

use crate::rig::{Folder, Server, free_port};

#[test]
fn version_and_completions() {
    let folder = Folder::new();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(folder.run(&["version"]).ok().stdout, format!("windlass {version}\n"));
    assert_eq!(folder.run(&["--version"]).ok().stdout, format!("windlass {version}\n"));
    for shell in ["bash", "zsh", "fish"] {
        let script = folder.run(&["completion", shell]).ok().stdout;
        assert!(script.contains("windlass") && script.contains("requeue"), "{shell}");
        assert!(!script.contains("guard"), "{shell} completes what is hidden");
    }
    let help = folder.run(&["help"]).ok();
    assert!(help.stdout.contains("Exit codes:"), "{help:?}");
    folder.run(&[]).fails(2);
}

#[test]
fn the_configuration_is_shown_with_its_origins() {
    let folder = Folder::new();
    let default = folder.run(&["config", "print-default"]).ok().stdout;
    folder.write("windlass.toml", &default);
    assert_eq!(folder.run(&["config", "check"]).ok().stdout, "ok\n");
    folder.write("windlass.toml", "[node]\nlease = \"45s\"\n");
    let shown = folder.run(&["config", "show", "--origin"]).ok().stdout;
    assert!(shown.contains("lease = \"45s\"  # windlass.toml:2:"), "{shown}");
    assert!(shown.contains("poll = \"1s\"  # default"), "{shown}");
    let shown = folder.command(&["config", "show", "--origin"]);
    let shown = { shown }.env("WINDLASS_NODE__LEASE", "50s").output().unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("lease = \"50s\"  # WINDLASS_NODE__LEASE"), "{shown}");
    let json = folder.run(&["config", "show", "-o", "json"]).ok().json();
    assert_eq!(json["node"]["lease"], "45s");
}

#[test]
fn the_doctor_finds_what_is_wrong() {
    let server = Server::dev();
    let well = server.run(&["doctor"]).ok();
    for line in ["configuration: no file", "server: http", "store: sqlite", "disk:", "version:"] {
        assert!(well.stdout.contains(&format!("ok    {line}")), "{line}: {well:?}");
    }
    server.folder.write("windlass.toml", "[nod]\nlease = \"1s\"\n");
    let sick = server.run(&["doctor"]);
    assert_eq!(sick.code, 1, "{sick:?}");
    assert!(
        sick.stdout.contains("fail  configuration: windlass.toml:1:2: unknown key"),
        "{sick:?}"
    );
    assert!(sick.stdout.contains("hint: did you mean `node`?"), "{sick:?}");
    let alone = Folder::new();
    let alone =
        alone.run(&["doctor", "-o", "json", "--server", &format!("http://{}", free_port())]);
    assert_eq!(alone.code, 1);
    let checks = alone.json();
    let server = checks.as_array().unwrap().iter().find(|check| check["check"] == "server");
    assert_eq!(server.unwrap()["status"], "fail");
}
