//! Whom the client trusts when a server speaks https: the certificates of the
//! system (`SSL_CERT_FILE` and `SSL_CERT_DIR` replace them) and those of
//! `--ca-file`. Says what to do when a certificate is refused. Requests are
//! `client.rs`'s business.

use super::failure::{Exit, Failure};
use reqwest::{Certificate, ClientBuilder, Url};
use std::error::Error;
use std::path::Path;

/// Reading the system's certificates takes longer than most requests, so it is
/// done only where they are needed.
pub(super) fn trusting(
    builder: ClientBuilder,
    server: &Url,
    ca_file: Option<&Path>,
) -> Result<ClientBuilder, Failure> {
    crate::tls::use_ring();
    if server.scheme() != "https" {
        return Ok(builder.tls_certs_only([]));
    }
    Ok(match ca_file {
        Some(path) => builder.tls_certs_merge(certificates(path)?),
        None => builder,
    })
}

fn certificates(path: &Path) -> Result<Vec<Certificate>, Failure> {
    let hint = "--ca-file (or WINDLASS_CA_FILE) names a PEM file with a certificate to trust";
    let shown = path.display();
    let text = std::fs::read(path).map_err(|e| {
        Failure::usage(format!("cannot read the certificates in {shown}: {e}"), hint)
    })?;
    match Certificate::from_pem_bundle(&text) {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(Failure::usage(format!("no certificate is in {shown}"), hint)),
    }
}

/// A client cannot be made without a certificate to trust.
pub(super) fn no_client(error: &reqwest::Error) -> Failure {
    let message = format!("no client can be made: {}", words(error).join(": "));
    let hint = "install the system's certificates (ca-certificates), or pass --ca-file FILE";
    Failure::new(Exit::Failed, message, hint)
}

/// What a failed connection means if TLS is the reason.
pub(super) fn refused(error: &reqwest::Error, server: &str) -> Option<Failure> {
    let words = words(error);
    let last = words.last()?;
    let hint = hint(last)?;
    // What stands in braces is for those who write TLS libraries.
    let reason = last.split(" {").next().unwrap_or(last);
    let message = format!("{server} is not trusted: {reason}");
    Some(Failure::new(Exit::Unreachable, message, hint))
}

fn hint(cause: &str) -> Option<&'static str> {
    let table = [
        (
            "UnknownIssuer",
            "if it is your own certificate, pass it (or its CA) with --ca-file or WINDLASS_CA_FILE",
        ),
        (
            "CaUsedAsEndEntity",
            "the server shows the certificate of a CA; make one for the server, with \
             basicConstraints=CA:FALSE",
        ),
        ("not valid for", "call the server by a name that is in its certificate"),
        ("NotValidForName", "call the server by a name that is in its certificate"),
        ("expired", "put a new certificate in its place on the server; it is read again by itself"),
        ("not valid yet", "compare the clocks of both machines"),
        (
            "invalid peer certificate",
            "if it is your own certificate, pass it with --ca-file or WINDLASS_CA_FILE; \
             `openssl s_client -connect HOST:PORT` shows it",
        ),
        ("corrupt message", "the server may speak plain http there: try http://"),
    ];
    let found = table.iter().find(|(part, _)| cause.to_lowercase().contains(&part.to_lowercase()));
    found.map(|(_, hint)| *hint)
}

/// The error and its causes, outermost first.
fn words(error: &(dyn Error + 'static)) -> Vec<String> {
    std::iter::successors(Some(error), |e| (*e).source()).map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_their_hints() {
        for (cause, says) in [
            ("invalid peer certificate: UnknownIssuer", "--ca-file"),
            ("invalid peer certificate: certificate not valid for name \"a\"", "by a name"),
            ("invalid peer certificate: certificate expired: verification time", "new certificate"),
            ("invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))", "CA:FALSE"),
            ("received corrupt message of type InvalidContentType", "http://"),
        ] {
            assert!(hint(cause).is_some_and(|hint| hint.contains(says)), "{cause}");
        }
        assert_eq!(hint("Connection refused (os error 111)"), None);
    }
}
