//! Schedules: at which instants one fires, and which of the instants that
//! passed are made up for. Pure arithmetic: whoever keeps a schedule (the
//! store) and makes its tasks (the engine) passes `now` in, and gets instants
//! out. Cron expressions are read by croner, time zones come from the database
//! built into the program, so that all nodes of a version agree on every
//! instant.
//!
//! When clocks change, an expression is one of two sorts. One with a `*` in its
//! seconds, minutes or hours follows real time: it fires at every instant whose
//! wall clock time it names, so `*/10 * * * *` fires every ten real minutes
//! through both changes, and `*/10 2 * * *` fires 12 times when 2 o'clock
//! happens twice and not at all when it is skipped. Any other expression names
//! fixed times of day and fires when the wall clock first reaches or passes one:
//! a time that happens twice fires at the first, a time that is skipped fires
//! at the first instant after the gap (02:30 at 03:00), and several that fall
//! together there fire as one. (croner alone takes only a single time of day as
//! fixed; `30 2,14 * * *` is fixed here as well.)

use crate::clock::{Timestamp, duration_text};
use crate::error::{Error, Result};
use crate::json::Json;
use croner::Cron;
use croner::errors::CronError;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Longest name: it must leave room in the unique keys of its tasks.
pub const NAME_MAX: usize = 120;
/// Longest cron expression, in bytes.
pub const EXPR_MAX: usize = 200;
/// The shortest interval.
pub const PERIOD_MIN: Duration = Duration::from_secs(1);
/// Most instants in a preview.
pub const PREVIEW_MAX: usize = 100;
/// Most instants that are made up for, and most that are counted as missed.
pub const MISSED_MAX: u32 = 10_000;
/// The smallest step of time there is.
const TICK: Duration = Duration::from_micros(1);
/// With [`CatchUp::Skip`]: so late an instant may always fire, because nodes
/// look at schedules only every so often...
const LATE_MIN: Duration = Duration::from_secs(5);
/// ...and so late never.
const LATE_MAX: Duration = Duration::from_secs(60);

/// Makes tasks at certain instants.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// May be absent where it stands elsewhere, as in a URL.
    #[serde(default)]
    pub name: String,
    pub when: When,
    #[serde(default)]
    pub catch_up: CatchUp,
    #[serde(default)]
    pub overlap: Overlap,
    /// The submission to make.
    pub template: Json,
    #[serde(default)]
    pub paused: bool,
    /// The first instant that is not dealt with yet.
    #[serde(default)]
    pub next_at: Option<Timestamp>,
    /// The latest instant that fired.
    #[serde(default)]
    pub last_at: Option<Timestamp>,
}

/// At which instants a schedule fires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum When {
    Cron {
        /// Five fields, or six with seconds first, or `@daily` and the like.
        expr: String,
        /// An IANA name.
        #[serde(default = "utc")]
        zone: String,
    },
    Every {
        #[serde(with = "duration_text")]
        period: Duration,
        /// The first instant; the others are whole periods later.
        #[serde(default)]
        anchor: Timestamp,
    },
}

fn utc() -> String {
    "UTC".to_owned()
}

/// What happens to instants at which nobody looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum CatchUp {
    /// They are skipped. The newest still fires while it is not late: not
    /// older than half the way to the next one, where up to 5 s are never
    /// late and more than 60 s always.
    #[default]
    Skip,
    /// The newest fires, however late.
    One,
    /// The newest `max` fire, oldest first.
    All { max: u32 },
}

/// Whether a schedule fires while the task it made before has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    #[default]
    Allow,
    Skip,
}

/// What to do now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Due {
    /// Make a task for each, oldest first.
    pub fire: Vec<Timestamp>,
    pub next_at: Option<Timestamp>,
    /// Instants that passed and do not fire; of a cron expression at most
    /// [`MISSED_MAX`] are counted.
    pub missed: u64,
}

