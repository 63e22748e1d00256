//! The first set-up: answers and what a PBX shows come in, questions, proposals and the text of
//! files go out. Pure: whoever asks, connects and writes is the command `init`.
//!
//! | module | what lives there |
//! |---|---|
//! | [`question`] | what is asked, in its order, and the flag that answers it |
//! | [`local_conf`] | the same facts, from the PBX's own configuration files |
//! | [`proposal`] | what is proposed of all endpoints: trunk or telephone, with the reason |
//! | [`pbx_id`] | the PBX's id, made from the host name |
//! | [`zone`] | the zone of the PBX, and whether its clock is right |
//! | [`flags_file`] | the text of `NAME.flags`, and what a file would lose and gain |
//! | [`snippet`] | the lines that the PBX has not shown to have |

pub mod flags_file;
pub mod local_conf;
pub mod pbx_id;
pub mod proposal;
pub mod question;
pub mod snippet;
pub mod zone;
