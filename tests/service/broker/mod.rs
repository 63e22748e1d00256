//! Tests queues with a real RabbitMQ node of the tests.

mod alarm;
mod consumption;
mod notices;
mod poison;
mod stage;
mod tls;