impl Schedule {
    /// Checks every field; the error names the field and what to do.
    pub fn validate(&self) -> Result<()> {
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ':' | '/');
        if self.name.is_empty() || self.name.len() > NAME_MAX || !self.name.chars().all(good) {
            let shape = format!("use 1 to {NAME_MAX} letters, digits and . _ - : /");
            return refuse(format!("name `{:.40}` is not a name; {shape}", self.name));
        }
        if let CatchUp::All { max } = self.catch_up
            && !(1..=MISSED_MAX).contains(&max)
        {
            return refuse(format!("catch_up.all.max {max} is not within 1..{MISSED_MAX}"));
        }
        let template: serde_json::Value = self.template.to()?;
        if !template.get("kind").is_some_and(serde_json::Value::is_string) {
            return refuse("template is not a submission; give an object with a `kind`".to_owned());
        }
        match &self.when {
            When::Cron { expr, .. } if self.next_after(Timestamp::ZERO)?.is_none() => {
                refuse(format!("cron `{expr}` never fires; no date is like that"))
            }
            _ => self.instants().map(drop),
        }
    }

    /// The first instant after `after`, itself not included.
    pub fn next_after(&self, after: Timestamp) -> Result<Option<Timestamp>> {
        self.instants()?.next_after(after)
    }

    /// The next `count` instants after `after`, at most [`PREVIEW_MAX`].
    pub fn preview(&self, after: Timestamp, count: usize) -> Result<Vec<Timestamp>> {
        let instants = self.instants()?;
        let mut shown = Vec::new();
        let mut at = after;
        while shown.len() < count.min(PREVIEW_MAX) {
            let Some(next) = instants.next_after(at)? else { break };
            shown.push(next);
            at = next;
        }
        Ok(shown)
    }

    /// What is due at `now`. Calling it again gives the same until
    /// [`Schedule::fired`] took the answer. A schedule that was never looked at
    /// begins after `now`; instants that pass while it is paused neither fire
    /// nor count as missed.
    pub fn due(&self, now: Timestamp) -> Result<Due> {
        if self.next_at.is_some_and(|next| next > now) {
            return Ok(Due { next_at: self.next_at, ..Due::default() });
        }
        let instants = self.instants()?;
        let next_at = instants.next_after(now)?;
        let before_next = self.next_at.map(|at| at.minus(TICK));
        let Some(after) = self.last_at.max(before_next).filter(|_| !self.paused) else {
            return Ok(Due { next_at, ..Due::default() });
        };
        let take = match self.catch_up {
            CatchUp::Skip | CatchUp::One => 1,
            CatchUp::All { max } => max.min(MISSED_MAX),
        };
        let (mut fire, mut missed) = instants.passed(after, now, take)?;
        if let (CatchUp::Skip, [newest]) = (self.catch_up, fire.as_slice())
            && is_late(*newest, now, next_at)
        {
            missed += 1;
            fire.clear();
        }
        Ok(Due { fire, next_at, missed })
    }

    /// Moves on after `due` was acted on.
    pub fn fired(&mut self, due: &Due) {
        self.next_at = due.next_at;
        self.last_at = due.fire.last().copied().or(self.last_at);
    }

    /// The unique key of the task made for `at`: one instant, one task.
    pub fn unique_key(&self, at: Timestamp) -> String {
        format!("schedule:{}:{at}", self.name)
    }

    fn instants(&self) -> Result<Instants> {
        match &self.when {
            When::Cron { expr, zone } => Instants::cron(expr, zone),
            When::Every { period, anchor } => Instants::every(*period, *anchor),
        }
    }
}

fn is_late(at: Timestamp, now: Timestamp, next_at: Option<Timestamp>) -> bool {
    let half_way = next_at.map_or(LATE_MAX, |next| next.since(at) / 2);
    now.since(at) > half_way.clamp(LATE_MIN, LATE_MAX)
}

fn refuse<T>(message: String) -> Result<T> {
    Err(Error::invalid("schedule", message))
}

/// A checked [`When`]: a rising row of instants.
enum Instants {
    /// In microseconds.
    Every { period: i64, anchor: i64 },
    /// Follows real time.
    Running { cron: Cron, zone: TimeZone },
    /// Names times of day.
    Fixed { cron: Cron, zone: TimeZone },
}

