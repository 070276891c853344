//! How much may run here: slots per queue, per kind, and for code that computes.
//! Dispatch asks for room before it claims; a [`Slot`] is what one running
//! attempt occupies, and it is free again only when the attempt is really gone.

use crate::registry::KindEntry;
use crate::run::Run;
use crate::settings::Pool;
use crate::wake::Wake;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use windlass_core::store::{Kinds, Lane};
use windlass_core::task::QueueName;

#[derive(Debug)]
struct QueueSlots {
    name: QueueName,
    max: usize,
    used: AtomicUsize,
}

#[derive(Debug)]
pub(crate) struct Slots {
    queues: Vec<QueueSlots>,
    /// By the kind's index.
    kinds: Vec<AtomicUsize>,
    cpu_max: usize,
    cpu_used: AtomicUsize,
    used: AtomicUsize,
    /// Attempts that were judged without having ended.
    overrun: AtomicIsize,
    /// The queue that is asked first next time.
    turn: AtomicUsize,
}

/// Where a claim may take from.
#[derive(Debug, Default)]
pub(crate) struct Room {
    pub(crate) lanes: Vec<Lane>,
    pub(crate) max: usize,
    /// Claims until every queue was asked for every kind: room that several
    /// queues or kinds share is offered to one of them at a time.
    pub(crate) rounds: usize,
}

impl Slots {
    pub(crate) fn new(queues: Vec<(QueueName, usize)>, kinds: usize, cpu_max: usize) -> Self {
        let queue = |(name, max)| QueueSlots { name, max, used: AtomicUsize::new(0) };
        Slots {
            queues: queues.into_iter().map(queue).collect(),
            kinds: (0..kinds).map(|_| AtomicUsize::new(0)).collect(),
            cpu_max,
            cpu_used: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
            overrun: AtomicIsize::new(0),
            turn: AtomicUsize::new(0),
        }
    }

    pub(crate) fn queues(&self) -> impl Iterator<Item = (&QueueName, usize, usize)> {
        self.queues.iter().map(|q| (&q.name, q.max, q.used.load(Ordering::Acquire)))
    }

    pub(crate) fn serves(&self, queue: &QueueName) -> bool {
        self.queues.iter().any(|q| q.name == *queue)
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }

    pub(crate) fn overrun(&self) -> usize {
        usize::try_from(self.overrun.load(Ordering::Acquire)).unwrap_or(0)
    }

    /// What is free now. Each call begins with another queue, so that none is
    /// always last when a claim is full; a kind's room is given once, not to
    /// each of its queues.
    pub(crate) fn room(&self, kinds: &[Arc<KindEntry>], claim_max: usize) -> Room {
        let mut left: Vec<Option<usize>> = kinds.iter().map(|k| self.kind_room(k)).collect();
        let mut cpu = self.cpu_max.saturating_sub(self.cpu_used.load(Ordering::Acquire));
        let cpu_kinds = kinds.iter().filter(|k| k.rules.pool == Pool::Cpu).count();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        // Every kind comes first in every queue once.
        let kind_turn = turn / self.queues.len().max(1);
        let mut passed_over = 0;
        let mut room = Room::default();
        for i in 0..self.queues.len() {
            let queue = &self.queues[(turn + i) % self.queues.len()];
            let free = queue.max.saturating_sub(queue.used.load(Ordering::Acquire));
            let mut served = vec![];
            for j in 0..kinds.len() {
                // Kinds take turns as well: few threads must not favour one.
                let j = (kind_turn + j) % kinds.len();
                let mut max = left[j].map_or(free, |left| left.min(free));
                if kinds[j].rules.pool == Pool::Cpu {
                    max = max.min((cpu / cpu_kinds.max(1)).max(1)).min(cpu);
                    cpu -= max;
                }
                if let Some(left) = &mut left[j] {
                    *left -= max;
                }
                if max > 0 {
                    served.push((kinds[j].kind.clone(), max));
                } else if free > 0 && self.has_room(&kinds[j]) {
                    passed_over += 1;
                }
            }
            if free > 0 && !served.is_empty() {
                room.max += free;
                let kinds = Kinds::Only(served);
                room.lanes.push(Lane { queue: queue.name.clone(), max: free, kinds });
            }
        }
        room.max = room.max.min(claim_max);
        room.rounds = (passed_over + 1).min(self.queues.len() * cpu_kinds.max(1));
        room
    }

    fn has_room(&self, kind: &KindEntry) -> bool {
        let threads = self.cpu_used.load(Ordering::Acquire) < self.cpu_max;
        self.kind_room(kind) != Some(0) && (kind.rules.pool != Pool::Cpu || threads)
    }

    /// `None`: as much as the queues allow.
    fn kind_room(&self, kind: &KindEntry) -> Option<usize> {
        let max = kind.rules.concurrency?;
        Some(max.saturating_sub(self.kinds[kind.index].load(Ordering::Acquire)))
    }

    /// Takes the slot of a run that was claimed.
    pub(crate) fn take(&self, run: Arc<Run>) -> Slot {
        let queue = self.queues.iter().position(|q| q.name == run.task.queue);
        if let Some(queue) = queue {
            self.queues[queue].used.fetch_add(1, Ordering::AcqRel);
        }
        self.kinds[run.kind.index].fetch_add(1, Ordering::AcqRel);
        if run.kind.rules.pool == Pool::Cpu {
            self.cpu_used.fetch_add(1, Ordering::AcqRel);
        }
        self.used.fetch_add(1, Ordering::AcqRel);
        Slot { run, queue }
    }

    pub(crate) fn count_overrun(&self, by: isize) {
        self.overrun.fetch_add(by, Ordering::AcqRel);
    }

    fn free(&self, slot: &Slot) {
        if let Some(queue) = slot.queue {
            self.queues[queue].used.fetch_sub(1, Ordering::AcqRel);
        }
        self.kinds[slot.run.kind.index].fetch_sub(1, Ordering::AcqRel);
        if slot.run.kind.rules.pool == Pool::Cpu {
            self.cpu_used.fetch_sub(1, Ordering::AcqRel);
        }
        self.used.fetch_sub(1, Ordering::AcqRel);
    }
}

/// One running attempt's place.
pub(crate) struct Slot {
    run: Arc<Run>,
    queue: Option<usize>,
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("run", &self.run).finish_non_exhaustive()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let parts = &self.run.parts;
        self.run.end();
        parts.slots.free(self);
        parts.bell.ring(Wake::Slot);
    }
}
