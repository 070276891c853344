pub mod boot;
pub mod config;
