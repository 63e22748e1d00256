//! What speaks over sockets, without the program: the CRM of the document and those who talk to it,
//! and the broker's queues.
//!
//! | module | its question |
//! |---|---|
//! | `sandbox` | does the CRM answer as a client meets it? |
//! | `deliveries` | does it deliver webhooks as the document says? |
//! | `sender` | do the client and the sender's loop hold over real sockets? |
//! | `webhook` | does the receiver take what the service sends, and nothing of others? |
//! | `broker` | do the queues of a real RabbitMQ hold what they promise? |

mod broker;
mod deliveries;
mod sandbox;
mod sender;
mod webhook;
