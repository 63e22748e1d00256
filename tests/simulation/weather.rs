//! Faults of the CRM and of the network to it, and reactions of people.

use crate::simulation::paths::Hardship;
use crate::simulation::scenario::{Mend, Run, UNKNOWN_LEAD};
use crate::simulation::way::Network;
use crate::support::simulated_calls::Dice;
use callbridge_call::EpochSeconds;
use callbridge_model::{LeadId, Reason};
use callbridge_sandbox as sandbox;
use callbridge_sandbox::faults::parse;
use callbridge_sandbox::shapes::{Paging, Registered, Rows, StatusShape, Treatment};
use callbridge_sandbox::token::{CALL_READ, CALL_SAVE, TokenKind};
use callbridge_sandbox::window::parse_rate;
use callbridge_spool::{Letter, LetterFilter, Op, Step, tables};
use std::time::Duration;

const ENDPOINTS: [&str; 5] = ["any", "token-info", "call-history", "filter", "request"];

/// Statuses in the document, and similar ones.
const STATUSES: [u16; 16] = [
    302, 400, 401, 403, 404, 405, 406, 409, 410, 415, 422, 429, 500, 502, 503, 504,
];

/// Returns a random time from one to `most` milliseconds.
fn random_milliseconds(dice: &mut Dice, most: u64) -> Duration {
    Duration::from_millis(1 + dice.below(most))
}

/// Returns settings of a CRM with random shapes.
pub fn sandbox(seed: u64, rate: &str, dice: &mut Dice) -> sandbox::Settings {
    let mut settings = sandbox::Settings {
        seed,
        rate: parse_rate(rate).expect("a rate"),
        persist_after: Duration::from_millis(*dice.pick(&[0, 300, 2000, 4000, 20_000])),
        ..sandbox::Settings::default()
    };
    let shapes = &mut settings.shapes;
    if dice.chance(50) {
        shapes.filter_grant = None;
    }
    shapes.status = *dice.pick(&[StatusShape::Object, StatusShape::Bare]);
    shapes.rows = *dice.pick(&[Rows::Objects, Rows::Strings]);
    shapes.page = *dice.pick(&[Paging::Inside, Paging::Beside]);
    shapes.range = *dice.pick(&[
        Treatment::Kept,
        Treatment::Kept,
        Treatment::Ignored,
        Treatment::Refused,
    ]);
    shapes.registered = *dice.pick(&[Registered::Stored, Registered::Started]);
    shapes.size_max = *dice.pick(&[100, 100, 50, 30]);
    shapes.pending = dice.pick(&["PENDING", "IN_PROGRESS", "QUEUED"]).to_string();
    settings
}

impl Run {
    /// Changes the faults of the network or of the CRM at random.
    pub(crate) fn weather(&mut self) {
        if self.dice.chance(4) {
            self.network();
        }
        if self.dice.chance(4) {
            let rules = if self.dice.chance(60) {
                0
            } else {
                1 + self.dice.below(3)
            };
            let texts: Vec<String> = (0..rules).map(|_| rule(&mut self.dice)).collect();
            let (rules, _) = parse(&texts.join("; ")).expect("good rules");
            self.world.sandbox.set_faults(rules);
        }
        if self.dice.chance(20) {
            for _ in 0..self.dice.below(6) {
                self.world.sandbox.add_foreign(self.world.truth);
            }
        }
        if self.dice.chance(1) {
            self.company();
        }
        if self.world.hooks.is_some() && self.dice.chance(4) {
            self.hooks();
        }
    }

    fn network(&mut self) {
        let dice = &mut self.dice;
        let kind = dice.below(10);
        let network = Network {
            delay: random_milliseconds(dice, 400),
            jitter: if dice.chance(20) {
                random_milliseconds(dice, 34_000)
            } else {
                random_milliseconds(dice, 900)
            },
            refuses: kind == 0,
            silent: kind == 1,
            mistrusted: kind == 2,
            broken: if kind == 3 { dice.below(60) } else { 0 },
            handling: Duration::from_millis(*dice.pick(&[0, 300])),
            mangled: if kind == 4 { dice.below(60) } else { 0 },
        };
        let hardship = match kind {
            0 => Some(Hardship::Outage),
            1 => Some(Hardship::Silence),
            2 => Some(Hardship::Mistrusted),
            _ => None,
        };
        self.world.network = network;
        if let Some(hardship) = hardship {
            self.world.met.count_hardship(hardship);
        }
        let wait = Duration::from_secs(1 + self.dice.below(400));
        self.plan_mend(wait, Mend::Network);
    }

