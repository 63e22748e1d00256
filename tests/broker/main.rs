//! The broker's queues against a real RabbitMQ of the tests' own.

#[path = "../support/authority.rs"]
mod authority;
#[path = "../support/broker.rs"]
#[allow(dead_code, reason = "each test binary uses its own part of it")]
mod broker;
mod consumption;
mod notices;
#[path = "../support/proxy.rs"]
mod proxy;
mod stage;
mod tls;
