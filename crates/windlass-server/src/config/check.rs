//! Whether the parts of a configuration fit together: steps and handlers, the
//! address and the sign-in, the role and the store. Single values were looked at
//! when they were read. Findings name keys; `layers.rs` knows where those are.

use super::suggest::nearest;
use super::{AuthMode, Config, HandlerConfig, KindConfig, Role, UnknownKinds};
use std::path::Path;
use std::time::Duration;
use windlass_core::task::STEPS_MAX;

/// Something about a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub key: Vec<String>,
    pub message: String,
    pub hint: String,
}

/// What a look at the whole found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    pub errors: Vec<Finding>,
    pub warnings: Vec<Finding>,
}

fn finding(key: &[&str], message: String, hint: impl Into<String>) -> Finding {
    let key = key.iter().map(|part| (*part).to_owned()).collect();
    Finding { key, message, hint: hint.into() }
}

impl Config {
    /// Looks whether everything fits together. Looks for programs on the disk,
    /// and changes nothing.
    pub fn check(&self) -> Findings {
        let mut found = Findings::default();
        self.check_server(&mut found);
        self.check_times(&mut found);
        for (name, kind) in &self.kinds {
            self.check_kind(name, kind, &mut found);
        }
        for (name, handler) in &self.handlers {
            check_handler(name, handler, &mut found);
        }
        found
    }

    /// Rules for a kind that only remote workers serve: no steps, no handler, and
    /// the server accepts what it does not serve.
    pub(crate) fn is_remote(&self, name: &str, kind: &KindConfig) -> bool {
        let alone = kind.steps.is_none() && !self.handlers.contains_key(name);
        alone && self.server.unknown_kinds == UnknownKinds::Park
    }

    fn check_server(&self, found: &mut Findings) {
        let listen = self.server.listen.0;
        if self.auth.mode == AuthMode::Off && !listen.ip().is_loopback() {
            let hint = "without sign-in Windlass listens on loopback only; put a proxy with sign-in before it";
            let message = format!("`server.listen`: {listen} is not a loopback address");
            found.errors.push(finding(&["server", "listen"], message, hint));
        }
        let scheme = self.store.url.scheme();
        if self.role != Role::All && matches!(scheme, "sqlite" | "memory") {
            let role = self.role.as_str();
            let message = format!(
                "role `{role}` needs a store that several processes can share, and `{scheme}:` belongs to one"
            );
            found.errors.push(finding(&["role"], message, "leave --role out"));
        }
        let (payload, body) = (self.defaults.payload_max, self.server.body_max);
        if payload > body {
            let message = format!(
                "`defaults.payload_max` {payload} is more than `server.body_max` {body}, so larger payloads never arrive over HTTP"
            );
            found.warnings.push(finding(
                &["defaults", "payload_max"],
                message,
                "raise server.body_max",
            ));
        }
    }

    fn check_times(&self, found: &mut Findings) {
        let defaults = &self.defaults;
        let mut late = |table: &[&str], step: Duration, task: Duration| {
            if step > task {
                let key = [table, &["step_timeout"]].concat();
                let message = format!(
                    "`{}` is longer than the task's timeout, which ends the task first",
                    super::locate::dotted(&key)
                );
                found.warnings.push(finding(&key, message, "raise task_timeout"));
            }
        };
        late(&["defaults"], defaults.step_timeout, defaults.task_timeout);
        for (name, kind) in &self.kinds {
            if kind.step_timeout.is_some() || kind.task_timeout.is_some() {
                let step = kind.step_timeout.unwrap_or(defaults.step_timeout);
                let task = kind.task_timeout.unwrap_or(defaults.task_timeout);
                late(&["kinds", name], step, task);
            }
        }
    }

    fn check_kind(&self, name: &str, kind: &KindConfig, found: &mut Findings) {
        let handlers = || self.handlers.keys().map(String::as_str);
        let Some(steps) = &kind.steps else {
            if !self.handlers.contains_key(name) && !self.is_remote(name, kind) {
                let message =
                    format!("kind `{name}` has neither `steps` nor a handler of its name");
                let hint = match nearest(name, handlers()) {
                    Some(near) => format!("there is a handler `{near}`"),
                    None => format!(
                        "write steps = [...], or a table [handlers.{}]; for a kind of remote workers set server.unknown_kinds = \"park\"",
                        super::locate::quote(name)
                    ),
                };
                found.errors.push(finding(&["kinds", name], message, hint));
            }
            return;
        };
        if steps.is_empty() {
            let message = format!("kind `{name}` has no steps, so its tasks would do nothing");
            found.errors.push(finding(&["kinds", name, "steps"], message, "name its handlers"));
        }
        if steps.len() > STEPS_MAX {
            let message =
                format!("kind `{name}` has {} steps; the most is {STEPS_MAX}", steps.len());
            found.errors.push(finding(&["kinds", name, "steps"], message, "split it"));
        }
        for step in steps.iter().filter(|step| !self.handlers.contains_key(*step)) {
            let message = format!("kind `{name}` names the step `{step}`, which has no handler");
            let hint = match nearest(step, handlers()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("add a table [handlers.{}]", super::locate::quote(step)),
            };
            found.errors.push(finding(&["kinds", name, "steps"], message, hint));
        }
    }
}

