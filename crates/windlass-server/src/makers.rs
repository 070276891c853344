//! Makes the handler of each `[handlers.NAME]`, of a program or of a server
//! elsewhere. What handlers of one sort share on a node is held here until all are
//! made. The configuration was checked before; the engine comes after.

use crate::config::{Config, HandlerConfig};
use crate::handlers::{ExecHandler, ExecHost, ExecSpec, HttpHandler, HttpSpec, own_header};
use crate::outbound::{Outbound, Reach, SigningSecret, Target};
use crate::redact::Redactor;
use std::sync::Arc;
use windlass::{Error, Result, StepHandler};

pub(crate) struct Makers {
    /// There when a handler is a program.
    host: Option<Arc<ExecHost>>,
    /// There when a handler is a server: one for each reach, so that no connection
    /// of one is used by the other.
    public: Option<Outbound>,
    private: Option<Outbound>,
    redactor: Redactor,
}

impl Makers {
    pub(crate) fn new(
        config: &Config,
        host: Option<Arc<ExecHost>>,
        redactor: Redactor,
    ) -> Result<Makers> {
        let client = |allow_private: bool| {
            let mut all = config.handlers.values().filter(|handler| handler.http.is_some());
            let is_wanted = all.any(|handler| handler.allow_private == allow_private);
            is_wanted.then(|| Outbound::new(Reach::of(allow_private))).transpose()
        };
        Ok(Makers { host, public: client(false)?, private: client(true)?, redactor })
    }

    pub(crate) fn make(&self, name: &str, handler: &HandlerConfig) -> Result<Arc<dyn StepHandler>> {
        let wrong = |why: String| Error::invalid("config", format!("handler `{name}`: {why}"));
        let outbound = if handler.allow_private { &self.private } else { &self.public };
        match (&handler.http, outbound, &self.host) {
            (Some(_), Some(outbound), _) => {
                let spec = http(handler).map_err(wrong)?;
                Ok(Arc::new(HttpHandler::new(spec, outbound.clone())))
            }
            (None, _, Some(host)) => {
                let HandlerConfig { exec, timeout, env, .. } = handler.clone();
                let spec = ExecSpec { argv: exec, timeout, env };
                let handler = ExecHandler::new(spec, host.clone());
                Ok(Arc::new(handler.hiding(self.redactor.clone())))
            }
            _ => Err(wrong("has neither `exec` nor `http`; write one of them".to_owned())),
        }
    }
}

fn http(handler: &HandlerConfig) -> std::result::Result<HttpSpec, String> {
    let url = handler.http.as_ref().map_or("", |url| url.expose());
    let mut spec = HttpSpec::new(Target::parse(url)?);
    spec.timeout = handler.timeout;
    let secret = handler.secret.as_ref().map(|secret| SigningSecret::parse(secret.expose()));
    spec.secret = secret.transpose()?;
    for (name, value) in &handler.headers {
        let (name, value) = own_header(name, value)?;
        spec.headers.insert(name, value);
    }
    Ok(spec)
}
