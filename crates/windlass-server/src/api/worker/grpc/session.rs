//! One session: what the worker says goes to the engine in the order in which it
//! came, leases are pushed as far as they are granted, and requests as soon as they
//! are known. What the worker named last is renewed each second while it speaks
//! often enough; one that is silent, or does not read, is cut off. A session holds
//! nothing itself: when it ends, leases stay as they are.

use super::super::discreet::discreet;
use super::super::{answered, asked_out, refused, shown};
use super::proto::session_request::Said;
use super::proto::session_response::Said as Tell;
use super::{proto, words};
use crate::access::Caller;
use crate::api::App;
use crate::api::problem::{Problem, ProblemCode};
use axum::http::StatusCode;
use std::collections::{HashMap, HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{Sender, channel};
use tokio::time::{Instant, interval, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};
use tracing::Instrument as _;
use windlass::core::clock::format_duration;
use windlass::core::lease::Token;
use windlass::remote::{
    Asked, LEASES_MAX, Lease, LeaseAnswer, LeaseRequest, ReportRequest, Said as Reported, WAIT_MAX,
    Wish,
};
use windlass::{Error, NodeId, TaskId, Workers};

/// The first message must have come within this time.
const HELLO_TIME: Duration = Duration::from_secs(30);
/// A worker that takes nothing of what it is told for this long, or for a lease, is
/// cut off: until then nothing it says is heard either.
const READ_TIME: Duration = Duration::from_secs(30);
/// Messages on their way to the worker.
const WAITING_MAX: usize = 32;
/// Requests made elsewhere are known after this time.
const LOOK_EVERY: Duration = Duration::from_secs(1);

type Out = Sender<Result<proto::SessionResponse, Status>>;
type Leasing = Pin<Box<dyn Future<Output = windlass::Result<LeaseAnswer>> + Send>>;

/// Why a session ends.
enum End {
    /// The worker wanted it, or is gone.
    Over,
    Refused(Problem),
    Broken(Status),
}

impl From<Problem> for End {
    fn from(problem: Problem) -> End {
        End::Refused(problem)
    }
}

pub(super) fn open(
    app: Arc<App>,
    caller: Caller,
    incoming: Streaming<proto::SessionRequest>,
    place: OwnedSemaphorePermit,
) -> ReceiverStream<Result<proto::SessionResponse, Status>> {
    let (out, told) = channel(WAITING_MAX);
    let whole = async move {
        let status = match serve(app, caller, incoming, out.clone()).await {
            Ok(()) | Err(End::Over) => None,
            Err(End::Refused(problem)) => Some(Status::from(problem)),
            Err(End::Broken(status)) => Some(status),
        };
        if let Some(status) = status {
            tracing::debug!(%status, "a session of a worker ended");
            // One that does not read does not want to know either.
            let _ = timeout(READ_TIME, out.send(Err(status))).await;
        }
        drop(place);
    };
    tokio::spawn(whole.in_current_span());
    ReceiverStream::new(told)
}

async fn serve(
    app: Arc<App>,
    caller: Caller,
    mut incoming: Streaming<proto::SessionRequest>,
    out: Out,
) -> Result<(), End> {
    let workers = app.engine.workers();
    let (mut closing, mut asks) = (Box::pin(workers.closing()), workers.asks());
    let hello = greeted(&mut incoming).await?;
    let mut session = Session::begin(app.clone(), workers, hello, out).await?;
    let mut look = interval(LOOK_EVERY.min(session.heartbeat));
    look.tick().await;
    let mut leasing = None;
    loop {
        if leasing.is_none() && session.granted > 0 && session.waiting.is_empty() {
            leasing = Some(session.more_leases());
        }
        tokio::select! {
            biased;
            () = session.out.closed() => return Ok(()),
            () = &mut closing => return Err(stopping()),
            said = incoming.message() => match said.map_err(End::Broken)?.map(|m| m.said) {
                None => return Ok(()),
                Some(Some(Said::Say(say))) => {
                    app.terms.gate.take_one(&caller)?;
                    session.hear(say).await?;
                }
                Some(_) => return Err(Problem::field("/say", "after the hello, say").into()),
            },
            given = leases(&mut leasing) => session.take(given.map_err(refused)?),
            asked = asks.next() => {
                if asked.is_none_or(|task| session.holds(task)) {
                    session.look().await?;
                }
            }
            _ = look.tick() => {
                admitted(&app, &caller).await?;
                session.look().await?;
            }
            // One in each turn, when there is room: a worker that reads slowly is
            // still heard and renewed.
            () = room(&session.out), if !session.waiting.is_empty() => session.push().await?,
        }
    }
}

/// Leases fill half of the channel: results and requests find room beside them.
async fn room(out: &Out) {
    // A channel that is closed is noticed in the next turn.
    let _ = out.reserve_many(WAITING_MAX / 2).await;
}

/// A token may be revoked while its session is open.
async fn admitted(app: &App, caller: &Caller) -> Result<(), End> {
    if app.terms.gate.still_admits(app.reader(), caller, app.engine.now()).await {
        return Ok(());
    }
    let detail = format!("the token `{}` has expired or was revoked", caller.who);
    Err(Problem::new(ProblemCode::Unauthenticated, detail).into())
}

async fn greeted(incoming: &mut Streaming<proto::SessionRequest>) -> Result<proto::Hello, End> {
    let first = timeout(HELLO_TIME, incoming.message()).await.map_err(|_| {
        let late =
            Problem::new(ProblemCode::InvalidFields, "no hello came").hint("send it at once");
        late.status(StatusCode::REQUEST_TIMEOUT)
    })?;
    match first.map_err(End::Broken)?.ok_or(End::Over)?.said {
        Some(Said::Hello(hello)) => Ok(hello),
        _ => Err(Problem::field("/hello", "the first message is a hello").into()),
    }
}

fn stopping() -> End {
    let problem = Problem::new(ProblemCode::Draining, "this node stops");
    problem.hint("go on with another one, or with this one in a moment").into()
}

async fn leases(leasing: &mut Option<Leasing>) -> windlass::Result<LeaseAnswer> {
    match leasing {
        Some(asking) => {
            let answer = asking.await;
            *leasing = None;
            answer
        }
        None => std::future::pending().await,
    }
}

struct Session {
    app: Arc<App>,
    workers: Workers,
    id: NodeId,
    /// What it asks for, with its id.
    wish: LeaseRequest,
    lease: Duration,
    heartbeat: Duration,
    /// Leases that may still be pushed.
    granted: usize,
    /// What the worker named last.
    held: Vec<(TaskId, Token)>,
    /// Leases that are still to be pushed.
    waiting: VecDeque<Lease>,
    /// What was pushed and may be on its way.
    pushed: Vec<(TaskId, Token, Instant)>,
    /// What it was asked to do.
    told: HashMap<TaskId, Wish>,
    spoke: Instant,
    out: Out,
}

impl Session {
    /// A worker that comes back shows first that its lease has not ended; a new one
    /// joins with its first look for work.
    async fn begin(
        app: Arc<App>,
        workers: Workers,
        hello: proto::Hello,
        out: Out,
    ) -> Result<Session, End> {
        let (wish, held) = (words::hello(&hello)?, words::held(&hello.held)?);
        if wish.id.is_none() && !held.is_empty() {
            return Err(Problem::field("/held", "a worker without an id holds nothing").into());
        }
        if wish.max > LEASES_MAX {
            return Err(too_many("/grant"));
        }
        let (answer, requests) = match wish.id {
            Some(id) => {
                let said = ReportRequest { held: held.clone(), ..ReportRequest::default() };
                let answer = workers.report(id, said).await.map_err(refused)?;
                let lease = app.engine.settings().lease;
                (LeaseAnswer { id, lease, leases: vec![] }, answer.requests)
            }
            None => (workers.lease(wish.clone()).await.map_err(refused)?, vec![]),
        };
        let (id, lease) = (answer.id, answer.lease);
        let mut session = Session {
            app,
            workers,
            id,
            granted: wish.max,
            wish: LeaseRequest { id: Some(id), wait: WAIT_MAX, ..wish },
            lease,
            heartbeat: lease / 3,
            held,
            waiting: VecDeque::new(),
            pushed: vec![],
            told: HashMap::new(),
            spoke: Instant::now(),
            out,
        };
        session.welcome().await?;
        session.ask(requests).await?;
        session.take(answer);
        Ok(session)
    }

    async fn welcome(&self) -> Result<(), End> {
        let (lease, heartbeat) = (format_duration(self.lease), format_duration(self.heartbeat));
        let worker_id = self.id.to_string();
        self.tell(Tell::Welcome(proto::Welcome { worker_id, lease, heartbeat })).await
    }

    fn more_leases(&self) -> Leasing {
        let workers = self.workers.clone();
        let wish = LeaseRequest { max: self.granted, ..self.wish.clone() };
        Box::pin(async move { workers.lease(wish).await })
    }

    fn take(&mut self, given: LeaseAnswer) {
        self.granted = self.granted.saturating_sub(given.leases.len());
        self.waiting.extend(given.leases);
    }

    async fn push(&mut self) -> Result<(), End> {
        let Some(lease) = self.waiting.pop_front() else { return Ok(()) };
        self.pushed.push((lease.task.id, lease.token, Instant::now()));
        let message = words::leased(shown(&self.app, lease)?)?;
        self.tell(Tell::Lease(message)).await
    }

    async fn hear(&mut self, say: proto::Say) -> Result<(), End> {
        let proto::Say { number, held, reports, leaving, grant } = say;
        let mut said = words::report(&held, reports, leaving)?;
        discreet(&self.app, &mut said).await?;
        let granted = self.granted.saturating_add(usize::try_from(grant).unwrap_or(usize::MAX));
        if granted > LEASES_MAX {
            return Err(too_many("/say/grant"));
        }
        (self.granted, self.spoke) = (granted, Instant::now());
        self.name(&said);
        if !leaving {
            said.held = self.renewed();
        }
        let answer = self.workers.report(self.id, said).await.map_err(refused)?;
        let asked = answer.requests.clone();
        let results = answered(answer).results.into_iter().map(str::to_owned).collect();
        self.tell(Tell::Results(proto::Results { number, results })).await?;
        self.ask(asked).await?;
        if leaving { Err(End::Over) } else { Ok(()) }
    }

    /// What the worker names is what it holds, and so is what it cannot have seen.
    fn name(&mut self, said: &ReportRequest) {
        let ends = said.reports.iter().filter(|r| matches!(r.said, Reported::Finish(_)));
        let ended: HashSet<TaskId> = ends.map(|report| report.task).collect();
        let named: HashSet<TaskId> = said.held.iter().map(|(task, _)| *task).collect();
        let patience = self.heartbeat;
        self.pushed.retain(|(task, _, at)| {
            at.elapsed() < patience && !ended.contains(task) && !named.contains(task)
        });
        self.held = said.held.iter().filter(|(task, _)| !ended.contains(task)).copied().collect();
    }

    fn renewed(&self) -> Vec<(TaskId, Token)> {
        let waiting = self.waiting.iter().map(|lease| (lease.task.id, lease.token));
        let pushed = self.pushed.iter().map(|(task, token, _)| (*task, *token));
        self.held.iter().copied().chain(pushed).chain(waiting).collect()
    }

    fn holds(&self, task: TaskId) -> bool {
        self.renewed().iter().any(|(held, _)| *held == task)
    }

    /// Renews what is held and hears what is wanted of it. Who does not speak is not
    /// renewed: only its word shows that it works.
    async fn look(&mut self) -> Result<(), End> {
        let silent = self.spoke.elapsed();
        if silent > self.lease {
            let message = format!("nothing was heard of {} for a lease", self.id);
            return Err(refused(Error::lease_lost("session", message)).into());
        }
        let held = self.renewed();
        // One that waits for work and holds nothing is kept alive by its waiting.
        if silent > self.heartbeat || (held.is_empty() && self.granted > 0) {
            return Ok(());
        }
        let said = ReportRequest { held, ..ReportRequest::default() };
        let answer = self.workers.report(self.id, said).await.map_err(refused)?;
        self.ask(answer.requests).await
    }

    /// Tells each request once.
    async fn ask(&mut self, requests: Vec<Asked>) -> Result<(), End> {
        let held: HashSet<TaskId> = self.renewed().into_iter().map(|(task, _)| task).collect();
        self.told.retain(|task, _| held.contains(task));
        for asked in requests {
            if self.told.insert(asked.task, asked.what) != Some(asked.what) {
                self.tell(Tell::Request(words::request(asked_out(asked)))).await?;
            }
        }
        Ok(())
    }

    async fn tell(&self, said: Tell) -> Result<(), End> {
        let message = proto::SessionResponse { said: Some(said) };
        match timeout(READ_TIME.min(self.lease), self.out.send(Ok(message))).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(End::Over),
            Err(_) => {
                tracing::info!(node = %self.id, "a worker does not read its session: cut off");
                let late = Problem::new(ProblemCode::LeaseLost, "this session is not read");
                Err(late.hint("read on while you work").status(StatusCode::REQUEST_TIMEOUT).into())
            }
        }
    }
}

fn too_many(pointer: &str) -> End {
    Problem::field(pointer, format!("at most {LEASES_MAX} leases may be granted at a time")).into()
}
