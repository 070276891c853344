//! Who is connected, and who has to go when there are too many. A connection is
//! silent while none of its requests is under way; the longest silent one makes
//! room, strangers that never asked for anything first. It closes nothing itself:
//! it tells the connection's own task.

use super::bounds::{Bounds, Loopback};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// One connection as the crowd sees it.
#[derive(Debug)]
pub(super) struct Line {
    peer: IpAddr,
    born: Instant,
    /// Requests under way.
    asking: AtomicUsize,
    has_asked: AtomicBool,
    /// Milliseconds from birth to the last end of a request.
    silent_from: AtomicU64,
    /// It was told to go.
    leaving: AtomicBool,
    go: Notify,
}

impl Line {
    fn new(peer: IpAddr) -> Line {
        Line {
            peer,
            born: Instant::now(),
            asking: AtomicUsize::new(0),
            has_asked: AtomicBool::new(false),
            silent_from: AtomicU64::new(0),
            leaving: AtomicBool::new(false),
            go: Notify::new(),
        }
    }

    /// Since when nothing is asked on it; `None` while something is.
    fn silent_since(&self) -> Option<Instant> {
        let from = Duration::from_millis(self.silent_from.load(Relaxed));
        (self.asking.load(Relaxed) == 0).then(|| self.born + from)
    }

    /// Ready when it has to make room for others.
    pub(super) async fn sent_away(&self) {
        self.go.notified().await;
    }

    /// Ready when nothing was asked for this long.
    pub(super) async fn idle(&self, time: Duration) {
        loop {
            let since = self.silent_since();
            let until = since.unwrap_or_else(Instant::now) + time;
            if since.is_some() && until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }
}

/// A request under way.
#[derive(Debug)]
pub(super) struct Asking(Arc<Line>);

impl Asking {
    pub(super) fn on(line: &Arc<Line>) -> Asking {
        line.asking.fetch_add(1, Relaxed);
        line.has_asked.store(true, Relaxed);
        Asking(line.clone())
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let age = self.0.born.elapsed().as_millis();
        self.0.silent_from.store(u64::try_from(age).unwrap_or(u64::MAX), Relaxed);
        self.0.asking.fetch_sub(1, Relaxed);
    }
}

/// What becomes of one that comes.
#[derive(Debug)]
pub(super) enum Admitted {
    In(Seat),
    /// Everybody is busy.
    Wait,
    /// Its address has more than its share, all of them busy.
    Refuse,
}

#[derive(Debug)]
pub(super) struct Crowd {
    bounds: Bounds,
    present: Mutex<Present>,
    left: Notify,
    /// How many had to go.
    shed: AtomicU64,
}

#[derive(Debug, Default)]
struct Present {
    next: u64,
    lines: HashMap<u64, Arc<Line>>,
    /// How many of each address, without those that are leaving.
    by_peer: HashMap<IpAddr, usize>,
    /// How many of all are leaving.
    leaving: usize,
}

/// A place in the crowd, until it is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    crowd: Arc<Crowd>,
    number: u64,
    pub(super) line: Arc<Line>,
}

impl Crowd {
    pub(super) fn new(bounds: Bounds) -> Arc<Crowd> {
        Arc::new(Crowd {
            bounds,
            present: Mutex::default(),
            left: Notify::new(),
            shed: AtomicU64::new(0),
        })
    }

    pub(super) fn admit(self: &Arc<Self>, ip: IpAddr) -> Admitted {
        let peer = counted_as(ip);
        let mut present = self.present.lock();
        let fresh = self.bounds.fresh;
        let counts = self.bounds.loopback == Loopback::Counted || !peer.is_loopback();
        let same = present.by_peer.get(&peer).copied().unwrap_or(0);
        if counts && same >= self.bounds.of_one_peer {
            if !present.shed(fresh, Some(peer)) {
                return Admitted::Refuse;
            }
            self.shed.fetch_add(1, Relaxed);
        }
        if present.lines.len() - present.leaving >= self.bounds.connections {
            if !present.shed(fresh, None) {
                return Admitted::Wait;
            }
            self.shed.fetch_add(1, Relaxed);
        }
        let line = Arc::new(Line::new(peer));
        let number = present.next;
        present.next += 1;
        present.lines.insert(number, line.clone());
        *present.by_peer.entry(peer).or_default() += 1;
        Admitted::In(Seat { crowd: self.clone(), number, line })
    }

    /// Ready when somebody has left since this was called, or soon.
    pub(super) async fn somebody_left(&self) {
        // Silence grows without a sign, so it is looked at again in any case.
        let _ = tokio::time::timeout(self.bounds.fresh, self.left.notified()).await;
    }

    /// How many had to go since this was last asked.
    pub(super) fn take_shed(&self) -> u64 {
        self.shed.swap(0, Relaxed)
    }

    pub(super) fn len(&self) -> usize {
        self.present.lock().lines.len()
    }

    /// Ready when nobody is there.
    pub(super) async fn empty(&self) {
        while self.len() > 0 {
            self.somebody_left().await;
        }
    }
}

