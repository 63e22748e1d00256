//! `demo`: recorded calls over a real WebSocket, a CRM on loopback, and everything between.

pub mod pbx;
pub mod recording;
