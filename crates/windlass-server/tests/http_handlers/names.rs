//! A small name server over UDP that answers as the case says and counts, and the
//! other end of it: what the client asks instead of the system. Real packets, so
//! that what changes its answers is a name server and not a table.

use parking_lot::Mutex;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::UdpSocket;
use windlass::core::store::BoxFuture;
use windlass_server::outbound::Lookup;

const A: u16 = 1;
const AAAA: u16 = 28;

/// The answers to one look-up: what the `n`th gets.
type Answers = dyn Fn(usize, &str) -> Vec<IpAddr> + Send + Sync;

pub(crate) struct NameServer {
    at: SocketAddr,
    asked: Arc<AtomicUsize>,
    serving: tokio::task::JoinHandle<()>,
}

impl NameServer {
    /// A look-up is two questions, A and AAAA; both get the answers of their turn.
    pub(crate) async fn new(
        answers: impl Fn(usize, &str) -> Vec<IpAddr> + Send + Sync + 'static,
    ) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a socket");
        let at = socket.local_addr().expect("an address");
        let asked = Arc::new(AtomicUsize::new(0));
        let (count, turns) = (asked.clone(), Mutex::new([0usize; 2]));
        let answers: Box<Answers> = Box::new(answers);
        let serving = tokio::spawn(async move {
            let mut packet = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut packet).await {
                let question = &packet[..length];
                let Some((name, kind)) = read_question(question) else { continue };
                let turn = {
                    let mut turns = turns.lock();
                    let turn = &mut turns[usize::from(kind == AAAA)];
                    *turn += 1;
                    *turn - 1
                };
                count.fetch_add(1, Ordering::SeqCst);
                let _ = socket.send_to(&answer(question, kind, &answers(turn, &name)), from).await;
            }
        });
        NameServer { at, asked, serving }
    }

    pub(crate) fn resolver(&self) -> Names {
        Names(self.at)
    }

    /// Whole look-ups so far.
    pub(crate) fn lookups(&self) -> usize {
        self.asked.load(Ordering::SeqCst) / 2
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Asks that server.
pub(crate) struct Names(SocketAddr);

impl Lookup for Names {
    fn lookup(&self, name: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let server = self.0;
        Box::pin(async move {
            let mut found = ask(server, &name, A).await?;
            found.extend(ask(server, &name, AAAA).await?);
            Ok(found)
        })
    }
}

async fn ask(server: SocketAddr, name: &str, kind: u16) -> io::Result<Vec<IpAddr>> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let mut question = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.trim_end_matches('.').split('.') {
        question.push(u8::try_from(label.len()).map_err(io::Error::other)?);
        question.extend_from_slice(label.as_bytes());
    }
    question.push(0);
    question.extend_from_slice(&kind.to_be_bytes());
    question.extend_from_slice(&[0, 1]);
    socket.send_to(&question, server).await?;
    let mut packet = [0; 512];
    let length = socket.recv(&mut packet).await?;
    Ok(read_answers(&packet[..length], question.len()))
}

/// Name and type of the one question.
fn read_question(packet: &[u8]) -> Option<(String, u16)> {
    let (mut at, mut labels) = (12, vec![]);
    loop {
        let length = usize::from(*packet.get(at)?);
        if length == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(packet.get(at + 1..=at + length)?).into_owned());
        at += length + 1;
    }
    let kind = u16::from_be_bytes([*packet.get(at + 1)?, *packet.get(at + 2)?]);
    Some((labels.join("."), kind))
}

/// The question again, and a record for each address of its type; they live for no
/// time at all.
fn answer(question: &[u8], kind: u16, addresses: &[IpAddr]) -> Vec<u8> {
    let mut packet = question.to_vec();
    packet[2..4].copy_from_slice(&[0x81, 0x80]);
    let records = addresses.iter().filter(|ip| ip.is_ipv6() == (kind == AAAA));
    for ip in records {
        packet[7] += 1;
        packet.extend_from_slice(&[0xc0, 12]);
        packet.extend_from_slice(&kind.to_be_bytes());
        packet.extend_from_slice(&[0, 1, 0, 0, 0, 0]);
        let bytes = match ip {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        packet.extend_from_slice(&[0, u8::try_from(bytes.len()).expect("few bytes")]);
        packet.extend_from_slice(&bytes);
    }
    packet
}

fn read_answers(packet: &[u8], mut at: usize) -> Vec<IpAddr> {
    let count = packet.get(7).copied().unwrap_or_default();
    let mut found = vec![];
    for _ in 0..count {
        let length = usize::from(packet[at + 11]);
        let data = &packet[at + 12..at + 12 + length];
        match <[u8; 4]>::try_from(data) {
            Ok(bytes) => found.push(Ipv4Addr::from(bytes).into()),
            Err(_) => {
                let bytes: [u8; 16] = data.try_into().expect("an address");
                found.push(Ipv6Addr::from(bytes).into());
            }
        }
        at += 12 + length;
    }
    found
}
