//! `check`: every check fails where it should, names what is wrong and what to do, and ends with
//! the code of the worst fault; a clean setup ends with 0.
//!
//! | module | its question |
//! |---|---|
//! | `service` | address, token, grant, company, budget |
//! | `inward` | sources, trunks |
//! | `lists` | lists of leads and employees |
//! | `account` | what a manager account may do and hear, and the PBX's endpoints |
//! | `switch` | a FreeSWITCH: its login, its gateways against the trunks |
//! | `broker_parts` | queues, virtual hosts and rights of a real RabbitMQ node |
//! | `database` | the PostgreSQL server of a state |
//! | `place` | state folder, binding, clock, listener |

mod account;
mod broker_parts;
mod database;
pub mod findings;
mod inward;
mod lists;
mod place;
mod service;
mod switch;
