//! Drawings that stand beside words: lines of 24 units, in the colour of the text around them.

use crate::markup::Markup;

/// The drawing of this name; a dot for one that is none.
pub(crate) fn drawing(name: &str) -> Markup {
    let lines = match name {
        "today" => "M3 12h4l3-8 4 16 3-8h4",
        "calls" => {
            "M5 4h4l2 5-2.500 1.500a11 11 0 0 0 5 5L15 13l5 2v4a2 2 0 0 1-2 2A16 16 0 0 1 3 6a2 \
             2 0 0 1 2-2z"
        }
        "letters" => {
            "M4 5h16a1 1 0 0 1 1 1v12a1 1 0 0 1-1 1H4a1 1 0 0 1-1-1V6a1 1 0 0 1 1-1zM3.500 \
             6.500l8.500 6.500 8.500-6.500"
        }
        "numbers" => "M5 9h14M5 15h14M10 4L8 20M16 4l-2 16",
        "missed" => "M4 8l7 7 8-8M13 7h6v6",
        "employees" => {
            "M9 11a3.500 3.500 0 1 0 0-7 3.500 3.500 0 0 0 0 7zM3 20v-1a5 5 0 0 1 5-5h2a5 5 0 0 1 \
             5 5v1M16 4.500a3.500 3.500 0 0 1 0 6M18 14.500a5 5 0 0 1 3 4.500v1"
        }
        "pbx" => "M4 4h16v6H4zM4 14h16v6H4zM8 7h.01M8 17h.01",
        "fleet" => "M12 4v5M6 20v-5h12v5M12 9v6M9 4h6M4 20h4M10 20h4M16 20h4",
        "check" => "M9 11l3 3 8-8M20 12v6a2 2 0 0 1-2 2H6a2 2 0 0 1-2-2V6a2 2 0 0 1 2-2h9",
        "well" => "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM8.500 12l2.500 2.500 4.500-5",
        "attention" => "M12 4l9 16H3zM12 10v4M12 17h.01",
        "down" => "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM9.500 9.500l5 5M14.500 9.500l-5 5",
        "waiting" => "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 7v5l3 2",
        "cure" => {
            "M9 18h6M10 21h4M12 3a6 6 0 0 0-3.500 10.900c.5.400.500 1 .500 1.600h6c0-.600 0-1.200\
                   .500-1.600A6 6 0 0 0 12 3z"
        }
        "export" => "M12 4v11M8 11l4 4 4-4M5 20h14",
        "inbound" => "M17 7L7 17M7 9v8h8",
        "outbound" => "M7 17L17 7M9 7h8v8",
        _ => "M12 12h.01",
    };
    Markup::made(format!(
        "<svg class=\"icon\" viewBox=\"0 0 24 24\" aria-hidden=\"true\" focusable=\"false\">\
         <path d=\"{lines}\"/></svg>"
    ))
}
