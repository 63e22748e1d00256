//! The broker's queues against a real RabbitMQ of the tests' own.

mod alarm;
mod consumption;
mod notices;
mod stage;
mod tls;
