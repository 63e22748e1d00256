//! Tests the receiver of webhooks on a real socket, with deliveries of the CRM and of other
//! senders.

mod deliveries;
mod hostile;
mod line;
mod place;
mod slow;
mod tls;
