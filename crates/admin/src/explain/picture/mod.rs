//! Draws a call as one self-contained SVG: one lane per channel, with bridges and talk over time,
//! and below them the values with their reasons. It is readable on light and dark pages, and its
//! text can be selected.
//!
//! | module | what it draws |
//! |---|---|
//! | `canvas` | elements with escaped text |
//! | `scale` | the x positions of times |
//! | `lanes` | the channels, with their bridges, dialings, and talk |

mod canvas;
mod lanes;
mod scale;

use super::story::{Times, seconds, short};
use super::text::{Explained, outcome};
use callbridge_call::{Direction, EventTime, MomentKind, Timeline};
use canvas::Canvas;
use lanes::Lanes;
use scale::Scale;

const WIDTH: f64 = 1280.0;
/// The left end of the axis. Names are to its left.
const AXIS_LEFT: f64 = 330.0;
const AXIS_RIGHT: f64 = WIDTH - 40.0;
/// Distance between the page's edge and its content.
const MARGIN: f64 = 24.0;
/// The upper edge of the first lane.
const LANES_TOP: f64 = 112.0;

/// The style sheet. It has classes instead of CSS variables, because some viewers do not support
/// variables.
const STYLE: &str = include_str!("style.css");

/// Returns the picture of a call with its values. `None` if it has no channel events.
pub fn svg(of: &Explained<'_>, times: &Times) -> Option<String> {
    draw(of, times, draw_values)
}

/// Returns the picture of a call without its values, which are shown next to it.
pub fn lanes_svg(of: &Explained<'_>, times: &Times) -> Option<String> {
    draw(of, times, |_, _, _, top| top - 24.0)
}

fn draw(
    of: &Explained<'_>,
    times: &Times,
    beneath: impl Fn(&mut Canvas, &Explained<'_>, &Times, f64) -> f64,
) -> Option<String> {
    let timeline = of.call.timeline.as_ref()?;
    let scale = Scale::new(moments(timeline), AXIS_LEFT, AXIS_RIGHT);
    let mut canvas = Canvas::default();
    heading(&mut canvas, of, times);
    let lanes = Lanes::new(timeline, &scale, LANES_TOP);
    lanes.bands(&mut canvas);
    axis(&mut canvas, &scale, times, lanes.bottom());
    lanes.draw(&mut canvas, times);
    let legend_y = lanes.bottom() + 34.0;
    draw_legend(&mut canvas, legend_y, timeline);
    let bottom = beneath(&mut canvas, of, times, legend_y + 40.0);
    let title = format!("call {}: {}", of.judged.record.linkedid, outcome(of.judged));
    Some(canvas.file(WIDTH, bottom + MARGIN, &title, STYLE))
}

/// Returns all times that the axis must show.
fn moments(timeline: &Timeline) -> Vec<EventTime> {
    let of_channels = timeline.channels.iter().flat_map(|channel| {
        let moments = channel.moments.iter().map(|moment| moment.at);
        let stays = channel.stays.iter().flat_map(|stay| [stay.from, stay.to]);
        moments.chain(stays).chain([channel.from, channel.to])
    });
    of_channels.collect()
}

fn heading(canvas: &mut Canvas, of: &Explained<'_>, times: &Times) {
    let record = &of.judged.record;
    let title = format!("Call {}", short(&record.linkedid, 60));
    canvas.text("h1", MARGIN, 40.0, &title);
    let mut parts = vec![outcome(of.judged)];
    // The outcome of an internal call already shows this.
    if record.direction != Direction::Internal {
        parts.push(format!("{:?}", record.direction).to_lowercase());
    }
    parts.push(times.date(of.call.started));
    if record.estimate {
        parts.push("an estimate from CDRs only".to_owned());
    }
    let talk = if record.answered {
        format!("talk {}", seconds(of.call.talk))
    } else {
        "not answered".to_owned()
    };
    let lasted = of.call.ended.since(of.call.started);
    parts.extend([format!("lasted {}", seconds(lasted)), talk]);
    canvas.text("h2", MARGIN, 62.0, &parts.join("  ·  "));
}

/// Draws round times above the lanes, with vertical lines through the lanes. Marks shortened
/// stretches, and writes their real length.
fn axis(canvas: &mut Canvas, scale: &Scale, times: &Times, bottom: f64) {
    let top = LANES_TOP - 6.0;
    for (x, at) in scale.ticks(times.from) {
        canvas.line("grid", (x, top), (x, bottom));
        canvas.text("tick", x, top - 18.0, &times.short_clock(at));
        canvas.text("tick dim", x, top - 5.0, &times.short_after(at));
    }
    for (middle, lasts) in scale.shortened_stretches() {
        for x in [middle - 4.0, middle + 4.0] {
            canvas.path("cut", &[(x + 3.0, top), (x - 3.0, bottom)]);
        }
        let message = format!("{} cut short", seconds(lasts));
        canvas.text("tick dim", middle, bottom + 13.0, &message);
    }
}

/// Width of a symbol in the legend.
const SIGN: f64 = 22.0;

/// Draws one line that explains the symbols in this picture.
fn draw_legend(canvas: &mut Canvas, y: f64, timeline: &Timeline) {
    let mut legend = Legend {
        canvas,
        x: AXIS_LEFT,
        y,
    };
    let channels = &timeline.channels;
    let moments = Vec::from_iter(channels.iter().flat_map(|channel| &channel.moments));
    let stays = Vec::from_iter(channels.iter().flat_map(|channel| &channel.stays));
    if moments
        .iter()
        .any(|moment| moment.what == MomentKind::Rings)
    {
        legend.line("rings", "rings");
    }
    legend.line("up", "up");
    if stays.iter().any(|stay| !stay.holding) {
        legend.bar("b0", "in a bridge");
    }
    if stays.iter().any(|stay| stay.holding) {
        legend.bar("holding", "waits: the parties cannot talk");
    }
    if !timeline.talk.is_empty() {
        legend.bar("talk", "talk");
    }
    if moments
        .iter()
        .any(|moment| matches!(moment.what, MomentKind::Dialed { .. }))
    {
        legend.arrow("dials");
    }
    legend.cross("hangs up");
    if timeline.left_out > 0 {
        let left_out = timeline.left_out;
        legend.text(&format!("{left_out} more channels and events are not kept"));
    }
}

/// The legend: symbols in one line, each with its text to the right.
struct Legend<'a> {
    canvas: &'a mut Canvas,
    /// The left end of the current symbol.
    x: f64,
    y: f64,
}

