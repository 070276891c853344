//! What workers say in errors, reasons and notes is recorded, shown and sent as
//! events, so values of hidden fields are taken out before the engine hears of it.
//! Without such fields nothing is looked at; a report without words costs no read.

use crate::api::App;
use crate::api::problem::Answer;
use crate::redact::Hidden;
use windlass::remote::{Finish, ReportRequest, Said, Trouble};
use windlass::{Json, Progress};

/// Cleans the words of these reports.
pub(super) async fn discreet(app: &App, said: &mut ReportRequest) -> Answer<()> {
    let redactor = &app.terms.redactor;
    if redactor.is_empty() {
        return Ok(());
    }
    for report in &mut said.reports {
        let texts = texts(&mut report.said);
        if texts.is_empty() {
            continue;
        }
        if let Some(task) = app.engine.task(report.task).await? {
            let mut hidden = redactor.values(&task.payload);
            if let Some(checkpoint) = app.reader().checkpoint(task.id).await? {
                hidden = hidden.and(redactor.values(&Json::of(&checkpoint.context()?)?));
            }
            clean(texts, &hidden);
        }
    }
    Ok(())
}

fn clean(texts: Vec<&mut String>, hidden: &Hidden) {
    for text in texts {
        *text = hidden.scrub(text).into_owned();
    }
}

fn texts(said: &mut Said) -> Vec<&mut String> {
    match said {
        Said::Step(step) => step.reason.iter_mut().collect(),
        Said::Progress(Progress { note, .. }) => note.iter_mut().collect(),
        Said::Finish(Finish::Fail(trouble) | Finish::Retry { trouble, .. }) => {
            let Trouble { message, detail, .. } = trouble;
            std::iter::once(message).chain(detail.iter_mut()).collect()
        }
        Said::Finish(_) => vec![],
    }
}
