//! Tests that every check of `check` fails when it should, names the problem and its fix, and that
//! the worst problem sets the exit code. A correct setup exits with 0.
//!
//! | module | tests |
//! |---|---|
//! | `service` | address, token, grant, company, budget |
//! | `inward` | sources, trunks |
//! | `lists` | lists of leads and employees |
//! | `account` | the rights and events of a manager account, and the PBX's endpoints |
//! | `switch` | a FreeSWITCH: its login, and its gateways compared with the trunks |
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
