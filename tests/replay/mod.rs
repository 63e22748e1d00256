//! Plays recorded calls again, in this process and through `callbridge explain`, and checks that
//! each matches its story.
//!
//! | module | tests |
//! |---|---|
//! | `recordings` | every recording, from AMI as text and as JSON |
//! | `cel` | CEL gives the same calls, whatever its source |
//! | `cdr_alone` | calls with only call detail records |
//! | `ami1`, `old_releases` | calls of Asterisk 1.4 to 16 |
//! | `metamorphic` | changes without meaning change no call |
//! | `losses` | losing any event yields no wrong value |
//! | `gaps` | missing events are filled or reported, and cause no wrong call |
//! | `explain`, `story` | the output, the lists, and the pictures of `explain` |
//! | `field` | calls that were once assembled wrongly in the field |
//! | `matrix` | a file with the wrong format's flag is recognized |

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
