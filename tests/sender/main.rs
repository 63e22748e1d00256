//! The client and the sender's loop over real sockets.

#[path = "../simulation/calls.rs"]
#[allow(dead_code)] // the dice are the simulation's
mod calls;
mod client;
mod hostile;
mod work;