impl Legend<'_> {
    fn line(&mut self, class: &str, message: &str) {
        let end = (self.x + SIGN, self.y);
        self.canvas.line(class, (self.x, self.y), end);
        self.text(message);
    }

    fn bar(&mut self, class: &str, message: &str) {
        let corner = (self.x, self.y - 7.0);
        self.canvas.rect(class, corner, (SIGN, 14.0), true);
        self.text(message);
    }

    fn arrow(&mut self, message: &str) {
        let y = self.y;
        let middle = self.x + SIGN / 2.0;
        let shaft = [(middle, y - 8.0), (middle, y + 3.0)];
        self.canvas.path("dial", &shaft);
        let head = [(middle - 4.0, y), (middle + 4.0, y), (middle, y + 7.0)];
        self.canvas.path("head", &head);
        self.text(message);
    }

    fn cross(&mut self, message: &str) {
        self.canvas.cross(self.x + SIGN / 2.0, self.y);
        self.text(message);
    }

    /// Writes the text of the current symbol, and moves on to the next symbol.
    fn text(&mut self, message: &str) {
        let left = self.x + SIGN + 6.0;
        self.canvas.text("party", left, self.y + 4.0, message);
        self.x += SIGN + 26.0 + 6.4 * message.chars().count() as f64;
    }
}

/// Columns of the values: name, value, time, channel, and text. [`MOST`] has their maximum
/// characters.
const COLUMNS: [f64; 5] = [MARGIN, 150.0, 415.0, 592.0, 822.0];
const MOST: [usize; 5] = [20, 40, 26, 34, 70];
const ROW: f64 = 21.0;

/// Draws the values below the lanes, each with its deciding event. Returns the y position below the
/// values.
fn draw_values(canvas: &mut Canvas, of: &Explained<'_>, times: &Times, top: f64) -> f64 {
    let mut y = top;
    canvas.text("h3", MARGIN, y, "The values, and what decided each");
    if !of.judged.message.is_empty() {
        y += ROW;
        canvas.text("dim", MARGIN, y, &short(&of.judged.message, 190));
    }
    for row in of.rows() {
        canvas.line("rule", (MARGIN, y + 6.5), (WIDTH - MARGIN, y + 6.5));
        y += ROW;
        let by = row.by.map(|(at, channel)| {
            (
                format!("{}  {}", times.clock(at), times.time_after_start(at)),
                channel,
            )
        });
        let (when, channel) = by.unwrap_or_default();
        let cells = [row.name.to_owned(), row.value, when, channel, row.message];
        let classes = ["dim", "value", "mono dim", "mono", "words"];
        for (i, cell) in cells.iter().enumerate() {
            if !cell.is_empty() {
                canvas.text(classes[i], COLUMNS[i], y, &short(cell, MOST[i]));
            }
        }
    }
    for remark in &of.judged.remarks {
        y += ROW;
        canvas.text("dim", MARGIN, y, &short(remark, 190));
    }
    y + 8.0
}
