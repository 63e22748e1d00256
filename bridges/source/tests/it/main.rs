//! Sources against listeners of the tests' own: what goes over the line, what is told of it.

mod ami;
#[path = "../../../../tests/support/authority.rs"]
mod authority;
mod file;
mod hearing;
mod listener;
#[path = "../../../../tests/support/proxy.rs"]
mod proxy;
mod ring;
mod stage;
mod tls;
mod url;
mod websocket;
