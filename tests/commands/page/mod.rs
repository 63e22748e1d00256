//! Tests the administrator's page, as `run` shows it.
//!
//! | module | tests |
//! |---|---|
//! | `actions` | actions on the page have their effect |
//! | `browser` | (a user of the page) |
//! | `password` | `page password` prints a line that the page accepts |
//! | `door` | who has access to the page |
//! | `views` | views show the calls, in the language of the user |

mod actions;
mod browser;
mod door;
mod password;
mod views;
