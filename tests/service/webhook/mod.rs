//! The receiver of webhooks on a real socket: what the service sends, and what others do.

mod deliveries;
mod hostile;
mod line;
mod place;
mod slow;
mod tls;