impl Instants {
    fn every(period: Duration, anchor: Timestamp) -> Result<Self> {
        let micros = i64::try_from(period.as_micros()).unwrap_or(i64::MAX);
        if period < PERIOD_MIN || micros == i64::MAX || micros % 1000 != 0 {
            let shape = "use whole milliseconds, at least 1s, such as 90s, 5m or 1d";
            return refuse(format!("every.period {period:?} is not usable; {shape}"));
        }
        Ok(Instants::Every { period: micros, anchor: anchor.as_micros() })
    }

    fn cron(expr: &str, zone: &str) -> Result<Self> {
        let (cron, follows_real_time) = parse_cron(expr)?;
        let zone = TimeZoneDatabase::bundled().get(zone).map_err(|e| {
            let shape = "write an IANA name such as Europe/Berlin, or UTC";
            Error::invalid("schedule", format!("zone `{zone}` is unknown; {shape}")).because(e)
        })?;
        Ok(match follows_real_time {
            true => Instants::Running { cron, zone },
            false => Instants::Fixed { cron, zone },
        })
    }

    fn next_after(&self, after: Timestamp) -> Result<Option<Timestamp>> {
        match self {
            Instants::Every { period, anchor } => {
                let behind = after.as_micros().saturating_sub(*anchor);
                let k = if behind < 0 { 0 } else { behind / period + 1 };
                let at = k.checked_mul(*period).and_then(|us| us.checked_add(*anchor));
                let in_time = |us: &i64| *us <= Timestamp::MAX.as_micros();
                Ok(at.filter(in_time).map(Timestamp::from_micros))
            }
            Instants::Running { cron, zone } => {
                let Some(start) = whole_second(after) else { return Ok(None) };
                let next = found(cron.find_next_occurrence(&start.to_zoned(zone.clone()), false))?;
                Ok(next.map(|at| Timestamp::from_jiff(at.timestamp())))
            }
            Instants::Fixed { cron, zone } => {
                let Some(start) = whole_second(after) else { return Ok(None) };
                let next = found(cron.find_next_occurrence(&furthest_wall(zone, start), false))?;
                Ok(next.and_then(|wall| first_reached(zone, wall)))
            }
        }
    }

    /// The newest instant up to `until`, itself included.
    fn newest(&self, until: Timestamp) -> Result<Option<Timestamp>> {
        match self {
            Instants::Every { period, anchor } => {
                let behind = until.as_micros().saturating_sub(*anchor);
                Ok((behind >= 0).then(|| Timestamp::from_micros(anchor + behind / period * period)))
            }
            Instants::Running { cron, zone } => {
                let Some(start) = whole_second(until) else { return Ok(None) };
                let at = found(cron.find_previous_occurrence(&start.to_zoned(zone.clone()), true))?;
                Ok(at.map(|at| Timestamp::from_jiff(at.timestamp())))
            }
            Instants::Fixed { cron, zone } => {
                let Some(start) = whole_second(until) else { return Ok(None) };
                let wall = found(cron.find_previous_occurrence(&furthest_wall(zone, start), true))?;
                Ok(wall.and_then(|wall| first_reached(zone, wall)))
            }
        }
    }

    /// The newest `take` instants after `after` and up to `until`, oldest
    /// first, and how many more there were.
    fn passed(
        &self,
        after: Timestamp,
        until: Timestamp,
        take: u32,
    ) -> Result<(Vec<Timestamp>, u64)> {
        let mut newest_first = Vec::new();
        let mut end = until;
        for _ in 0..take {
            let Some(at) = self.newest(end)?.filter(|at| *at > after) else { break };
            newest_first.push(at);
            end = at.minus(TICK);
        }
        newest_first.reverse();
        Ok((newest_first, self.count(after, end)?))
    }

