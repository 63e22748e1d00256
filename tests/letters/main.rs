//! Dead letters, end to end: the program as a process, a CRM on loopback, a real RabbitMQ node.

#[path = "../support/calls.rs"]
mod calls;
mod ninety_calls;
#[path = "../support/sidecar.rs"]
#[allow(dead_code, reason = "each test binary uses its own part of it")]
mod sidecar;
