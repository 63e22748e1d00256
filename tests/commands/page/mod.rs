//! The administrator's page, as `run` shows it.
//!
//! | module | its question |
//! |---|---|
//! | `actions` | does what is done there come true? |
//! | `browser` | (somebody at the page) |
//! | `password` | does `page password` print a line that the page understands? |
//! | `door` | who comes in, and who does not? |
//! | `views` | do views show what the calls say, in the language of whoever looks? |

mod actions;
mod browser;
mod door;
mod password;
mod views;
