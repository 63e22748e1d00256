//! Checks that each line of any body of `POST /v1/calls` is a call, is refused, or is empty, unless
//! the body is refused as a whole.
#![no_main]

use callbridge_hub::lines::read_lines;
use callbridge_hub::protocol::LINES_MAX;

libfuzzer_sys::fuzz_target!(|input: (Option<&str>, &[u8])| {
    let (content_type, body) = input;
    let Ok(lines) = read_lines(body, content_type) else {
        return;
    };
    if lines.is_one {
        assert!(lines.calls.is_empty() && lines.refused.len() == 1);
        return;
    }
    let refused = lines.refused.iter().map(|refused| refused.line);
    let mut numbers: Vec<usize> = lines.calls.iter().map(|call| call.line).collect();
    numbers.extend(refused);
    numbers.sort_unstable();
    let mut messages = Vec::new();
    for (at, line) in body.split(|byte| *byte == b'\n').enumerate() {
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        if !line.trim_ascii().is_empty() {
            messages.push(at + 1);
        }
    }
    assert_eq!(numbers, messages);
    assert!(numbers.len() <= LINES_MAX);
});
