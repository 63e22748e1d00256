//! CEL events of AMI as rows of `cel_custom`.

/// The columns of Asterisk's sample for `cel_custom`, as AMI names them.
pub const COLUMNS: [&str; 20] = [
    "EventName",
    "EventTime",
    "CallerIDname",
    "CallerIDnum",
    "CallerIDani",
    "CallerIDrdnis",
    "CallerIDdnid",
    "Exten",
    "Context",
    "Channel",
    "Application",
    "AppData",
    "AMAFlags",
    "AccountCode",
    "UniqueID",
    "LinkedID",
    "Peer",
    "Userfield",
    "UserDefType",
    "Extra",
];

/// Returns the value of a field, or no bytes if the message does not have the field.
fn value(message: &[u8], name: &str) -> Vec<u8> {
    let mut lines = message.split(|byte| *byte == b'\n');
    let head = format!("{name}: ");
    let line = lines.find_map(|line| line.strip_prefix(head.as_bytes()));
    line.unwrap_or_default().trim_ascii_end().to_vec()
}

/// Returns the row of a CEL event of AMI. Its time is that of `Timestamp`.
pub fn row(message: &[u8]) -> Vec<u8> {
    let mut row = Vec::new();
    for name in COLUMNS {
        let text = match name {
            "EventTime" => value(message, "Timestamp"),
            name => value(message, name),
        };
        row.extend_from_slice(if row.is_empty() { b"\"" } else { b",\"" });
        for byte in text {
            row.extend_from_slice(if byte == b'"' {
                b"\"\""
            } else {
                std::slice::from_ref(&byte)
            });
        }
        row.push(b'"');
    }
    row
}
