//! Draws the channels: one lane each, with its life, its bridges, its dialings, and its talk.

use super::canvas::Canvas;
use super::scale::Scale;
use super::{AXIS_RIGHT, MARGIN, WIDTH};
use crate::explain::story::{
    Times, cause_and_words, cause_words, label, party, seconds, short, unique_id,
};
use callbridge_call::timeline::{Channel, Stay, TalkSpan, Way};
use callbridge_call::{EventTime, MomentKind, Role, Timeline};

/// Height of a lane, for few and for many channels.
const HEIGHTS: (f64, f64) = (40.0, 32.0);
/// Number of channels that counts as many.
const MANY: usize = 14;
const BAR: f64 = 16.0;
/// Minimum width of a span in pixels, so the shortest one is visible.
const LEAST: f64 = 2.5;
/// Number of colors for bridges in the style.
const COLORS: u16 = 8;
/// Maximum characters of a name next to its lane.
const NAME_MAX: usize = 38;

/// All lanes, from top to bottom.
pub(super) struct Lanes<'a> {
    timeline: &'a Timeline,
    scale: &'a Scale,
    top: f64,
    height: f64,
}

impl<'a> Lanes<'a> {
    pub(super) fn new(timeline: &'a Timeline, scale: &'a Scale, top: f64) -> Self {
        let many = timeline.channels.len() > MANY;
        let height = if many { HEIGHTS.1 } else { HEIGHTS.0 };
        Self {
            timeline,
            scale,
            top,
            height,
        }
    }

    pub(super) fn bottom(&self) -> f64 {
        self.top + self.height * self.timeline.channels.len() as f64
    }

    fn y(&self, lane: usize) -> f64 {
        self.top + self.height * (lane as f64 + 0.5)
    }

    fn span(&self, from: EventTime, to: EventTime) -> (f64, f64) {
        let left = self.scale.x(from);
        (left, (self.scale.x(to) - left).max(LEAST))
    }

    /// Draws the background of every second lane, behind everything else.
    pub(super) fn bands(&self, canvas: &mut Canvas) {
        for lane in (0..self.timeline.channels.len()).step_by(2) {
            let corner = (MARGIN / 2.0, self.y(lane) - self.height / 2.0);
            let size = (WIDTH - MARGIN, self.height);
            canvas.rect("band", corner, size, false);
        }
    }

    pub(super) fn draw(&self, canvas: &mut Canvas, times: &Times) {
        self.talk(canvas, times);
        for (lane, channel) in self.timeline.channels.iter().enumerate() {
            canvas.open("g", "lane", &[]);
            self.name(canvas, lane, channel);
            self.life(canvas, lane, channel);
            for stay in &channel.stays {
                self.stay(canvas, lane, stay, times);
            }
            self.end(canvas, lane, channel, times);
            canvas.close("g");
        }
        for (lane, channel) in self.timeline.channels.iter().enumerate() {
            self.dialings(canvas, lane, channel, times);
        }
    }

    fn name(&self, canvas: &mut Canvas, lane: usize, channel: &Channel) {
        let y = self.y(lane);
        canvas.text("letter", MARGIN + 6.0, y + 4.0, &label(lane));
        let name = short(&channel.name, NAME_MAX);
        canvas.text("mono", MARGIN + 26.0, y - 3.0, &name);
        let whose = match unique_id(channel) {
            Some(id) => format!("{}  ·  {id}", party(channel)),
            None => party(channel),
        };
        canvas.text("party", MARGIN + 26.0, y + 11.0, &short(&whose, 54));
    }

    /// Marks the lanes of the customer and of the person they hear, while they are connected.
    fn talk(&self, canvas: &mut Canvas, times: &Times) {
        for talk in &self.timeline.talk {
            self.talk_in(canvas, usize::from(talk.with), talk, times);
        }
        for whole in merge_talks(&self.timeline.talk) {
            for (lane, channel) in self.timeline.channels.iter().enumerate() {
                if matches!(channel.party, Role::Customer(_)) && self.is_bridged(channel, &whole) {
                    self.talk_in(canvas, lane, &whole, times);
                }
            }
        }
    }

    /// Returns `true` if the channel is in a bridge during the talk. If the customer has several
    /// channels, this finds the channel that talks.
    fn is_bridged(&self, channel: &Channel, talk: &TalkSpan) -> bool {
        // CDRs have no bridges, so the channel only needs to exist during the talk.
        if self.timeline.bridges.is_empty() {
            return channel.from < talk.to && talk.from < channel.to;
        }
        let mut open = channel.stays.iter().filter(|stay| !stay.holding);
        open.any(|stay| stay.from < talk.to && talk.from < stay.to)
    }

    fn talk_in(&self, canvas: &mut Canvas, lane: usize, talk: &TalkSpan, times: &Times) {
        let (x, width) = self.span(talk.from, talk.to);
        let y = self.y(lane) - self.height / 2.0 + 1.0;
        canvas.open("g", "", &[]);
        let lasted = seconds(talk.to.since(talk.from));
        let from = times.clock(talk.from);
        let to = times.clock(talk.to);
        canvas.title(&format!("talk, {lasted}: {from} to {to}"));
        canvas.rect("talk", (x, y), (width, self.height - 2.0), true);
        canvas.close("g");
    }

