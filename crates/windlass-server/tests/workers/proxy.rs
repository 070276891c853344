//! A proxy that carries one request after the other to the server, and drops the
//! answer it was told to: the server has committed it, and nobody hears of it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub(crate) struct Proxy {
    pub(crate) at: SocketAddr,
    /// Answers with leases that are still to be dropped.
    to_drop: Arc<AtomicUsize>,
    dropped: Arc<AtomicUsize>,
}

impl Proxy {
    pub(crate) async fn before(server: SocketAddr) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = listener.local_addr().expect("an address");
        let (to_drop, dropped): (Arc<AtomicUsize>, Arc<AtomicUsize>) = Default::default();
        let proxy = Proxy { at, to_drop: to_drop.clone(), dropped: dropped.clone() };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, server, to_drop.clone(), dropped.clone()));
            }
        });
        proxy
    }

    /// The next answer that has leases does not arrive.
    pub(crate) fn drop_leases(&self) {
        self.to_drop.store(1, Ordering::SeqCst);
    }

    pub(crate) fn dropped(&self) -> usize {
        self.dropped.load(Ordering::SeqCst)
    }
}

async fn carry(
    mut client: TcpStream,
    server: SocketAddr,
    to_drop: Arc<AtomicUsize>,
    dropped: Arc<AtomicUsize>,
) {
    let mut server = TcpStream::connect(server).await.expect("a server");
    loop {
        let Some(request) = message(&mut client).await else { return };
        server.write_all(&request).await.expect("sent");
        let Some(answer) = message(&mut server).await else { return };
        let has_leases = String::from_utf8_lossy(&answer).contains("\"leases\":[{");
        let one_less = |n: usize| n.checked_sub(1);
        let order = Ordering::SeqCst;
        if has_leases && to_drop.fetch_update(order, order, one_less).is_ok() {
            dropped.fetch_add(1, order);
            return;
        }
        if client.write_all(&answer).await.is_err() {
            return;
        }
    }
}

/// One whole message of HTTP/1 with a length.
async fn message(from: &mut TcpStream) -> Option<Vec<u8>> {
    let mut bytes = vec![];
    loop {
        let head = bytes.windows(4).position(|w| w == b"\r\n\r\n").map(|at| at + 4);
        if let Some(head) = head {
            let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
            let length =
                text.lines().find_map(|l| l.strip_prefix("content-length:")?.trim().parse().ok());
            if bytes.len() >= head + length.unwrap_or(0_usize) {
                return Some(bytes);
            }
        }
        let mut part = [0; 16 * 1024];
        match from.read(&mut part).await {
            Ok(0) | Err(_) => return None,
            Ok(n) => bytes.extend_from_slice(&part[..n]),
        }
    }
}
