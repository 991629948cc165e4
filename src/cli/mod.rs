//! What the three programs share at their edge: how they end ([`exit`]), hear signals
//! ([`interrupt`]), end what they started ([`children`]), say things ([`message`]), write files ([`output`]), show progress ([`progress`]) and name a file by its
//! [`digest`].

pub mod children;
pub mod digest;
pub mod exit;
pub mod interrupt;
pub mod message;
pub mod output;
pub mod progress;