    /// Draws the line of a channel from its creation to its hangup: thin, dashed while it rings,
    /// and thick from the time it is up.
    fn life(&self, canvas: &mut Canvas, lane: usize, channel: &Channel) {
        let y = self.y(lane);
        self.line(canvas, "life", y, (channel.from, channel.to));
        let first_stay = channel.stays.iter().map(|stay| stay.from).min();
        let up = first_moment(channel, &MomentKind::Up).or(first_stay);
        if channel.way == Way::Dialed
            && let Some(rings) = first_moment(channel, &MomentKind::Rings)
            && up.is_none_or(|up| rings < up)
        {
            self.line(canvas, "rings", y, (rings, up.unwrap_or(channel.to)));
        }
        if let Some(up) = up {
            self.line(canvas, "up", y, (up, channel.to));
        }
        if channel.way == Way::CameIn && channel.party != Role::Plumbing {
            let x = self.scale.x(channel.from);
            let arrow = [(x - 11.0, y - 5.0), (x - 2.0, y), (x - 11.0, y + 5.0)];
            canvas.path("in", &arrow);
        }
    }

    fn line(&self, canvas: &mut Canvas, class: &str, y: f64, (from, to): (EventTime, EventTime)) {
        let (x, width) = self.span(from, to);
        canvas.line(class, (x, y), (x + width, y));
    }

    fn stay(&self, canvas: &mut Canvas, lane: usize, stay: &Stay, times: &Times) {
        let (x, width) = self.span(stay.from, stay.to);
        let y = self.y(lane);
        let bridge = self.timeline.bridges.get(usize::from(stay.bridge));
        let id = bridge.map_or("", String::as_str);
        let number = u32::from(stay.bridge) + 1;
        canvas.open("g", "", &[]);
        let from = times.clock(stay.from);
        let to = times.clock(stay.to);
        let lasted = seconds(stay.to.since(stay.from));
        let waits = if stay.holding { "waits in " } else { "" };
        canvas.title(&format!(
            "{waits}bridge {number} {id}, {lasted}: {from} to {to}"
        ));
        let class = if stay.holding {
            "stay holding".to_owned()
        } else {
            format!("stay b{}", stay.bridge % COLORS)
        };
        canvas.rect(&class, (x, y - BAR / 2.0), (width, BAR), true);
        let text = match (stay.holding, width) {
            (_, width) if width < 16.0 => String::new(),
            (_, width) if width < 62.0 => number.to_string(),
            (true, _) => format!("waits {number}"),
            (false, width) if width < 128.0 || id.is_empty() => format!("bridge {number}"),
            (false, _) => format!("bridge {number}  {}", short(id, 9)),
        };
        let class = if stay.holding { "waits" } else { "inside" };
        if !text.is_empty() {
            canvas.text(class, x + width / 2.0, y + 4.0, &text);
        }
        canvas.close("g");
    }

    /// Draws a cross where the channel hangs up. Without a hangup, draws a question mark at its
    /// last event.
    fn end(&self, canvas: &mut Canvas, lane: usize, channel: &Channel, times: &Times) {
        let x = self.scale.x(channel.to);
        let y = self.y(lane);
        if !channel.hung_up() {
            canvas.text("unheard", x + 8.0, y + 4.0, "?");
            return;
        }
        let cause = channel.moments.last().and_then(|moment| match moment.what {
            MomentKind::HungUp { cause } => cause,
            MomentKind::Dialed { .. }
            | MomentKind::Rings
            | MomentKind::Up
            | MomentKind::DialEnded(_) => None,
        });
        let reason = match cause {
            Some(cause) => format!(", {}", cause_and_words(cause)),
            None => String::new(),
        };
        canvas.open("g", "", &[]);
        canvas.title(&format!("hangs up at {}{reason}", times.clock(channel.to)));
        canvas.cross(x, y);
        canvas.close("g");
        // Normal clearing explains nothing. Busy, refused and others explain why there was no talk.
        if let Some(text) = cause
            .filter(|cause| !matches!(cause, 0 | 16))
            .and_then(cause_words)
            && x + 12.0 + 6.2 * text.len() as f64 <= AXIS_RIGHT + MARGIN
        {
            canvas.text("party", x + 9.0, y + 4.0, text);
        }
    }

    /// Draws an arrow from the dialing channel to the dialed one.
    fn dialings(&self, canvas: &mut Canvas, lane: usize, channel: &Channel, times: &Times) {
        for moment in &channel.moments {
            let MomentKind::Dialed { by, string } = &moment.what else {
                continue;
            };
            let x = self.scale.x(moment.at);
            let to = self.y(lane);
            let dialer = by.map(usize::from);
            let from = match dialer {
                Some(dialer) if dialer < self.timeline.channels.len() => self.y(dialer),
                _ => to - self.height / 2.0,
            };
            let down = if to >= from { 1.0 } else { -1.0 };
            canvas.open("g", "", &[]);
            let who = match dialer {
                Some(dialer) => format!(" by {}", label(dialer)),
                None => String::new(),
            };
            let at = times.clock(moment.at);
            let dialed = label(lane);
            canvas.title(&format!("{dialed} is dialed{who} at {at} as {string}"));
            canvas.path("dial", &[(x, from), (x, to - 5.0 * down)]);
            let tip = to - 1.0 * down;
            let wide = to - 8.0 * down;
            canvas.path("head", &[(x - 4.0, wide), (x + 4.0, wide), (x, tip)]);
            canvas.close("g");
        }
    }
}

/// Merges talks that overlap or touch.
fn merge_talks(talks: &[TalkSpan]) -> Vec<TalkSpan> {
    let mut all: Vec<TalkSpan> = Vec::new();
    for talk in talks {
        match all.last_mut().filter(|last| talk.from <= last.to) {
            Some(last) => last.to = last.to.max(talk.to),
            None => all.push(*talk),
        }
    }
    all
}

/// Returns the time of the channel's first event of this kind.
fn first_moment(channel: &Channel, wanted: &MomentKind) -> Option<EventTime> {
    let found = channel.moments.iter().find(|moment| moment.what == *wanted);
    found.map(|moment| moment.at)
}
