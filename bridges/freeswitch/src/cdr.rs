//! The files of `mod_json_cdr`: one for each leg, written when it is over.
