//! The first set-up: answers and what a PBX shows come in, questions, proposals and the text of
//! files go out. Pure: whoever asks, connects and writes is the command `init`.
//!
//! | module | what lives there |
//! |---|---|
//! | [`question`] | what is asked, in its order, and the flag that answers it |
//! | [`kind`] | trunk or telephone: by what is known of an endpoint, with the reason |
//! | [`local_conf`] | the same facts, from the PBX's own configuration files |
//! | [`proposal`] | what is proposed of all endpoints |
//! | [`switch`] | the same of a FreeSWITCH: gateways and telephones |
//! | [`zone`] | the zone of the PBX, and whether its clock is right |
//! | [`flags_file`] | the text of `NAME.flags` |
//! | [`snippet`] | the lines that the PBX has not shown to have |
//! | [`difference`] | what a file would lose and gain |

pub mod difference;
pub mod flags_file;
pub mod kind;
pub mod local_conf;
pub mod proposal;
pub mod question;
pub mod snippet;
pub mod switch;
pub mod zone;
