//! TLS of the whole process: the one provider of cryptography that every client
//! and the listener use. Whoever makes a client or reads a certificate calls
//! [`use_ring`] first; calling it again changes nothing. `files.rs` reads a
//! certificate and its key, `reload.rs` keeps them fresh.

mod expiry;
mod files;
mod reload;

pub use reload::{Certificates, Good, Hangup};

/// Chooses the provider, unless the program has chosen one.
pub fn use_ring() {
    // An error says that there is one already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
