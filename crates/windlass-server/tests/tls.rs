//! https as clients meet it: certificates of files, new ones while the server
//! runs, plain HTTP on the wrong port, and the command line with certificates that
//! it knows and does not know.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout)] // a test fails by panicking

mod process;

use process::{Home, PATIENCE, Process};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use windlass_server::tls::{Certificates, use_ring};

const CONFIG: &str = "[server]\ntls_cert = \"cert.pem\"\ntls_key = \"key.pem\"\n";

/// A certificate for this machine with its key.
struct Made {
    cert: rcgen::Certificate,
    key: KeyPair,
}

impl Made {
    fn new(names: &[&str]) -> Made {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(names).expect("names");
        Made { cert: params.self_signed(&key).expect("a certificate"), key }
    }

    fn usual() -> Made {
        Made::new(&["localhost", "127.0.0.1"])
    }

    /// As one who replaces both would: beside, then in place.
    fn write(&self, folder: &Path) {
        for (name, text) in [("cert.pem", self.cert.pem()), ("key.pem", self.key.serialize_pem())] {
            let (new, place) = (folder.join("new"), folder.join(name));
            std::fs::write(&new, text).expect("a file");
            std::fs::set_permissions(&new, PermissionsExt::from_mode(0o600)).expect("a mode");
            std::fs::rename(new, place).expect("a file in its place");
        }
    }

    fn client(&self) -> reqwest::Client {
        use_ring();
        let root = reqwest::Certificate::from_der(self.cert.der()).expect("a certificate");
        let client = reqwest::Client::builder().tls_certs_only([root]).timeout(PATIENCE);
        client.build().expect("a client")
    }

    fn connector(&self, protocols: &[&str]) -> TlsConnector {
        use_ring();
        let mut roots = RootCertStore::empty();
        roots.add(self.cert.der().clone()).expect("a certificate");
        let config = ClientConfig::builder().with_root_certificates(roots);
        let mut config = config.with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        TlsConnector::from(Arc::new(config))
    }
}

type Secured = tokio_rustls::client::TlsStream<TcpStream>;

async fn secured(made: &Made, home: &Home, protocols: &[&str]) -> std::io::Result<Secured> {
    let stream = TcpStream::connect(home.at).await?;
    let name = ServerName::try_from("localhost").expect("a name");
    made.connector(protocols).connect(name, stream).await
}

fn shown(stream: &Secured) -> CertificateDer<'static> {
    let certs = stream.get_ref().1.peer_certificates().expect("certificates");
    certs[0].clone().into_owned()
}

async fn livez(stream: &mut Secured) -> String {
    stream.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("sent");
    let mut text = vec![0; 4096];
    let n = stream.read(&mut text).await.expect("an answer");
    String::from_utf8_lossy(&text[..n]).into_owned()
}

async fn started(home: &Home, made: &Made) -> Process {
    made.write(home.folder());
    let mut server = home.start();
    let client = made.client();
    let began = Instant::now();
    while client.get(format!("https://{}/readyz", home.at)).send().await.is_err() {
        server.check_alive();
        assert!(began.elapsed() < PATIENCE, "never ready");
        process::pause(Duration::from_millis(20)).await;
    }
    server
}

#[tokio::test]
async fn requests_over_https_are_answered() {
    let (home, made) = (Home::new(CONFIG), Made::usual());
    let _server = started(&home, &made).await;
    let url = format!("https://{}/v1/tasks", home.at);
    let task = serde_json::json!({ "kind": "demo.hello", "payload": { "name": "Ada" } });
    let answer = made.client().post(&url).json(&task).send().await.expect("an answer");
    assert_eq!(answer.status(), 201);
    let url = format!("https://{}/readyz?verbose", home.at);
    let ready = made.client().get(url).send().await.expect("an answer");
    let ready: serde_json::Value = ready.json().await.expect("JSON");
    let part =
        ready["parts"].as_array().and_then(|p| p.iter().find(|p| p["name"] == "certificate"));
    assert_eq!(part.expect("a part")["state"], "ok", "{ready}");
    for (offered, taken) in
        [(&["h2", "http/1.1"][..], Some("h2")), (&["http/1.1"], Some("http/1.1")), (&[], None)]
    {
        let stream = secured(&made, &home, offered).await.expect("a handshake");
        let protocol = stream.get_ref().1.alpn_protocol();
        assert_eq!(protocol, taken.map(str::as_bytes), "{offered:?}");
    }
    let log = std::fs::read_to_string(home.folder().join("log")).expect("a log");
    assert!(!log.contains("PRIVATE KEY"), "{log}");
}