fn check_handler(name: &str, handler: &HandlerConfig, found: &mut Findings) {
    let Some(program) = handler.exec.first() else {
        let message = format!("handler `{name}` has no `exec`");
        let hint = "argv as an array, never a shell string: exec = [\"python3\", \"scan.py\"]";
        found.errors.push(finding(&["handlers", name], message, hint));
        return;
    };
    let process_path = std::env::var("PATH").unwrap_or_default();
    let path = handler.env.get("PATH").unwrap_or(&process_path);
    if !can_run(program, path) {
        let message = format!("handler `{name}`: there is no program `{program}` that can be run");
        let hint = match program.contains('/') {
            true => "the path is relative to the working directory of the process",
            false => "it was looked for in the folders of PATH",
        };
        found.warnings.push(finding(&["handlers", name, "exec"], message, hint));
    }
}

fn can_run(program: &str, path: &str) -> bool {
    if program.contains('/') {
        return is_executable(Path::new(program));
    }
    std::env::split_paths(path).any(|folder| is_executable(&folder.join(program)))
}

fn is_executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::super::Listen;
    use super::*;

    fn told(change: impl FnOnce(&mut Config)) -> Findings {
        let mut config = Config::default();
        change(&mut config);
        config.check()
    }

    fn runs(program: &str) -> HandlerConfig {
        HandlerConfig { exec: vec![program.to_owned()], ..HandlerConfig::default() }
    }

    fn chain(steps: &[&str]) -> KindConfig {
        let steps = steps.iter().map(|step| (*step).to_owned()).collect();
        KindConfig { steps: Some(steps), ..KindConfig::default() }
    }

    #[test]
    fn defaults_and_a_plain_chain_fit() {
        let found = told(|c| {
            c.handlers.insert("scan".to_owned(), runs("sh"));
            c.kinds.insert("ingest".to_owned(), chain(&["scan"]));
            c.kinds.insert("scan".to_owned(), KindConfig::default());
        });
        assert_eq!(found, Findings::default());
    }

    #[test]
    fn only_loopback_without_sign_in() {
        for (address, fits) in [
            ("127.0.0.1:1", true),
            ("127.8.8.8:1", true),
            ("[::1]:1", true),
            ("0.0.0.0:1", false),
            ("[::]:1", false),
            ("10.0.0.1:1", false),
        ] {
            let found = told(|c| c.server.listen = Listen::parse(address).unwrap());
            assert_eq!(found.errors.is_empty(), fits, "{address}");
            let hint = found.errors.first().map(|e| e.hint.clone()).unwrap_or_default();
            assert!(fits || hint.contains("put a proxy with sign-in before it"), "{hint}");
        }
    }

    #[test]
    fn steps_need_handlers_and_handlers_a_program() {
        let found = told(|c| {
            c.handlers.insert("scan".to_owned(), runs("sh"));
            c.handlers.insert("empty".to_owned(), HandlerConfig::default());
            c.kinds.insert("a".to_owned(), chain(&["scna", "scan"]));
            c.kinds.insert("b".to_owned(), KindConfig::default());
        });
        let told: Vec<(String, &str)> =
            found.errors.iter().map(|e| (e.key.join("."), e.message.as_str())).collect();
        let expected = [
            ("kinds.a.steps".to_owned(), "kind `a` names the step `scna`, which has no handler"),
            ("kinds.b".to_owned(), "kind `b` has neither `steps` nor a handler of its name"),
            ("handlers.empty".to_owned(), "handler `empty` has no `exec`"),
        ];
        assert_eq!(told, expected);
        assert_eq!(found.errors[0].hint, "did you mean `scan`?");
    }

    #[test]
    fn rules_alone_are_for_kinds_of_remote_workers() {
        for (rule, fits) in [(UnknownKinds::Park, true), (UnknownKinds::Refuse, false)] {
            let found = told(|c| {
                c.server.unknown_kinds = rule;
                c.kinds.insert("far".to_owned(), KindConfig::default());
            });
            assert_eq!(found.errors.is_empty(), fits, "{found:?}");
            let hint = found.errors.first().map_or("", |e| e.hint.as_str());
            assert!(fits || hint.contains("server.unknown_kinds = \"park\""), "{hint}");
        }
        let found = told(|c| {
            c.server.unknown_kinds = UnknownKinds::Park;
            c.kinds.insert("far".to_owned(), chain(&["scan"]));
        });
        assert_eq!(found.errors.len(), 1, "steps still need handlers: {found:?}");
    }

    #[test]
    fn a_program_that_is_not_there_is_a_warning() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("data.txt");
        std::fs::write(&file, "x").unwrap();
        let programs = ["no-such-program-here", "./no/such", file.to_str().unwrap()];
        for program in programs {
            let found = told(|c| drop(c.handlers.insert("a".to_owned(), runs(program))));
            assert_eq!((found.errors.len(), found.warnings.len()), (0, 1), "{program}");
            assert!(found.warnings[0].message.contains(program), "{found:?}");
        }
        let mut elsewhere = runs("sh");
        elsewhere.env.insert("PATH".to_owned(), dir.path().display().to_string());
        let found = told(|c| drop(c.handlers.insert("a".to_owned(), elsewhere)));
        assert_eq!(found.warnings.len(), 1);
    }

    #[test]
    fn roles_need_a_shared_store_and_odd_times_are_warned_of() {
        assert_eq!(told(|c| c.role = Role::Worker).errors[0].key, ["role"]);
        let found = told(|c| c.defaults.task_timeout = Duration::from_secs(1));
        assert!(
            found.warnings[0].message.contains("`defaults.step_timeout` is longer"),
            "{found:?}"
        );
        let found = told(|c| c.server.body_max = super::super::Size::bytes(10));
        assert_eq!((found.errors.len(), found.warnings.len()), (0, 1));
    }
}
