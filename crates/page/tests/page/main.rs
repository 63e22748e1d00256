//! The page over real sockets, before a daemon that lives in memory.

mod branches;
mod calls;
mod causes;
mod client;
mod fake;
mod letters;
mod live;
mod morning;
mod numbers;
mod security;
mod today;
mod views;