#[tokio::test]
async fn plain_http_on_the_wrong_port_is_told_so() {
    let (home, made) = (Home::new(CONFIG), Made::usual());
    let _server = started(&home, &made).await;
    let answer = home.client.post(home.url("/v1/tasks")).body("{}").send().await;
    let answer = answer.expect("an answer");
    assert_eq!(answer.status(), 400);
    let text = answer.text().await.expect("text");
    assert!(text.contains("https://"), "{text}");
}

#[tokio::test]
async fn a_new_certificate_is_shown_to_new_connections() {
    let (home, old) = (Home::new(CONFIG), Made::usual());
    let server = started(&home, &old).await;
    let mut open = secured(&old, &home, &[]).await.expect("a handshake");
    assert_eq!(shown(&open), *old.cert.der());

    // Half of a change is none: the old certificate stays.
    std::fs::write(home.folder().join("cert.pem"), "nothing").expect("a file");
    server.signal(rustix::process::Signal::HUP);
    let log = || std::fs::read_to_string(home.folder().join("log")).expect("a log");
    let began = Instant::now();
    while !log().contains("NOT reloaded") {
        assert!(began.elapsed() < PATIENCE, "the log does not say so: {}", log());
        process::pause(Duration::from_millis(20)).await;
    }
    assert!(log().contains("no certificate is in cert.pem"), "{}", log());
    secured(&old, &home, &[]).await.expect("the old certificate");

    let new = Made::usual();
    new.write(home.folder());
    let began = Instant::now();
    let fresh = loop {
        match secured(&new, &home, &[]).await {
            Ok(stream) => break stream,
            Err(_) => assert!(began.elapsed() < PATIENCE, "the new one never came"),
        }
        process::pause(Duration::from_millis(50)).await;
    };
    assert_eq!(shown(&fresh), *new.cert.der());
    assert!(livez(&mut open).await.contains("200 OK"), "open connections go on");
}

#[tokio::test]
async fn what_cannot_be_used_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let (one, other) = (Made::usual(), Made::usual());
    let write = |name: &str, text: &str| std::fs::write(path(name), text).expect("a file");
    write("cert.pem", &one.cert.pem());
    write("key.pem", &one.key.serialize_pem());
    write("other.pem", &other.key.serialize_pem());
    write("empty.pem", "");
    write("broken.pem", "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n");
    let locked =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    write("locked.pem", locked);
    for (cert, key, says) in [
        ("none.pem", "key.pem", "server.tls_cert: cannot read"),
        ("cert.pem", "none.pem", "server.tls_key: cannot read"),
        ("empty.pem", "key.pem", "no certificate is in"),
        ("key.pem", "key.pem", "no certificate is in"),
        ("cert.pem", "cert.pem", "no private key is in"),
        ("cert.pem", "other.pem", "is not that of the certificate"),
        ("cert.pem", "locked.pem", "has a passphrase"),
        ("cert.pem", "broken.pem", "cannot be read as PEM"),
    ] {
        let error = Certificates::read(path(cert), path(key)).expect_err(says);
        let text = error.message();
        let named =
            if says.contains("tls_cert") || says.contains("no certificate") { cert } else { key };
        assert!(text.contains(says) && text.contains(named), "{text}");
        assert!(text.contains("; ") && !text.contains("c2VjcmV0"), "{text}");
    }
    assert!(Certificates::read(path("cert.pem"), path("key.pem")).is_ok());
}

/// Keys as `openssl` writes them in its three forms.
#[tokio::test]
async fn keys_of_every_form_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let openssl = |line: &str| {
        let done =
            Command::new("openssl").args(line.split(' ')).current_dir(folder.path()).output();
        let Ok(done) = done else { return false };
        assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
        true
    };
    if !openssl("genrsa -traditional -out pkcs1.pem 2048") {
        panic!("this test needs the program openssl");
    }
    openssl("genpkey -algorithm RSA -out pkcs8.pem");
    openssl("ecparam -name prime256v1 -genkey -noout -out sec1.pem");
    for (key, begins) in [
        ("pkcs1.pem", "BEGIN RSA PRIVATE KEY"),
        ("pkcs8.pem", "BEGIN PRIVATE KEY"),
        ("sec1.pem", "BEGIN EC PRIVATE KEY"),
    ] {
        let text = std::fs::read_to_string(folder.path().join(key)).expect("a key");
        assert!(text.contains(begins), "{key} is another form");
        openssl(&format!("req -x509 -new -key {key} -days 30 -subj /CN=localhost -out {key}.crt"));
        let cert = folder.path().join(format!("{key}.crt"));
        let read = Certificates::read(cert, folder.path().join(key));
        read.unwrap_or_else(|e| panic!("{key}: {}", e.message()));
    }
}

