//! Recorded calls played again, in this process and through `callbridge explain`: each is told as
//! its story says it was.
//!
//! | module | its question |
//! |---|---|
//! | `recordings` | is every recording told right, from AMI as text and as JSON? |
//! | `cel` | does CEL alone tell the same, whatever carries it? |
//! | `cdr_alone` | what do call detail records alone tell? |
//! | `ami1`, `old_releases` | are calls of Asterisk 1.4 to 16 told right? |
//! | `metamorphic` | does a change that means nothing change nothing? |
//! | `gaps` | is what a torn line hid told or missed, and never wrong? |
//! | `explain`, `story` | does `explain` tell, list and draw them so? |
//! | `field` | do calls that were once assembled wrongly in the field come out right? |
//! | `matrix` | is a file under the wrong format's flag named? |

mod ami1;
mod cdr_alone;
mod cel;
mod explain;
mod field;
mod gaps;
mod matrix;
mod metamorphic;
mod old_releases;
mod recorded;
mod recordings;
mod story;
mod told;
