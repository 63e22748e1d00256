//! The broker's queues against a real RabbitMQ of the tests' own.

mod consumption;
mod notices;
mod stage;
mod tls;
