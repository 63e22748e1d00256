//! Tests the administrator's page of a running daemon.
//!
//! | module | tests |
//! |---|---|
//! | `actions` | actions on the page retry dead letters and assign leads |
//! | `browser` | (no tests: a browser for the other modules) |
//! | `password` | `page password` prints a line that the page accepts |
//! | `door` | who has access to the page |
//! | `views` | views show the calls, in the language of the user |

mod actions;
mod browser;
mod door;
mod password;
mod views;
