//! Who may do what: the roles and their order, and an access token as a store
//! keeps it. A store never sees a token's secret, only its hash; making and
//! checking secrets is the server's work, as is saying which role a request
//! needs.

use crate::clock::Timestamp;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Most tokens a store keeps.
pub const TOKENS_MAX: usize = 1000;
/// Longest name of a token.
const NAME_MAX: usize = 100;

/// What the holder of a token may do. `Submitter` and `Worker` are beside each
/// other; apart from that each role may do what the one before may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Looks.
    Viewer,
    /// Submits tasks.
    Submitter,
    /// Claims tasks and reports on them.
    Worker,
    /// Acts on tasks, queues, nodes.
    Operator,
    /// Gives and takes rights.
    Admin,
}

impl Role {
    pub const ALL: [Role; 5] =
        [Role::Viewer, Role::Submitter, Role::Worker, Role::Operator, Role::Admin];

    pub const fn as_str(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Submitter => "submitter",
            Role::Worker => "worker",
            Role::Operator => "operator",
            Role::Admin => "admin",
        }
    }

    /// Whether a holder of this role may do what needs `needed`.
    pub fn includes(self, needed: Role) -> bool {
        let rank = |role| match role {
            Role::Viewer => 0,
            Role::Submitter | Role::Worker => 1,
            Role::Operator => 2,
            Role::Admin => 3,
        };
        self == needed || rank(self) > rank(needed)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Role::ALL.into_iter().find(|role| role.as_str() == text).ok_or_else(|| {
            let all = Role::ALL.map(Role::as_str).join(", ");
            Error::invalid("role", format!("`{text}` is not a role; use one of {all}"))
        })
    }
}

/// An access token without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessToken {
    /// What people call it; at most one token has it.
    pub name: String,
    /// The part of the token that is no secret, by which it is found.
    pub id: String,
    pub role: Role,
    /// Of the whole token, as text.
    pub hash: String,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

impl AccessToken {
    pub fn validate(&self) -> Result<()> {
        check_token_name(&self.name)?;
        if self.id.is_empty() || self.hash.is_empty() {
            return Err(Error::invalid("token", "a token needs an id and a hash"));
        }
        Ok(())
    }

    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }

    /// Whether this new token may be kept beside `stored`, of which one may have
    /// its name. An expired one makes way.
    pub fn may_join(&self, stored: &[AccessToken], now: Timestamp) -> Result<()> {
        let same = stored.iter().find(|token| token.name == self.name);
        if same.is_some_and(|token| !token.is_expired(now)) {
            let message = format!("there is a token `{}`; revoke it first", self.name);
            return Err(Error::conflict("token", message));
        }
        if same.is_none() && stored.len() >= TOKENS_MAX {
            let message = format!("there are {TOKENS_MAX} tokens; revoke some first");
            return Err(Error::conflict("token", message));
        }
        Ok(())
    }
}

/// Names stand in logs and audit lists, so they are plain.
pub fn check_token_name(name: &str) -> Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(plain) {
        let message = format!(
            "`{name:.120}` cannot be a token's name; use 1 to {NAME_MAX} of letters, digits, - _ . @"
        );
        return Err(Error::invalid("token", message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const T: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn token(name: &str) -> AccessToken {
        AccessToken {
            name: name.to_owned(),
            id: "a1".to_owned(),
            role: Role::Viewer,
            hash: "00".to_owned(),
            created_at: T,
            expires_at: None,
        }
    }

    #[test]
    fn roles_include_what_is_below_them() {
        //                       viewer submitter worker operator admin
        let table = [
            (Role::Viewer, [true, false, false, false, false]),
            (Role::Submitter, [true, true, false, false, false]),
            (Role::Worker, [true, false, true, false, false]),
            (Role::Operator, [true, true, true, true, false]),
            (Role::Admin, [true, true, true, true, true]),
        ];
        for (role, may) in table {
            assert_eq!(Role::ALL.map(|needed| role.includes(needed)), may, "{role}");
            assert_eq!(role.as_str().parse::<Role>().unwrap(), role);
        }
        assert!("root".parse::<Role>().unwrap_err().message().contains("viewer, submitter"));
    }

    #[test]
    fn names_are_plain() {
        for good in ["ci", "ann@example.com", "worker-7_b"] {
            assert!(check_token_name(good).is_ok(), "{good}");
        }
        for bad in ["", "a b", "a\nb", "ü", &"x".repeat(101)] {
            assert!(check_token_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn one_live_token_has_a_name() {
        let stored = [AccessToken { expires_at: Some(T), ..token("old") }, token("live")];
        assert!(token("live").may_join(&stored, T).is_err());
        assert!(token("old").may_join(&stored, T).is_ok());
        let before = Timestamp::from_millis(1_700_000_000_000);
        assert!(token("old").may_join(&stored, before).is_err());
        let many: Vec<_> = (0..TOKENS_MAX).map(|i| token(&format!("t{i}"))).collect();
        assert!(token("one-more").may_join(&many, T).is_err());
        assert!(!token("x").is_expired(T.plus(Duration::from_secs(1))));
    }
}
