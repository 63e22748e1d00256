//! Tests that start real programs: callbridge, brokers, PBXs of the tests, and the CRM's sandbox.
//!
//! | module | what it tests |
//! |---|---|
//! | `e2e` | the whole program: recorded calls in, records in the CRM out |
//! | `commands` | each command, as an administrator runs it |
//! | `replay` | every recording, in this process and through `callbridge explain` |
//! | `service` | the sockets of the sandbox, the sender, the webhook receiver, and the broker |
//! | `chaos` | cut connections, wrong answers, and kills; a judge is in front of the CRM |
//! | `kill` | kills at each commit, and disks that fail |
//! | `support` | what they share |

mod chaos;
mod commands;
mod e2e;
mod kill;
mod replay;
mod service;
mod support;
