//! Dead letters, end to end: the program as a process, a CRM on loopback, a real RabbitMQ node.
//!
//! | module | its question |
//! |---|---|
//! | `alarm` | does `status` name an alarm of the broker, and is each letter published once? |
//! | `ninety_calls` | do calls with an unknown lead die, reach RabbitMQ, and leave after a retry? |
//! | `commands` | does each `dead` command do what it says, with and without a daemon? |
//! | `given` | does a lead that a person gives let calls go, and is it told who did what? |
//! | `listed` | does `calls` list what is kept, and follow what comes? |
//! | `watch` | does `dead watch` tell of letters as they come to be? |
//! | `reasons` | does each reason come to be, with its hint and its fix? |
//! | `unread` | is what cannot be read kept, and the line not lost? |

mod alarm;
mod commands;
mod given;
mod listed;
mod ninety_calls;
mod reasons;
mod seed;
mod unread;
mod watch;
