//! The first setup. The input is a person's answers and the facts that a PBX shows. The output is
//! questions, proposals, and the text of files. The code is pure: the command `init` asks,
//! connects, and writes.
//!
//! | module | contents |
//! |---|---|
//! | [`question`] | the questions in their order, and the flag that answers each |
//! | [`local_conf`] | facts of endpoints, from the PBX's own configuration files |
//! | [`proposal`] | the proposed kind of each endpoint, trunk or telephone, with the reason |
//! | [`pbx_id`] | the PBX's id, made from the host name |
//! | [`zone`] | the zone of the PBX, and whether its clock is right |
//! | [`flags_file`] | the text of `NAME.flags`, and how it differs from a file |
//! | [`snippet`] | the lines of `manager.conf` that the PBX needs |

pub mod flags_file;
pub mod local_conf;
pub mod pbx_id;
pub mod proposal;
pub mod question;
pub mod snippet;
pub mod zone;
