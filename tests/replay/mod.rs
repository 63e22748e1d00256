//! Plays back recorded calls, both in this process and through `callbridge explain`, and checks
//! that each matches its story.
//!
//! | module | tests |
//! |---|---|
//! | `recordings` | every recording, from AMI as text and as JSON |
//! | `cel` | CEL results in the same calls, no matter which source it comes from |
//! | `cdr_alone` | calls with nothing but call detail records |
//! | `ami1`, `old_releases` | calls of Asterisk 1.4 to 16 |
//! | `metamorphic` | meaningless changes don't change any call |
//! | `losses` | losing any event never results in a wrong value |
//! | `gaps` | missing events are filled in or reported, and never cause a wrong call |
//! | `explain`, `story` | the output of `explain`, its lists, and its pictures |
//! | `field` | calls in the field that used to be assembled incorrectly |
//! | `matrix` | a file is recognized even with another format's flag |

mod ami1;
mod cdr_alone;
mod cel;
mod explain;
mod field;
mod gaps;
mod losses;
mod matrix;
mod metamorphic;
mod old_releases;
mod recorded;
mod recordings;
mod story;
mod told;
