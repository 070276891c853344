//! Stored settings: values, schedules, limits, and what leaves through the
//! outbox. Each write has its audit row; a schedule keeps its place in time
//! when only other parts of it change.

use super::Inner;
use windlass_core::Result;
use windlass_core::clock::Timestamp;
use windlass_core::control::Changed;
use windlass_core::event::{Event, EventData, EventName};
use windlass_core::json::Json;
use windlass_core::store::{Actor, Fire, Setting};

impl Inner {
    pub(super) fn put(&mut self, setting: Setting, by: &Actor, now: Timestamp) -> Result<()> {
        crate::store::check_setting(&setting)?;
        let (action, target) = crate::store::setting_words(&setting);
        match setting {
            Setting::Value { key, value: Some(value) } => drop(self.settings.insert(key, value)),
            Setting::Value { key, value: None } => drop(self.settings.remove(&key)),
            Setting::Schedule(mut schedule) => {
                let stored = self.schedules.get(&schedule.name);
                crate::store::keep_place(&mut schedule, stored);
                self.schedules.insert(schedule.name.clone(), schedule);
            }
            Setting::DeleteSchedule(name) => drop(self.schedules.remove(&name)),
            Setting::Limit(limit) => {
                self.tell_limit(&limit.name, now);
                self.limits.insert(limit.name.clone(), limit);
            }
            Setting::DeleteLimit(name) => {
                if self.limits.remove(&name).is_some() {
                    self.tell_limit(&name, now);
                }
            }
            Setting::Token(token) => {
                let stored: Vec<_> = self.tokens.values().cloned().collect();
                token.may_join(&stored, now)?;
                self.tokens.insert(token.name.clone(), token);
            }
            Setting::RevokeToken(name) => {
                let gone = self.tokens.remove(&name);
                gone.ok_or_else(|| crate::store::no_such("token", &name))?;
            }
            Setting::Outbox(rule) => self.outbox_rule = rule,
        }
        self.note(by, action, &target, &Ok(Changed::Done), now);
        Ok(())
    }

    fn tell_limit(&mut self, name: &str, now: Timestamp) {
        self.publish(vec![crate::store::limit_event(name, now)]);
    }

    pub(super) fn move_schedule(&mut self, fire: Option<&Fire>, now: Timestamp) {
        let Some(fire) = fire else { return };
        if let Some(schedule) = self.schedules.get_mut(&fire.schedule) {
            schedule.next_at = fire.next_at;
            schedule.last_at = fire.last_at;
        }
        let data = Json::trusted(serde_json::json!({"schedule": fire.schedule}).to_string());
        self.publish(vec![Event::of_place(
            EventName::ScheduleFired,
            now,
            None,
            EventData::Json(data),
        )]);
    }
}
