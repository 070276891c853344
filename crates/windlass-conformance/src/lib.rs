//! The suites every backend must pass.
//! One list of cases, expanded by macro for every store.
