//! Stored settings: values, schedules, limits, and what leaves through the
//! outbox. Each write has its audit row; a schedule keeps its place in time when
//! only other parts of it change.

use super::error::sql;
use super::read::tokens;
use super::tx::Tx;
use crate::store::{check_setting, keep_place, limit_event, no_such, setting_words};
use rusqlite::{OptionalExtension, params};
use windlass_core::clock::Timestamp;
use windlass_core::control::Changed;
use windlass_core::event::{Event, EventData, EventName};
use windlass_core::json::Json;
use windlass_core::schedule::Schedule;
use windlass_core::store::{Actor, Fire, Setting};
use windlass_core::{Error, Result};

impl Tx<'_, '_> {
    pub(super) fn put(&mut self, setting: &Setting, by: &Actor, now: Timestamp) -> Result<()> {
        check_setting(setting)?;
        match setting {
            Setting::Value { key, value: Some(value) } => {
                let text = "INSERT OR REPLACE INTO windlass_setting (key, value) VALUES (?1, ?2)";
                self.run("put", text, params![key, value.as_str()])?;
            }
            Setting::Value { key, value: None } => {
                self.run("put", "DELETE FROM windlass_setting WHERE key = ?1", params![key])?;
            }
            Setting::Schedule(schedule) => {
                let mut schedule = schedule.clone();
                let stored = self.schedule(&schedule.name)?;
                keep_place(&mut schedule, stored.as_ref());
                self.put_schedule(&schedule)?;
            }
            Setting::DeleteSchedule(name) => {
                self.run("put", "DELETE FROM windlass_schedule WHERE name = ?1", params![name])?;
            }
            Setting::Limit(limit) => {
                let text =
                    "INSERT OR REPLACE INTO windlass_rate_limit (name, body) VALUES (?1, ?2)";
                self.run("put", text, params![limit.name, Json::of(limit)?.as_str()])?;
                self.out.push(limit_event(&limit.name, now));
            }
            Setting::DeleteLimit(name) => {
                if self.run(
                    "put",
                    "DELETE FROM windlass_rate_limit WHERE name = ?1",
                    params![name],
                )? > 0
                {
                    self.out.push(limit_event(name, now));
                }
            }
            Setting::Token(token) => {
                token.may_join(&tokens(self.conn)?, now)?;
                let text = "INSERT OR REPLACE INTO windlass_token (name, body) VALUES (?1, ?2)";
                self.run("put", text, params![token.name, Json::of(token)?.as_str()])?;
            }
            Setting::RevokeToken(name) => {
                let text = "DELETE FROM windlass_token WHERE name = ?1";
                if self.run("put", text, params![name])? == 0 {
                    return Err(no_such("token", name));
                }
            }
            Setting::Outbox(rule) => self.set_outbox_rule(*rule)?,
        }
        let (action, target) = setting_words(setting);
        self.note(by, action, &target, &Ok(Changed::Done), now)
    }

    fn schedule(&self, name: &str) -> Result<Option<Schedule>> {
        let body: Option<String> = self
            .conn
            .prepare_cached("SELECT body FROM windlass_schedule WHERE name = ?1")
            .and_then(|mut s| s.query_row([name], |r| r.get(0)).optional())
            .map_err(sql("schedule"))?;
        body.map(|body| Json::trusted(body).to()).transpose()
    }

    fn put_schedule(&self, schedule: &Schedule) -> Result<()> {
        let text = "INSERT OR REPLACE INTO windlass_schedule (name, body) VALUES (?1, ?2)";
        self.run("schedule", text, params![schedule.name, Json::of(schedule)?.as_str()])?;
        Ok(())
    }

    pub(super) fn check_fire(&self, fire: Option<&Fire>) -> Result<Option<Schedule>> {
        let Some(fire) = fire else { return Ok(None) };
        let schedule =
            self.schedule(&fire.schedule)?.ok_or_else(|| no_such("schedule", &fire.schedule))?;
        if schedule.next_at != fire.expected {
            let message = format!("schedule `{}` has fired already", fire.schedule);
            return Err(Error::conflict("submit", message));
        }
        Ok(Some(schedule))
    }

    pub(super) fn move_schedule(
        &mut self,
        schedule: Option<Schedule>,
        fire: Option<&Fire>,
        now: Timestamp,
    ) -> Result<()> {
        let (Some(mut schedule), Some(fire)) = (schedule, fire) else { return Ok(()) };
        schedule.next_at = fire.next_at;
        schedule.last_at = fire.last_at;
        self.put_schedule(&schedule)?;
        let data = Json::trusted(serde_json::json!({"schedule": fire.schedule}).to_string());
        self.out.push(Event::of_place(EventName::ScheduleFired, now, None, EventData::Json(data)));
        Ok(())
    }
}