    /// Changes the company's tokens, grants, or license at random.
    fn company(&mut self) {
        let at = self.world.truth;
        let soon = Duration::from_secs(1 + self.dice.below(600));
        match self.dice.below(7) {
            0 => self.replace_token(),
            1 => {
                self.world.met.count_hardship(Hardship::TokenMissing);
                self.world.put_token("");
                self.plan_mend(soon, Mend::Token);
            }
            2 => {
                self.world.met.count_hardship(Hardship::TokenOfAnother);
                let other = format!("svc_pat_other_{}", self.dice.below(1_000_000));
                let kind = TokenKind::Pat;
                self.world.sandbox.issue(at, &other, kind, 2, None);
                self.world.put_token(&other);
                self.plan_mend(soon, Mend::Token);
            }
            3 => {
                self.world.met.count_hardship(Hardship::TokenEnded);
                let left = i64::try_from(self.dice.below(1200)).expect("few");
                let ends = EpochSeconds::new(at.floor_seconds().get() + left);
                let right = self.right.clone();
                self.world.sandbox.expire(&right, Some(ends));
            }
            4 => {
                self.world.met.count_hardship(Hardship::CompanyBlocked);
                self.world
                    .sandbox
                    .company(at, |company| company.blocked = true);
                self.plan_mend(soon, Mend::Block);
            }
            5 => {
                self.world.met.count_hardship(Hardship::SaveTaken);
                self.revoke_grant(CALL_SAVE, soon);
            }
            _ => {
                self.world.met.count_hardship(Hardship::ReadTaken);
                self.revoke_grant(CALL_READ, soon);
            }
        }
    }

    fn revoke_grant(&mut self, grant: &str, soon: Duration) {
        let mut grants = self.grants.clone();
        grants.retain(|other| other.as_str() != grant);
        self.world.sandbox.set_grants(self.world.truth, grants);
        self.plan_mend(soon, Mend::Grants);
    }

    /// Issues a new PAT. The previous PAT is invalid at once, and the file gets the new PAT at a
    /// random later time.
    pub(crate) fn replace_token(&mut self) {
        self.world.met.count_hardship(Hardship::TokenReplaced);
        let at = self.world.truth;
        self.right = format!("svc_pat_{}", self.dice.below(1_000_000_000));
        let days = self.dice.below(12);
        let ends = at.plus(Duration::from_secs(3600 + days * 86_400));
        let ends = self.dice.chance(40).then(|| ends.floor_seconds());
        let right = self.right.clone();
        self.world.sandbox.issue_pat(at, &right, ends);
        let wait = Duration::from_secs(if self.dice.chance(50) {
            0
        } else {
            self.dice.below(300)
        });
        self.plan_mend(wait, Mend::Token);
    }

    /// After a consent, issues a new access token before the old access token expires (§5.6.6).
    pub(crate) fn refresh(&mut self) {
        let Some((life, due)) = self.refresh else {
            return;
        };
        let now = self.world.truth;
        let out_of_use = self.world.token != self.right;
        if now < due || out_of_use {
            return;
        }
        self.world.met.count_hardship(Hardship::TokenRefreshed);
        let until = due.plus(life / 2).floor_seconds();
        self.right = format!("svc_at_{}", self.dice.below(1_000_000_000));
        let ends = now.plus(life).floor_seconds();
        let (right, company) = (self.right.clone(), self.world.sandbox.settings.company.id);
        self.world
            .sandbox
            .issue(now, &right, TokenKind::Access, company, Some(ends));
        self.world.take_refreshed_token(&right, until);
        self.refresh = Some((life, now.plus(life / 2)));
    }

