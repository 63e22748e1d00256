//! Tests everything that uses sockets, without the program: the sandbox and its clients, and the
//! broker's queues.
//!
//! | module | tests |
//! |---|---|
//! | `sandbox` | the CRM's answers to a client |
//! | `deliveries` | webhooks that the sandbox sends as the document specifies |
//! | `sender` | the client and the sender's loop over real sockets |
//! | `webhook` | the receiver accepts only the CRM's webhooks |
//! | `broker` | the queues of a real RabbitMQ node |

mod broker;
mod deliveries;
mod sandbox;
mod sender;
mod webhook;
