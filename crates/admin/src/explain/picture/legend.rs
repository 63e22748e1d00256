//! What the signs stand for: those that are used.

use super::AXIS_LEFT;
use super::canvas::Canvas;
use callbridge_call::timeline::{MomentKind, Timeline};

/// A sign is as wide.
const SIGN: f64 = 22.0;

#[derive(Clone, Copy)]
enum Sign {
    /// A line of this class.
    Line(&'static str),
    /// A bar of this class.
    Bar(&'static str),
    Arrow,
    Cross,
    None,
}

/// A line of signs.
pub(super) fn draw(canvas: &mut Canvas, y: f64, timeline: &Timeline) {
    let mut x = AXIS_LEFT;
    for (sign, words) in used(timeline) {
        draw_sign(canvas, sign, x, y);
        canvas.text("party", x + SIGN + 6.0, y + 4.0, &words);
        x += SIGN + 26.0 + 6.4 * words.chars().count() as f64;
    }
}

fn used(timeline: &Timeline) -> Vec<(Sign, String)> {
    let stays = || timeline.channels.iter().flat_map(|channel| &channel.stays);
    let moments = || {
        timeline
            .channels
            .iter()
            .flat_map(|channel| &channel.moments)
    };
    let rings = moments().any(|moment| moment.what == MomentKind::Rings);
    let dials = moments().any(|moment| matches!(moment.what, MomentKind::Dialled { .. }));
    let bridged = stays().any(|stay| !stay.holding);
    let holds = stays().any(|stay| stay.holding);
    let all = [
        (rings, Sign::Line("rings"), "rings"),
        (true, Sign::Line("up"), "up"),
        (bridged, Sign::Bar("b0"), "in a bridge"),
        (
            holds,
            Sign::Bar("holding"),
            "waits: the parties cannot talk",
        ),
        (!timeline.talk.is_empty(), Sign::Bar("talk"), "talk"),
        (dials, Sign::Arrow, "dials"),
        (true, Sign::Cross, "hangs up"),
    ];
    let all = all.into_iter().filter(|(used, ..)| *used);
    let mut signs: Vec<(Sign, String)> = all
        .map(|(_, sign, words)| (sign, words.to_owned()))
        .collect();
    if timeline.left_out > 0 {
        let words = format!(
            "{} more channels and events are not kept",
            timeline.left_out
        );
        signs.push((Sign::None, words));
    }
    signs
}

fn draw_sign(canvas: &mut Canvas, sign: Sign, x: f64, y: f64) {
    let middle = x + SIGN / 2.0;
    let (near, far) = (middle - 4.0, middle + 4.0);
    match sign {
        Sign::Line(class) => {
            let ends = [("x1", x), ("x2", x + SIGN), ("y1", y), ("y2", y)];
            canvas.element("line", class, &ends);
        }
        Sign::Bar(class) => {
            let size = [("width", SIGN), ("height", 14.0), ("rx", 3.0)];
            let bar = [&[("x", x), ("y", y - 7.0)][..], &size].concat();
            canvas.element("rect", class, &bar);
        }
        Sign::Arrow => {
            canvas.path("dial", &[('M', middle, y - 8.0), ('L', middle, y + 3.0)]);
            canvas.path(
                "head",
                &[('M', near, y), ('L', far, y), ('L', middle, y + 7.0)],
            );
        }
        Sign::Cross => {
            let falls = [('M', near, y - 4.0), ('L', far, y + 4.0)];
            let rises = [('M', near, y + 4.0), ('L', far, y - 4.0)];
            canvas.path("hangup", &[falls, rises].concat());
        }
        Sign::None => {}
    }
}
