//! How much a stranger may take of the listener: every number and time of it in
//! one place. A server uses the defaults with its own `connections_max`; tests
//! use shorter times.

use std::time::Duration;

/// All headers of a request together.
pub(super) const HEADERS_MAX: usize = 64 * 1024;
/// Requests under way on one HTTP/2 connection.
pub(super) const STREAMS_MAX: u32 = 100;
/// Requests on one HTTP/2 connection that the client took back before they were
/// looked at, or that broke the protocol; more end the connection.
pub(super) const RESETS_MAX: usize = 50;
/// What HTTP/2 holds of one answer beyond what the client has room for.
pub(super) const SEND_BUFFER: usize = 64 * 1024;
/// What the system keeps of answers that a client has not taken, for each
/// connection; it would let that grow to megabytes.
pub(super) const SOCKET_BUFFER: usize = 128 * 1024;
/// A client of HTTP/2 that does not answer a ping is gone.
pub(super) const PING_EVERY: Duration = Duration::from_secs(30);
pub(super) const PONG_TIME: Duration = Duration::from_secs(20);

/// What can differ between listeners.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Open connections. When one more comes, the longest silent one without a
    /// request is closed; if all have requests, it waits.
    pub connections: usize,
    /// Of these, connections from one address (for IPv6: from one /64).
    pub of_one_peer: usize,
    /// Whether that holds for loopback, where everybody has one address.
    pub loopback: Loopback,
    /// A header must have come within this time, and so must the first word of a
    /// connection and the next one of a connection that is kept: clients keep
    /// them for about as long.
    pub header_time: Duration,
    /// From the first byte to the end of a TLS handshake.
    pub handshake_time: Duration,
    /// A client that takes nothing of its answer for this long is cut off; with
    /// HTTP/2 up to a quarter later, and only that answer.
    pub write_time: Duration,
    /// Bytes a second of an answer that a client must take on average, once
    /// `write_time` is over; answers that have no known end are as fast as what
    /// they tell.
    pub answer_rate: usize,
    /// A connection without a request for this long is closed. For HTTP/2, where
    /// pings would keep it open for ever.
    pub idle_time: Duration,
    /// Younger silence is not a reason to be closed for somebody else.
    pub fresh: Duration,
    /// How long answers under way may take when a connection is to close.
    pub closing_time: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loopback {
    /// A proxy on this machine may take everything.
    Trusted,
    Counted,
}

impl Bounds {
    /// How long an answer may take of which so much was taken.
    pub(super) fn time_for(&self, taken: usize) -> Duration {
        let rate = self.answer_rate.max(1) as f64;
        self.write_time + Duration::from_secs_f64(taken as f64 / rate)
    }
}

/// Connections when nothing else is said.
pub const CONNECTIONS_MAX: usize = 10_000;

impl Bounds {
    /// The usual times for so many connections.
    pub fn of(connections: usize) -> Bounds {
        Bounds {
            connections,
            of_one_peer: (connections / 4).max(1),
            loopback: Loopback::Trusted,
            header_time: Duration::from_secs(30),
            handshake_time: Duration::from_secs(10),
            write_time: Duration::from_secs(30),
            answer_rate: 32 * 1024,
            idle_time: Duration::from_secs(60),
            fresh: Duration::from_secs(1),
            closing_time: Duration::from_secs(5),
        }
    }
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds::of(CONNECTIONS_MAX)
    }
}
