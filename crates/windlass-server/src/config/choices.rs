//! The words a key may be set to, as types. Each list of words stands once, here:
//! the schema offers it, errors suggest from it, `Config` holds the type. What a
//! choice does is for the engine and the server to know.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! choices {
    ($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub enum $name { $($(#[$about])* $variant),+ }

        impl $name {
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                match String::deserialize(d)?.as_str() {
                    $($word => Ok($name::$variant),)+
                    other => Err(serde::de::Error::unknown_variant(other, $name::WORDS)),
                }
            }
        }
    };
}

choices! {
    /// What happens to a submission of a kind nobody here serves.
    UnknownKinds {
        #[default]
        Refuse = "refuse",
        Park = "park",
    }
}

choices! {
    /// Whether an error that says nothing about itself is retried.
    UnknownErrors {
        #[default]
        Retry = "retry",
        Fail = "fail",
    }
}

choices! {
    /// Where a kind's code runs.
    Pool {
        #[default]
        Io = "io",
        Cpu = "cpu",
    }
}

choices! {
    /// What becomes of a checkpoint that no longer fits its plan.
    OnMismatch {
        #[default]
        KeepPrefix = "keep-prefix",
        Discard = "discard",
        Hold = "hold",
    }
}

choices! {
    /// Where the data of checkpoints lives.
    CheckpointHome {
        #[default]
        Store = "store",
    }
}

choices! {
    /// How callers sign in.
    AuthMode {
        #[default]
        Off = "off",
        /// Every request shows a token.
        Token = "token",
    }
}

choices! {
    /// What the dashboard may do.
    UiMode {
        #[default]
        Full = "full",
        ReadOnly = "read-only",
        Off = "off",
    }
}

impl From<UnknownKinds> for windlass::UnknownKinds {
    fn from(choice: UnknownKinds) -> Self {
        match choice {
            UnknownKinds::Refuse => windlass::UnknownKinds::Refuse,
            UnknownKinds::Park => windlass::UnknownKinds::Park,
        }
    }
}

impl From<UnknownErrors> for windlass::UnknownErrors {
    fn from(choice: UnknownErrors) -> Self {
        match choice {
            UnknownErrors::Retry => windlass::UnknownErrors::Retry,
            UnknownErrors::Fail => windlass::UnknownErrors::Fail,
        }
    }
}

impl From<Pool> for windlass::Pool {
    fn from(choice: Pool) -> Self {
        match choice {
            Pool::Io => windlass::Pool::Io,
            Pool::Cpu => windlass::Pool::Cpu,
        }
    }
}

impl From<OnMismatch> for windlass::OnMismatch {
    fn from(choice: OnMismatch) -> Self {
        match choice {
            OnMismatch::KeepPrefix => windlass::OnMismatch::KeepPrefix,
            OnMismatch::Discard => windlass::OnMismatch::Discard,
            OnMismatch::Hold => windlass::OnMismatch::Hold,
        }
    }
}
