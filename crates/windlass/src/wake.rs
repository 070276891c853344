//! Why dispatch looks for work. The list is closed: a new reason is a new
//! variant here. A [`Bell`] keeps at most one of each, so a thousand finished
//! tasks cost one wake-up.

use std::sync::atomic::{AtomicU8, Ordering};
use tokio::sync::Notify;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Wake {
    /// Tasks became ready.
    Work = 1,
    /// An attempt ended.
    Slot = 2,
    /// Time to look although nobody rang.
    Poll = 4,
    /// Pause, resume, drain, a new identity: look again at everything.
    Control = 8,
}

/// What rang since the last look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wakes(u8);

impl Wakes {
    pub(crate) fn has(self, wake: Wake) -> bool {
        self.0 & wake as u8 != 0
    }
}

#[derive(Debug, Default)]
pub(crate) struct Bell {
    bits: AtomicU8,
    notify: Notify,
}

impl Bell {
    pub(crate) fn ring(&self, wake: Wake) {
        if self.bits.fetch_or(wake as u8, Ordering::AcqRel) == 0 {
            self.notify.notify_one();
        }
    }

    /// Waits for a ring and takes all of them.
    pub(crate) async fn next(&self) -> Wakes {
        loop {
            let bits = self.bits.swap(0, Ordering::AcqRel);
            if bits != 0 {
                return Wakes(bits);
            }
            self.notify.notified().await;
        }
    }
}
