//! From two PEM files to what the listener shows its clients. Every refusal names
//! the file and what to do; nothing of a key is ever in one.

use super::expiry;
use rustls::ServerConfig;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use windlass::{Error, Result};

/// Far more than any chain.
const FILE_MAX: u64 = 1024 * 1024;
const READABLE_BY_ALL: u32 = 0o004;

/// A certificate and its key, ready for handshakes.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) config: Arc<ServerConfig>,
    /// When the first certificate ends, in seconds since 1970, if that can be read.
    pub(super) ends: Option<i64>,
    /// What an operator should know.
    pub(super) warnings: Vec<String>,
}

pub(super) fn read(cert: &Path, key: &Path) -> Result<Pair> {
    let chain = chain(cert, &content("server.tls_cert", cert)?)?;
    let secret = secret(key, &content("server.tls_key", key)?)?;
    let ends = chain.first().and_then(|cert| expiry::ends(cert));
    let mut warnings = vec![];
    if std::fs::metadata(key).is_ok_and(|found| found.mode() & READABLE_BY_ALL != 0) {
        let shown = key.display();
        warnings.push(format!("everybody on this machine can read {shown}; chmod 600 {shown}"));
    }
    Ok(Pair { config: config(cert, key, chain, secret)?, ends, warnings })
}

fn refused(what: String) -> Error {
    Error::invalid("tls", what)
}

fn content(name: &str, path: &Path) -> Result<Vec<u8>> {
    let shown = path.display();
    let mut bytes = vec![];
    let read = std::fs::File::open(path).and_then(|f| f.take(FILE_MAX + 1).read_to_end(&mut bytes));
    let advice = "relative paths begin in the working directory of the process";
    read.map_err(|e| refused(format!("{name}: cannot read {shown}: {e}; {advice}")))?;
    if bytes.len() as u64 > FILE_MAX {
        let what = format!("{name}: {shown} has more than {FILE_MAX} bytes");
        return Err(refused(format!("{what}; name a PEM file")));
    }
    Ok(bytes)
}

fn chain(path: &Path, bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let shown = path.display();
    let chain: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    let advice = "it must be a PEM file with the server's certificate first, then the chain";
    match chain {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        Ok(_) => Err(refused(format!("no certificate is in {shown}; {advice}"))),
        Err(e) => Err(refused(format!("{shown} cannot be read as PEM ({e}); {advice}"))),
    }
}

fn secret(path: &Path, bytes: &[u8]) -> Result<PrivateKeyDer<'static>> {
    let shown = path.display();
    PrivateKeyDer::from_pem_slice(bytes).map_err(|e| {
        let locked = String::from_utf8_lossy(bytes).contains("BEGIN ENCRYPTED PRIVATE KEY");
        refused(match e {
            PemError::NoItemsFound if locked => {
                format!("the key in {shown} has a passphrase; `openssl pkey` writes it without")
            }
            PemError::NoItemsFound => {
                let advice = "name a PEM file with the key of server.tls_cert";
                format!("no private key is in {shown}; {advice}")
            }
            // The error may quote what stands in the file.
            _ => format!("{shown} cannot be read as PEM; name a PEM file with a private key"),
        })
    })
}

fn config(
    cert: &Path,
    key: &Path,
    chain: Vec<CertificateDer<'static>>,
    secret: PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>> {
    super::use_ring();
    let (cert, key) = (cert.display(), key.display());
    let made = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, secret);
    let mut config = made.map_err(|e| {
        refused(match e {
            rustls::Error::InconsistentKeys(_) => {
                format!("the key in {key} is not that of the certificate in {cert}; name the pair")
            }
            rustls::Error::InvalidCertificate(e) => {
                format!("the certificate in {cert} cannot be used ({e}); make a new one")
            }
            _ => format!(
                "the key in {key} cannot be used; take RSA (2048 bits or more), ECDSA or Ed25519"
            ),
        })
    })?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
