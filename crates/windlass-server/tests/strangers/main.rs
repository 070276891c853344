//! What strangers can do to the listener: connections that are slow in every way
//! end at their limits while other clients are answered, too many connections
//! make room for new ones, and tricks of HTTP/2 end the answer or the connection
//! they are played on. The long form, which measures, is in `measure.rs`.

#![allow(clippy::expect_used, clippy::panic, clippy::print_stdout)] // a test fails by panicking

mod http2;
mod measure;
mod place;
#[path = "../process/mod.rs"]
mod process;
mod slow;

use http2::{DATA, GOAWAY, HEADERS, Http2, RESET};
use place::{Place, SHORT, certificates, short};
use slow::{LARGE, Sort};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use windlass_server::listen::{Bounds, Door, Loopback};

/// Nothing takes longer.
const PATIENCE: Duration = Duration::from_secs(90);
/// Slow connections of each sort.
const EACH: usize = 200;
const CLIENTS: usize = 8;
/// How long a body may drip.
const BODY_TIME: Duration = Duration::from_secs(10);

const HERE: [u8; 4] = [127, 0, 0, 1];

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("our own files").count()
}

fn take_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, wanted).expect("more files");
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "never: {what}");
        // tidy: allow-sleep because closed sockets announce nothing
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Both ends of every connection are in this process, and nothing else may open
/// files meanwhile: all cases of crowds in one test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_strangers_end_and_others_are_answered() {
    take_files();
    let place = Place::new(short()).await;
    let door = Door { bounds: short(), certificates: Some(certificates()) };
    let behind_tls = Place::at_door(door).await;
    place.ordinary().await;
    let before = open_files();
    let mut strangers = tokio::task::JoinSet::new();
    let sorts = Sort::PLAIN.map(|sort| (sort, place.at));
    for (sort, at) in sorts.into_iter().chain([(Sort::Handshake, behind_tls.at)]) {
        for n in 0..EACH {
            strangers.spawn(async move { (sort, timeout(PATIENCE, slow::one(sort, at)).await) });
            if n % 50 == 0 {
                // Whoever comes is taken in order, so all before this one are in: the
                // system may lose some when too many wait to be taken.
                assert!(!asks(&mut connect_from(HERE, at).await, at).await.is_empty());
            }
        }
    }
    let (over, answered) = (AtomicBool::new(false), AtomicU32::new(0));
    let clients = futures::future::join_all((0..CLIENTS).map(|_| async {
        while !over.load(SeqCst) {
            place.ordinary().await;
            answered.fetch_add(1, SeqCst);
        }
    }));
    let watching = async {
        // Once: counting thousands of files takes so long that the clients, which share
        // this task, would seem silent to the server.
        let most = open_files();
        while let Some(ended) = strangers.join_next().await {
            let (sort, took) = ended.expect("a stranger");
            let took = took.unwrap_or_else(|_| panic!("{sort:?} was never cut off"));
            let took = took.unwrap_or_else(|e| panic!("{sort:?}: {e}"));
            let least = if sort == Sort::Body { BODY_TIME } else { SHORT };
            assert!(took >= least, "{sort:?} had only {took:?}");
        }
        over.store(true, SeqCst);
        most
    };
    let (most, _) = tokio::join!(watching, clients);
    assert!(most > before + EACH, "the strangers were not there: {most} files at most");
    let answered = answered.load(SeqCst);
    assert!(answered > 0, "nobody else asked anything");
    println!("{answered} others were answered; {most} files at most, {before} before");
    // Clients keep connections for a while, and so does the server.
    until("the files are closed", || open_files() <= before + 2 * CLIENTS).await;
}

async fn connect_from(from: [u8; 4], at: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((from, 0).into()).expect("an address of loopback");
    socket.connect(at).await.expect("a connection")
}

async fn is_closed(stream: &mut TcpStream) -> bool {
    let read = timeout(PATIENCE, stream.read(&mut [0; 16])).await;
    matches!(read.expect("an end"), Ok(0) | Err(_))
}

