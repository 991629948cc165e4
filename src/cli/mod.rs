//! What the three programs share at their edge: how they end ([`exit`]), hear signals
//! ([`interrupt`]), end what they started ([`children`]), say things ([`message`]), show progress
//! ([`progress`]), name a file by its [`digest`] (which [`digests`] remembers) and keep packed copies
//! of models ([`packed`]).

pub mod children;
pub mod digest;
pub mod digests;
pub mod exit;
pub mod interrupt;
pub mod message;
pub mod packed;
pub mod progress;