/// Runs the binary; gives its exit code and what it said on stderr.
async fn windlass(home: &Home, args: &[&str], vars: &[(&str, &str)]) -> (i32, String) {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.args(args).env_remove("WINDLASS_CA_FILE").env_remove("SSL_CERT_FILE");
    command.envs(vars.iter().copied()).current_dir(home.folder());
    let output = command.output().await.expect("a process");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap_or(-1), said)
}

#[tokio::test]
async fn the_command_line_trusts_what_it_is_told_to() {
    let (home, made) = (Home::new(CONFIG), Made::usual());
    let _server = started(&home, &made).await;
    let server = format!("https://{}", home.at);
    let list = ["queue", "list", "--server", server.as_str()];
    let with = [&list[..], &["--ca-file", "cert.pem"]].concat();
    assert_eq!(windlass(&home, &with, &[]).await, (0, String::new()));
    assert_eq!(windlass(&home, &list, &[("WINDLASS_CA_FILE", "cert.pem")]).await.0, 0);
    assert_eq!(windlass(&home, &list, &[("SSL_CERT_FILE", "cert.pem")]).await.0, 0);
    let doctor = ["doctor", "--server", server.as_str(), "--ca-file", "cert.pem", "-o", "json"];
    assert_eq!(windlass(&home, &doctor, &[]).await.0, 0);

    let (code, said) = windlass(&home, &list, &[]).await;
    assert_eq!(code, 6, "{said}");
    assert!(said.contains("is not trusted") && said.contains("--ca-file"), "{said}");
    let missing = [&list[..], &["--ca-file", "none.pem"]].concat();
    let (code, said) = windlass(&home, &missing, &[]).await;
    assert!(code == 2 && said.contains("none.pem"), "{said}");

    let plain = server.replace("https", "http");
    let (code, said) = windlass(&home, &["queue", "list", "--server", &plain], &[]).await;
    assert!(code == 2 && said.contains("write https://"), "{said}");
}

#[tokio::test]
async fn the_command_line_says_what_is_wrong_with_a_certificate() {
    let home = Home::new(CONFIG);
    let made = Made::new(&["example.org"]);
    made.write(home.folder());
    let _server = home.start();
    let server = format!("https://{}", home.at);
    let list = ["queue", "list", "--server", server.as_str(), "--ca-file", "cert.pem"];
    let began = Instant::now();
    loop {
        let (code, said) = windlass(&home, &list, &[]).await;
        assert_eq!(code, 6, "{said}");
        if said.contains("call the server by a name") {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{said}");
        process::pause(Duration::from_millis(50)).await;
    }
    let plain = Home::new("");
    let _other = plain.ready().await;
    let server = format!("https://{}", plain.at);
    let list = ["queue", "list", "--server", server.as_str(), "--ca-file", "cert.pem"];
    let (code, said) = windlass(&home, &list, &[]).await;
    assert!(code == 6 && said.contains("try http://"), "{said}");
}

#[tokio::test]
async fn without_a_certificate_a_hangup_changes_nothing() {
    let home = Home::new("");
    let mut server = home.start();
    let began = Instant::now();
    while home.client.get(home.url("/readyz")).send().await.is_err() {
        server.check_alive();
        assert!(began.elapsed() < PATIENCE, "never ready");
        process::pause(Duration::from_millis(20)).await;
    }
    server.signal(rustix::process::Signal::HUP);
    let log = || std::fs::read_to_string(home.folder().join("log")).expect("a log");
    while !log().contains("SIGHUP changes nothing") {
        server.check_alive();
        assert!(began.elapsed() < 2 * PATIENCE, "never told: {}", log());
        process::pause(Duration::from_millis(20)).await;
    }
    assert_eq!(home.client.get(home.url("/livez")).send().await.expect("an answer").status(), 200);
}
