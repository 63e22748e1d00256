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
            canvas.line(class, (x, y), (x + SIGN, y));
        }
        Sign::Bar(class) => {
            canvas.rect(class, (x, y - 7.0), (SIGN, 14.0), true);
        }
        Sign::Arrow => {
            canvas.path("dial", &[(middle, y - 8.0), (middle, y + 3.0)]);
            canvas.path("head", &[(near, y), (far, y), (middle, y + 7.0)]);
        }
        Sign::Cross => {
            canvas.cross(middle, y);
        }
        Sign::None => {}
    }
}
