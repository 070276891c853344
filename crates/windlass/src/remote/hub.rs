//! Polls that wait for work. A waiting poll is a row in a list and a timer for
//! its own end, and nothing else: it asks no store. Whoever writes a task that is
//! ready names its queue and kind here, and wakes the first polls that could take
//! it; what others wrote is found by one look of the whole process (`attend.rs`).
//! A poll that goes away hands on what it was woken for.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;
use windlass_core::error::{Error, Result};
use windlass_core::id::NodeId;
use windlass_core::task::{Kind, QueueName};

/// Most polls that wait in one process.
pub(crate) const POLLS_MAX: usize = 10_000;

/// What a worker would take.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Interest {
    pub(crate) queues: Vec<QueueName>,
    pub(crate) kinds: Vec<Kind>,
}

impl Interest {
    fn takes(&self, queue: &QueueName, kind: &Kind) -> bool {
        self.queues.contains(queue) && self.kinds.contains(kind)
    }
}

/// Why a poll looks again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Call {
    /// Dead nodes may have left something.
    pub(crate) orphans: bool,
}

#[derive(Debug)]
struct Poll {
    worker: NodeId,
    interest: Arc<Interest>,
    max: usize,
    call: Option<Call>,
    told: Arc<Notify>,
}

impl Poll {
    fn call(&mut self, call: Call) {
        let orphans = call.orphans || self.call.is_some_and(|c| c.orphans);
        self.call = Some(Call { orphans });
        self.told.notify_one();
    }
}

#[derive(Debug, Default)]
struct Polls {
    /// By the order in which they came.
    waiting: BTreeMap<u64, Poll>,
    next: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Hub {
    polls: Mutex<Polls>,
    count: AtomicUsize,
    /// Somebody waits now, or the store should be looked at.
    pub(crate) news: Notify,
}

impl Hub {
    /// A place in the list, from before the poll's first look at the store.
    pub(crate) fn enter(
        &self,
        worker: NodeId,
        interest: &Arc<Interest>,
        max: usize,
    ) -> Result<Ticket<'_>> {
        let mut polls = self.polls.lock();
        if polls.waiting.len() >= POLLS_MAX {
            let message = format!("{POLLS_MAX} polls wait already; try again, or another node");
            return Err(Error::unavailable("lease", message));
        }
        let (place, told) = (polls.next, Arc::new(Notify::new()));
        polls.next += 1;
        let interest = interest.clone();
        polls.waiting.insert(place, Poll { worker, interest, max, call: None, told: told.clone() });
        if self.count.fetch_add(1, Ordering::AcqRel) == 0 {
            self.news.notify_one();
        }
        Ok(Ticket { hub: self, place, told })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// So many tasks of this kind are ready.
    pub(crate) fn wake(&self, queue: &QueueName, kind: &Kind, tasks: usize) {
        if self.is_empty() {
            return;
        }
        let mut left = tasks;
        for poll in self.polls.lock().waiting.values_mut() {
            if left == 0 {
                return;
            }
            if poll.call.is_none() && poll.interest.takes(queue, kind) {
                poll.call(Call::default());
                left = left.saturating_sub(poll.max);
            }
        }
    }

    /// Something of these kinds is ready in these queues.
    pub(crate) fn offer(&self, ready: &[(QueueName, Kind)]) {
        let takes = |i: &Interest| ready.iter().any(|(queue, kind)| i.takes(queue, kind));
        self.call_one_of_each(Call::default(), takes);
    }

    /// A dead node left something.
    pub(crate) fn offer_orphans(&self) {
        self.call_one_of_each(Call { orphans: true }, |_| true);
    }

    /// A poll took all it could: the next one like it may find more.
    pub(crate) fn more_for(&self, like: &Interest) {
        self.call_one_of_each(Call::default(), |interest| interest == like);
    }

    /// The first of those that want the same: what it leaves, it hands on.
    fn call_one_of_each(&self, call: Call, fits: impl Fn(&Interest) -> bool) {
        if self.is_empty() {
            return;
        }
        let mut polls = self.polls.lock();
        let mut asked: Vec<Arc<Interest>> = vec![];
        for poll in polls.waiting.values_mut() {
            if asked.contains(&poll.interest) || !fits(&poll.interest) {
                continue;
            }
            asked.push(poll.interest.clone());
            poll.call(call);
        }
    }

