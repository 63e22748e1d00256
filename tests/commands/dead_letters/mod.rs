//! Tests dead letters with the program as a process, a CRM on loopback, and a real RabbitMQ node.
//!
//! | module | tests |
//! |---|---|
//! | `alarm` | `status` names an alarm of the broker, and each dead letter is published once |
//! | `ninety_calls` | calls with an unknown lead become dead letters in RabbitMQ, until a retry |
//! | `commands` | each `dead` command, with a daemon and without one |
//! | `given` | an assigned lead sends waiting calls, and the user of each action is stored |
//! | `listed` | `calls` lists stored calls and follows new calls |
//! | `watch` | `dead watch` shows new dead letters |
//! | `reasons` | each reason occurs, and its fix works |
//! | `unread` | unreadable messages are kept, and the source continues |

mod alarm;
mod commands;
mod given;
mod listed;
mod ninety_calls;
mod reasons;
mod seed;
mod unread;
mod watch;
