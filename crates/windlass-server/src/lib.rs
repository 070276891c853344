//! What the binary `windlass` is made of. Each part has its own folder and knows
//! the engine below it; the command line speaks to a server only over HTTP.

pub mod cli;
