//! Tests the sender with the CRM of the document, under a virtual clock. Hours take a second.

mod campaign;
mod confirmation;
mod disk;
mod drain;
mod five_minutes;
mod full;
mod hooks;
mod hub;
mod hubs;
mod log;
mod paths;
pub mod scenario;
mod single_calls;
mod strikes;
mod table;
mod tokens;
mod trouble;
mod way;
mod weather;
mod webhooks;
mod witness;
pub mod world;