    /// How many instants there are after `after` and up to `until`; those of a
    /// cron expression must be walked through, and only [`MISSED_MAX`] are.
    fn count(&self, after: Timestamp, until: Timestamp) -> Result<u64> {
        if let Instants::Every { period, anchor } = self {
            let Some(newest) = self.newest(until)?.filter(|at| *at > after) else { return Ok(0) };
            let first = after.plus(TICK).as_micros().max(*anchor);
            return Ok((newest.as_micros().saturating_sub(first) / period).unsigned_abs() + 1);
        }
        let mut end = until;
        for counted in 0..MISSED_MAX {
            let Some(at) = self.newest(end)?.filter(|at| *at > after) else {
                return Ok(counted.into());
            };
            end = at.minus(TICK);
        }
        Ok(MISSED_MAX.into())
    }
}

/// Reads an expression, and whether it follows real time.
fn parse_cron(expr: &str) -> Result<(Cron, bool)> {
    let wrong = |why: &str| {
        let shape = "write minute hour day month weekday, such as `30 2 * * MON-FRI`";
        Error::invalid("schedule", format!("cron `{expr:.60}`: {why}; {shape}"))
    };
    if expr.len() > EXPR_MAX {
        return Err(wrong("too long"));
    }
    let fields = match expr.trim().to_ascii_lowercase().as_str() {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        name if name.starts_with('@') => {
            return Err(wrong("no such name; there are @yearly @monthly @weekly @daily @hourly"));
        }
        _ => expr,
    };
    let count = fields.split_whitespace().count();
    if !(5..=6).contains(&count) {
        return Err(wrong(&format!("{count} fields, five or (with seconds first) six are needed")));
    }
    // croner takes an empty member of a list for nothing instead of an error.
    if fields.split_whitespace().any(|field| field.split(',').any(str::is_empty)) {
        return Err(wrong("a comma without a value"));
    }
    let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
    let cron = parser.parse(fields).map_err(|e| wrong(e.to_string().trim_end_matches('.')))?;
    let follows_real_time = fields.split_whitespace().take(count - 3).any(|f| f.contains('*'));
    Ok((cron, follows_real_time))
}

/// A search that ran to the end of the calendar has found nothing.
fn found<T>(search: Result<T, CronError>) -> Result<Option<T>> {
    match search {
        Ok(at) => Ok(Some(at)),
        Err(
            CronError::TimeSearchLimitExceeded | CronError::InvalidTime | CronError::InvalidDate,
        ) => Ok(None),
        Err(e) => {
            Err(Error::invalid("schedule", "the cron expression cannot be followed").because(e))
        }
    }
}

/// The start of the second: croner counts in whole ones.
fn whole_second(at: Timestamp) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_second(at.as_micros().div_euclid(1_000_000)).ok()
}

/// The latest time the wall clock has shown up to `at`. Where a range of times
/// is being repeated, that is the end of the range.
fn furthest_wall(zone: &TimeZone, at: jiff::Timestamp) -> DateTime {
    let offset = zone.to_offset(at);
    let wall = offset.to_datetime(at);
    let AmbiguousOffset::Fold { before, after } = zone.to_ambiguous_timestamp(wall).offset() else {
        return wall;
    };
    let second = jiff::SignedDuration::from_secs(1);
    let change = at.checked_add(second).ok().and_then(|end| zone.preceding(end).next());
    match change {
        Some(change) if offset == after => {
            let end = before.to_datetime(change.timestamp());
            end.checked_sub(second).unwrap_or(wall)
        }
        _ => wall,
    }
}

/// The instant at which the wall clock first shows `wall`, or jumps over it.
fn first_reached(zone: &TimeZone, wall: DateTime) -> Option<Timestamp> {
    let at = match zone.to_ambiguous_timestamp(wall).offset() {
        AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(wall).ok()?,
        AmbiguousOffset::Fold { before, .. } => before.to_timestamp(wall).ok()?,
        AmbiguousOffset::Gap { after, .. } => {
            let short_of_change = after.to_timestamp(wall).ok()?;
            zone.following(short_of_change).next()?.timestamp()
        }
    };
    Some(Timestamp::from_jiff(at))
}

#[cfg(test)]
mod tests;