    /// Something about this worker has changed.
    pub(crate) fn call_worker(&self, worker: NodeId) {
        if self.is_empty() {
            return;
        }
        let mut polls = self.polls.lock();
        let its = polls.waiting.values_mut().filter(|poll| poll.worker == worker);
        its.for_each(|poll| poll.call(Call::default()));
    }

    /// Others may have written something: look at the store soon.
    pub(crate) fn look(&self) {
        if !self.is_empty() {
            self.news.notify_one();
        }
    }

    /// Whose polls wait.
    pub(crate) fn workers(&self) -> Vec<NodeId> {
        let polls = self.polls.lock();
        let mut workers: Vec<NodeId> = polls.waiting.values().map(|poll| poll.worker).collect();
        workers.sort_unstable();
        workers.dedup();
        workers
    }
}

/// A poll's place; it is given up when this is dropped.
#[derive(Debug)]
pub(crate) struct Ticket<'a> {
    hub: &'a Hub,
    place: u64,
    told: Arc<Notify>,
}

impl Ticket<'_> {
    /// Waits until there is a reason to look again, and takes it.
    pub(crate) async fn called(&self) -> Call {
        loop {
            let told = self.told.notified();
            let taken =
                self.hub.polls.lock().waiting.get_mut(&self.place).and_then(|p| p.call.take());
            match taken {
                Some(call) => return call,
                None => told.await,
            }
        }
    }

    /// The worker may take nothing now: others may.
    pub(crate) fn hand_on(&self, call: Call) {
        let mut polls = self.hub.polls.lock();
        let Some(own) = polls.waiting.get(&self.place).map(|poll| poll.interest.clone()) else {
            return;
        };
        let after = polls.waiting.range_mut(self.place + 1..);
        let next = after.map(|(_, poll)| poll).find(|p| p.interest == own && p.call.is_none());
        if let Some(next) = next {
            next.call(call);
        }
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let gone = self.hub.polls.lock().waiting.remove(&self.place);
        self.hub.count.fetch_sub(1, Ordering::AcqRel);
        if let Some(Poll { call: Some(call), interest, .. }) = gone {
            self.hub.call_one_of_each(call, |other| *other == *interest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interest(queue: &str, kind: &str) -> Arc<Interest> {
        let (queues, kinds) = (vec![QueueName::trusted(queue)], vec![Kind::trusted(kind)]);
        Arc::new(Interest { queues, kinds })
    }

    fn called(hub: &Hub) -> Vec<u64> {
        let polls = hub.polls.lock();
        polls.waiting.iter().filter(|(_, p)| p.call.is_some()).map(|(place, _)| *place).collect()
    }

    #[test]
    fn only_those_who_could_take_it_are_woken_in_order_and_no_more_than_needed() {
        let hub = Hub::default();
        let (a, b) = (interest("q", "a"), interest("q", "b"));
        let node = NodeId::from_key(1);
        let _tickets: Vec<_> =
            [&b, &a, &a, &a].map(|i| hub.enter(node, i, 2).unwrap()).into_iter().collect();
        let (queue, kind) = (QueueName::trusted("q"), Kind::trusted("a"));
        hub.wake(&queue, &kind, 3);
        assert_eq!(called(&hub), [1, 2]);
        hub.wake(&QueueName::trusted("other"), &kind, 3);
        assert_eq!(called(&hub), [1, 2]);
        hub.offer(&[(queue.clone(), Kind::trusted("nobody's"))]);
        assert_eq!(called(&hub), [1, 2]);
        hub.offer(&[(queue.clone(), kind), (queue, Kind::trusted("b"))]);
        assert_eq!(called(&hub), [0, 1, 2], "one of each interest");
    }

    #[test]
    fn who_goes_away_hands_its_call_on() {
        let hub = Hub::default();
        let a = interest("q", "a");
        let node = NodeId::from_key(1);
        let first = hub.enter(node, &a, 1).unwrap();
        let second = hub.enter(node, &a, 1).unwrap();
        hub.wake(&QueueName::trusted("q"), &Kind::trusted("a"), 1);
        assert_eq!(called(&hub), [0]);
        drop(first);
        assert_eq!(called(&hub), [1]);
        drop(second);
        assert!(hub.is_empty());
    }
}