impl Present {
    /// Sends the longest silent one away, if one has been silent long enough.
    fn shed(&mut self, fresh: Duration, of: Option<IpAddr>) -> bool {
        let long_enough = |line: &Arc<Line>| {
            let since = line.silent_since().filter(|since| since.elapsed() >= fresh)?;
            Some((line.has_asked.load(Relaxed), since))
        };
        let may_go = self
            .lines
            .values()
            .filter(|line| !line.leaving.load(Relaxed) && of.is_none_or(|peer| line.peer == peer));
        let longest = may_go.filter_map(|line| Some((long_enough(line)?, line.clone())));
        let Some((_, line)) = longest.min_by_key(|(silence, _)| *silence) else { return false };
        line.leaving.store(true, Relaxed);
        line.go.notify_one();
        self.leaving += 1;
        self.forget(line.peer);
        true
    }

    fn forget(&mut self, peer: IpAddr) {
        if let Some(same) = self.by_peer.get_mut(&peer) {
            *same -= 1;
            if *same == 0 {
                self.by_peer.remove(&peer);
            }
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut present = self.crowd.present.lock();
        present.lines.remove(&self.number);
        match self.line.leaving.load(Relaxed) {
            true => present.leaving -= 1,
            false => present.forget(self.line.peer),
        }
        drop(present);
        self.crowd.left.notify_one();
    }
}

/// One customer of a provider has a whole /64 of IPv6.
fn counted_as(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) if !ip.is_loopback() => {
            let bits = ip.to_bits() & !u128::from(u64::MAX);
            Ipv6Addr::from_bits(bits).into()
        }
        ip => ip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crowd(connections: usize, of_one_peer: usize) -> Arc<Crowd> {
        let fresh = Duration::ZERO;
        Crowd::new(Bounds { of_one_peer, fresh, ..Bounds::of(connections) })
    }

    fn seat(crowd: &Arc<Crowd>, ip: &str) -> Seat {
        match crowd.admit(ip.parse().unwrap()) {
            Admitted::In(seat) => seat,
            other => panic!("{ip}: {other:?}"),
        }
    }

    #[tokio::test]
    async fn the_longest_silent_one_makes_room() {
        let crowd = crowd(3, 3);
        let known = seat(&crowd, "10.0.0.1");
        drop(Asking::on(&known.line));
        let (first, second) = (seat(&crowd, "10.0.0.2"), seat(&crowd, "10.0.0.3"));
        let busy = Asking::on(&first.line);
        let _third = seat(&crowd, "10.0.0.4");
        second.line.sent_away().await;
        assert!(!known.line.leaving.load(Relaxed), "one that has asked goes last");
        drop(second);
        let _fourth = seat(&crowd, "10.0.0.5");
        assert!(!first.line.leaving.load(Relaxed), "one with a request never goes");
        drop(busy);
        assert_eq!(crowd.len(), 4);
    }

    #[tokio::test]
    async fn nobody_with_a_request_has_to_go() {
        let crowd = crowd(2, 2);
        let seats = [seat(&crowd, "10.0.0.1"), seat(&crowd, "10.0.0.2")];
        let busy: Vec<Asking> = seats.iter().map(|seat| Asking::on(&seat.line)).collect();
        let ip = "10.0.0.3".parse().unwrap();
        assert!(matches!(crowd.admit(ip), Admitted::Wait));
        drop(busy);
        assert!(matches!(crowd.admit(ip), Admitted::In(_)));
    }

    #[tokio::test]
    async fn one_address_has_its_share() {
        let crowd = crowd(100, 2);
        let seats = [seat(&crowd, "10.0.0.1"), seat(&crowd, "::ffff:10.0.0.1")];
        let busy: Vec<Asking> = seats.iter().map(|seat| Asking::on(&seat.line)).collect();
        assert!(matches!(crowd.admit("10.0.0.1".parse().unwrap()), Admitted::Refuse));
        let _other = seat(&crowd, "10.0.0.2");
        drop(busy);
        let _again = seat(&crowd, "10.0.0.1");
        let of_v6: Vec<Seat> = ["2001:db8::1", "2001:db8::2"].map(|ip| seat(&crowd, ip)).into();
        let busy: Vec<Asking> = of_v6.iter().map(|seat| Asking::on(&seat.line)).collect();
        assert!(matches!(crowd.admit("2001:db8::3".parse().unwrap()), Admitted::Refuse));
        let _local: Vec<Seat> = (0..5).map(|_| seat(&crowd, "127.0.0.1")).collect();
        drop((busy, seats));
    }

    #[tokio::test]
    async fn silence_that_is_young_is_no_reason() {
        let fresh = Duration::from_millis(50);
        let bounds = Bounds { fresh, ..Bounds::of(1) };
        let crowd = Crowd::new(bounds);
        let ip = "127.0.0.1";
        let (began, _one) = (Instant::now(), seat(&crowd, ip));
        while matches!(crowd.admit(ip.parse().unwrap()), Admitted::Wait) {
            crowd.somebody_left().await;
        }
        assert!(began.elapsed() >= fresh, "{:?}", began.elapsed());
    }
}