    /// Changes the faults of the webhooks' network at random.
    pub(crate) fn hooks(&mut self) {
        let Some(hooks) = &mut self.world.hooks else {
            return;
        };
        let dice = &mut self.dice;
        hooks.cut = dice.chance(20);
        hooks.broken = if dice.chance(50) { dice.below(60) } else { 0 };
        hooks.doubled = if dice.chance(30) { dice.below(60) } else { 0 };
        let late = Duration::from_secs(1 + dice.below(500));
        hooks.late = if dice.chance(50) {
            (dice.below(60), late)
        } else {
            (0, late)
        };
        if hooks.cut {
            self.world.met.count_hardship(Hardship::WebhooksCut);
        }
    }

    /// Lets people check dead letters occasionally, and notice an invalid token.
    pub(crate) fn people(&mut self) {
        if self.dice.chance(2) {
            let letters = self.letters();
            for letter in letters {
                if self.dice.chance(30) {
                    self.decide(letter);
                }
            }
        }
        let dead = !self
            .world
            .sandbox
            .token_works(self.world.truth, &self.right);
        if dead && self.dice.chance(5) {
            self.replace_token();
        }
    }

    /// Returns all dead letters.
    pub(crate) fn letters(&self) -> Vec<Letter> {
        let filter = LetterFilter {
            limit: 100_000,
            ..LetterFilter::default()
        };
        tables::letters::letters(&self.world.disk.store, &filter).expect("letters")
    }

    /// Lets a person correct and retry a dead letter, or discard the dead letter.
    fn decide(&mut self, letter: Letter) {
        let step = match letter.reason {
            Reason::NoLead if letter.waiting && self.dice.chance(20) => Step::Expire,
            _ if self.dice.chance(5) => Step::Discard,
            _ => return self.retry(letter),
        };
        self.step(&letter, step);
    }

    /// Lets a person correct and retry a dead letter.
    pub(crate) fn retry(&mut self, letter: Letter) {
        let mut record = letter.call.clone().expect("a call");
        self.world
            .witness
            .excuse(&record.uuid.expect("a uuid").to_string());
        record.incomplete = false;
        let may_be_written = matches!(letter.reason, Reason::ServerError | Reason::Unconfirmed);
        let unwritten = matches!(letter.reason, Reason::NoLead | Reason::Failed);
        let unknown = record.lead_id.is_none_or(|lead| lead.get() == UNKNOWN_LEAD);
        if unknown && (may_be_written || unwritten) {
            record.lead_id = LeadId::new(4001);
        }
        // With changed values, the call is sent only after a search of the journal.
        let before = letter.call.as_ref().expect("a call");
        let step = if may_be_written && before.lead_id != record.lead_id {
            let uuid = record.uuid.expect("a uuid").to_string();
            self.world.witness.allow_change(&uuid);
            let before = format!("lead {:?}", before.lead_id);
            Step::Recheck { record, before }
        } else {
            let by_itself = letter.waiting && self.dice.chance(50);
            Step::Retry { record, by_itself }
        };
        self.step(&letter, step);
    }

    fn step(&mut self, letter: &Letter, step: Step) {
        let (row, at) = (letter.id, self.world.now.wall);
        self.world.command(Op::Step { row, step, at });
    }
}

/// Returns a random fault.
fn rule(dice: &mut Dice) -> String {
    let endpoint = *dice.pick(&ENDPOINTS);
    let status = if dice.chance(80) {
        *dice.pick(&STATUSES)
    } else {
        300 + u16::try_from(dice.below(300)).expect("few")
    };
    let action = match dice.below(14) {
        0..=2 => format!("status {status}"),
        3 => format!("gateway {status}"),
        4 => format!("status-after {status}"),
        5 => "lost".to_owned(),
        6 => "cut".to_owned(),
        7 => format!("delay {}s", 1 + dice.below(60)),
        8 => format!("slow {}s", 1 + dice.below(60)),
        9 => "broken".to_owned(),
        10 => return format!("call-history chance {}% no-request-id", 1 + dice.below(60)),
        11 => "accept-false".to_owned(),
        12 => return format!("call-history chance {}% failed", 1 + dice.below(40)),
        _ => {
            let longest = *dice.pick(&[90, 600, 5400, 90_000]);
            let time = 1 + dice.below(longest);
            return format!("call-history chance {}% hold {time}s", 1 + dice.below(40));
        }
    };
    let chance = if dice.chance(10) {
        100
    } else {
        1 + dice.below(40)
    };
    format!("{endpoint} chance {chance}% {action}")
}
