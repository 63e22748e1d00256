//! Tests the client and the sender's loop over real sockets.

mod client;
mod hostile;
mod socket;
mod work;