async fn asks(stream: &mut TcpStream, at: SocketAddr) -> String {
    let request = format!("GET /livez HTTP/1.1\r\nHost: {at}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut text = vec![0; 1024];
    let read = timeout(PATIENCE, stream.read(&mut text)).await.expect("an answer in time");
    String::from_utf8_lossy(&text[..read.expect("an answer")]).into_owned()
}

#[tokio::test]
async fn the_longest_silent_makes_room() {
    let long = Duration::from_secs(600);
    let bounds = Bounds { header_time: long, idle_time: long, connections: 20, ..short() };
    let place = Place::new(bounds).await;
    let mut known = connect_from(HERE, place.at).await;
    assert!(asks(&mut known, place.at).await.contains("200 OK"));
    let mut silent = vec![];
    for _ in 1..20 {
        silent.push(connect_from(HERE, place.at).await);
    }
    let mut new = connect_from(HERE, place.at).await;
    assert!(asks(&mut new, place.at).await.contains("200 OK"), "there is always room");
    assert!(is_closed(&mut silent[0]).await, "the first that came was silent longest");
    assert!(asks(&mut known, place.at).await.contains("200 OK"), "known ones stay");
    assert!(asks(&mut silent[18], place.at).await.contains("200 OK"), "others stay");
}

/// A connection with a request that goes on.
async fn busy(from: [u8; 4], at: SocketAddr) -> TcpStream {
    let mut stream = connect_from(from, at).await;
    let head = "GET /v1/events HTTP/1.1\r\nAccept: text/event-stream\r\nHost:";
    stream.write_all(format!("{head} {at}\r\n\r\n").as_bytes()).await.expect("sent");
    let mut text = [0; 1024];
    let read = stream.read(&mut text).await.expect("a head");
    assert!(text[..read].starts_with(b"HTTP/1.1 200"));
    stream
}

#[tokio::test]
async fn the_busy_stay_and_the_next_one_waits() {
    let place = Place::new(Bounds { connections: 2, ..short() }).await;
    let (first, _second) = (busy(HERE, place.at).await, busy(HERE, place.at).await);
    let mut third = connect_from(HERE, place.at).await;
    let request = format!("GET /livez HTTP/1.1\r\nHost: {}\r\n\r\n", place.at);
    third.write_all(request.as_bytes()).await.expect("sent");
    let mut text = [0; 64];
    let early = timeout(Duration::from_millis(500), third.read(&mut text)).await;
    assert!(early.is_err(), "two are the most");
    drop(first);
    let read = timeout(PATIENCE, third.read(&mut text)).await.expect("an answer").expect("bytes");
    assert!(text[..read].starts_with(b"HTTP/1.1 200"));
}

#[tokio::test]
async fn one_address_has_its_share() {
    let bounds = Bounds { of_one_peer: 3, loopback: Loopback::Counted, ..short() };
    let place = Place::new(bounds).await;
    let greedy = [127, 0, 0, 2];
    let mut many = vec![];
    for _ in 0..3 {
        many.push(busy(greedy, place.at).await);
    }
    let mut fourth = connect_from(greedy, place.at).await;
    assert!(is_closed(&mut fourth).await, "three are its share");
    let mut other = connect_from([127, 0, 0, 3], place.at).await;
    assert!(asks(&mut other, place.at).await.contains("200 OK"), "others have their own share");
    drop(many.pop());
    // The server notices the end of a connection a moment later.
    let began = Instant::now();
    loop {
        let mut again = connect_from(greedy, place.at).await;
        let request = format!("GET /livez HTTP/1.1\r\nHost: {}\r\n\r\n", place.at);
        let sent = again.write_all(request.as_bytes()).await;
        if sent.is_ok() && again.read(&mut [0; 64]).await.is_ok_and(|n| n > 0) {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "its share is not given back");
    }
}

#[tokio::test]
async fn an_answer_without_a_window_ends_alone() {
    let place = Place::new(short()).await;
    let mut http2 = Http2::open(place.at, 0).await.expect("a connection");
    let began = Instant::now();
    http2.get(1, LARGE).await.expect("sent");
    http2.until(HEADERS, 1).await.expect("a head");
    http2.get(3, "/livez").await.expect("sent");
    http2.give_window(3, 1000).await.expect("sent");
    assert_eq!(http2.whole(3).await.expect("an answer"), 3, "`ok` and its line end");
    // Room for all but the last byte is not enough to have taken it.
    http2.get(5, "/livez").await.expect("sent");
    http2.give_window(5, 2).await.expect("sent");
    let ended = timeout(PATIENCE, http2.until(RESET, 1)).await.expect("an end");
    ended.expect("only the answer ends");
    assert!(began.elapsed() >= SHORT, "after {:?}", began.elapsed());
    timeout(PATIENCE, http2.until(RESET, 5)).await.expect("an end").expect("a reset");
    http2.get(7, "/livez").await.expect("sent");
    http2.give_window(7, 1000).await.expect("sent");
    assert_eq!(http2.whole(7).await.expect("an answer"), 3);
}

#[tokio::test]
async fn a_reader_that_is_slow_but_reads_gets_everything() {
    let place = Place::new(short()).await;
    let url = format!("http://{}{LARGE}", place.at);
    let whole = place.client.get(url).send().await.expect("an answer");
    let whole = whole.bytes().await.expect("a body").len();
    let mut http2 = Http2::open(place.at, 0).await.expect("a connection");
    let (began, mut bytes) = (Instant::now(), 0);
    http2.get(1, LARGE).await.expect("sent");
    let step = whole / 8 + 1;
    loop {
        http2.give_window(1, step as u32).await.expect("sent");
        let mut got = 0;
        let last = loop {
            let frame = http2.until(DATA, 1).await.expect("more");
            got += frame.body.len();
            if frame.is_last() || got == step {
                break frame.is_last();
            }
        };
        bytes += got;
        if last {
            break;
        }
        // tidy: allow-sleep because a slow reader is what is tested
        tokio::time::sleep(SHORT / 4).await;
    }
    assert_eq!(bytes, whole);
    assert!(began.elapsed() > SHORT, "it was not slow");
}

/// Takes something now and then, which is not nothing, and not enough.
#[tokio::test]
async fn a_reader_that_trickles_is_cut_off() {
    let place = Place::new(Bounds { answer_rate: 1024 * 1024, ..short() }).await;
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a size");
    let mut http1 = socket.connect(place.at).await.expect("a connection");
    let request = format!("GET {LARGE} HTTP/1.1\r\nHost: {}\r\n\r\n", place.at).repeat(100);
    http1.write_all(request.as_bytes()).await.expect("sent");
    let mut http2 = Http2::open(place.at, 0).await.expect("a connection");
    http2.get(1, LARGE).await.expect("sent");
    http2.until(HEADERS, 1).await.expect("a head");
    let trickling = async {
        let (mut first, mut second) = (false, false);
        while !(first && second) {
            // tidy: allow-sleep because a slow reader is what is tested
            tokio::time::sleep(SHORT / 10).await;
            let read = http1.read(&mut [0; 1024]).await;
            first = first || read.is_err() || http1.write_all(b"\r\n").await.is_err();
            if !second {
                http2.give_window(1, 4096).await.expect("sent");
                second = http2.next().await.expect("the connection stays").kind == RESET;
            }
        }
    };
    timeout(PATIENCE, trickling).await.expect("both are cut off");
    place.ordinary().await;
}

#[tokio::test]
async fn a_stream_of_events_lives_while_nothing_happens() {
    let place = Place::new(short()).await;
    let mut http2 = Http2::open(place.at, 65_535).await.expect("a connection");
    http2.get(1, "/v1/events").await.expect("sent");
    http2.until(HEADERS, 1).await.expect("a head");
    // tidy: allow-sleep because nothing must happen for longer than every limit
    tokio::time::sleep(3 * SHORT).await;
    place.ordinary().await;
    let event = timeout(PATIENCE, http2.until(DATA, 1)).await.expect("an event").expect("data");
    assert!(!event.body.is_empty());
}

#[tokio::test]
async fn requests_that_are_taken_back_at_once_end_the_connection() {
    let place = Place::new(short()).await;
    let mut http2 = Http2::open(place.at, 65_535).await.expect("a connection");
    for n in 0..2000 {
        let id = 2 * n + 1;
        if http2.get(id, LARGE).await.is_err() || http2.reset(id).await.is_err() {
            break;
        }
    }
    let end = timeout(PATIENCE, async {
        loop {
            match http2.next().await {
                Ok(frame) if frame.kind == GOAWAY => return Some(frame),
                Ok(_) => {}
                Err(_) => return None,
            }
        }
    });
    let end = end.await.expect("the server gives up");
    // The last word may be lost with the connection.
    if let Some(goaway) = end {
        assert_ne!(goaway.body[4..8], [0; 4], "an error is named");
    }
    place.ordinary().await;
}

#[tokio::test]
async fn http2_that_only_answers_pings_is_closed() {
    let place = Place::new(short()).await;
    let mut http2 = Http2::open(place.at, 65_535).await.expect("a connection");
    http2.get(1, "/livez").await.expect("sent");
    http2.whole(1).await.expect("an answer");
    let began = Instant::now();
    let closed = timeout(PATIENCE, async { while http2.next().await.is_ok() {} });
    closed.await.expect("it is closed");
    assert!(began.elapsed() >= SHORT, "after {:?}", began.elapsed());
}
