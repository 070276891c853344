//! `https`: a certificate is verified, by the names of the URL and the roots of
//! the machine. Those are read when a client is made, from a file that a variable
//! names, so the case runs in a process of its own.

use crate::names::NameServer;
use crate::rig::{Rig, once, output, spec, why};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use windlass_server::outbound::{Outbound, Reach};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const ROOTS: &str = "SSL_CERT_FILE";
const KEY: &str = "WINDLASS_TEST_KEY";
const CASE: &str = "secure::a_certificate_is_verified";

#[tokio::test]
async fn a_certificate_is_verified() {
    let Ok(key) = std::env::var(KEY) else { return again().await };
    let at = serve(&key).await;
    let names = NameServer::new(|_, _| vec![HERE]).await;
    let outbound = Outbound::with(Reach::Public, names.resolver(), [HERE]).expect("a client");
    let url = |host: &str| format!("https://{host}:{at}/");
    let rig = Rig::with(spec(&url("good.test")), outbound.clone(), once()).await;
    assert_eq!(output(&rig.run().await), json!({"secure": true}));
    let rig = Rig::with(spec(&url("bad.test")), outbound, once()).await;
    let task = rig.run().await;
    let (_, class, message) = why(&task);
    assert_eq!(class, "retryable");
    assert!(message.starts_with("`bad.test` cannot be reached: "), "{message}");
    assert!(message.contains("certificate"), "{message}");
}

/// This case in a process whose only root is a new certificate.
async fn again() {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(["good.test".to_owned()]).expect("a certificate");
    let folder = tempfile::tempdir().expect("a folder");
    let (root, key) = (folder.path().join("root.pem"), folder.path().join("key.der"));
    std::fs::write(&root, cert.pem()).expect("written");
    std::fs::write(folder.path().join("cert.der"), cert.der()).expect("written");
    std::fs::write(&key, signing_key.serialize_der()).expect("written");
    let mut child = tokio::process::Command::new(std::env::current_exe().expect("this test"));
    child.args(["--exact", CASE]).env(ROOTS, root).env(KEY, key);
    let ran = child.output().await.expect("run");
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success() && said.contains("1 passed"), "{said}");
}

/// A server with that certificate; the port.
async fn serve(key: &str) -> u16 {
    windlass_server::tls::use_ring();
    let cert = std::fs::read(std::path::Path::new(key).with_file_name("cert.der")).expect("read");
    let key = std::fs::read(key).expect("read");
    let key = key.try_into().expect("a key");
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![cert.into()], key)
        .expect("a configuration");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind((HERE, 0)).await.expect("a listener");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A client that does not trust us goes during the handshake.
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let answer = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"secure\":true}";
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    port
}
