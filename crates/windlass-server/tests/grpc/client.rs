//! A worker that speaks gRPC, one message at a time. It keeps nothing but its open
//! stream; what it holds is for the case to remember.

use crate::place::Place;
use std::time::Duration;
use tokio::sync::mpsc::{Sender, channel};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};
use windlass_server::api::worker_proto as proto;
use windlass_server::api::worker_proto::report::Said;
use windlass_server::api::worker_proto::session_request::Said as Say;
use windlass_server::api::worker_proto::session_response::Said as Told;
use windlass_server::api::worker_proto::worker_client::WorkerClient;

/// Nothing that is waited for takes this long.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) type Client = WorkerClient<Channel>;

pub(crate) async fn client(place: &Place) -> Client {
    let endpoint = Endpoint::from_shared(place.url("")).expect("an address");
    WorkerClient::new(endpoint.connect().await.expect("a connection"))
}

pub(crate) fn wish(max: u32) -> proto::LeaseRequest {
    proto::LeaseRequest {
        worker: "g".to_owned(),
        kinds: vec!["far".to_owned()],
        queues: vec!["jobs".to_owned()],
        max,
        wait: Some("10s".to_owned()),
        ..proto::LeaseRequest::default()
    }
}

pub(crate) fn hello(grant: u32) -> proto::Hello {
    let proto::LeaseRequest { worker, kinds, queues, .. } = wish(0);
    proto::Hello { worker, kinds, queues, grant, ..proto::Hello::default() }
}

pub(crate) fn id(lease: &proto::Lease) -> &str {
    &lease.task.as_ref().expect("a task").id
}

pub(crate) fn held(lease: &proto::Lease) -> proto::Held {
    proto::Held { task: id(lease).to_owned(), token: lease.token }
}

pub(crate) fn says(lease: &proto::Lease, said: Said) -> proto::Report {
    proto::Report { task: id(lease).to_owned(), token: lease.token, said: Some(said) }
}

pub(crate) fn step(name: &str, version: u64) -> Said {
    let outcome = proto::StepOutcome::Done.into();
    let output = Some(format!(r#"{{"{name}":{version}}}"#));
    Said::Step(proto::Step {
        name: name.to_owned(),
        version,
        outcome,
        output,
        ..Default::default()
    })
}

pub(crate) fn finish(outcome: proto::FinishOutcome, output: Option<&str>) -> Said {
    let output = output.map(str::to_owned);
    Said::Finish(proto::Finish { outcome: outcome.into(), output, ..Default::default() })
}

pub(crate) fn done(output: &str) -> Said {
    finish(proto::FinishOutcome::Done, Some(output))
}

/// The code that programs branch on.
pub(crate) fn word(status: &Status) -> &str {
    status.metadata().get("windlass-code").and_then(|v| v.to_str().ok()).unwrap_or_default()
}

/// An open session.
pub(crate) struct Session {
    say: Sender<proto::SessionRequest>,
    told: Streaming<proto::SessionResponse>,
    pub(crate) id: String,
}

impl Session {
    /// Opens one; what the server says first is for the caller.
    pub(crate) async fn raw(client: &Client, first: Say) -> Result<Session, Status> {
        let (say, said) = channel(16);
        say.send(proto::SessionRequest { said: Some(first) }).await.expect("room");
        let told = client.clone().session(ReceiverStream::new(said)).await?.into_inner();
        Ok(Session { say, told, id: String::new() })
    }

    pub(crate) async fn open(client: &Client, hello: proto::Hello) -> Session {
        let mut session = Session::raw(client, Say::Hello(hello)).await.expect("a session");
        match session.next().await.expect("a welcome") {
            Told::Welcome(welcome) => session.id = welcome.worker_id,
            other => panic!("not a welcome: {other:?}"),
        }
        session
    }

    pub(crate) async fn say(&self, say: proto::Say) {
        let said = Some(Say::Say(say));
        self.say.send(proto::SessionRequest { said }).await.expect("an open session");
    }

    /// Says something that need not be heard.
    pub(crate) async fn send(&self, said: Option<Say>) {
        let message = proto::SessionRequest { said };
        let _ = tokio::time::timeout(Duration::from_millis(20), self.say.send(message)).await;
    }

    /// The next message. The end of the stream is a status too.
    pub(crate) async fn next(&mut self) -> Result<Told, Status> {
        let next = tokio::time::timeout(PATIENCE, self.told.message()).await;
        match next.expect("something is said")? {
            Some(message) => Ok(message.said.expect("words")),
            None => Err(Status::ok("the end")),
        }
    }

    pub(crate) async fn lease(&mut self) -> proto::Lease {
        match self.next().await.expect("a lease") {
            Told::Lease(lease) => lease,
            other => panic!("not a lease: {other:?}"),
        }
    }

    pub(crate) async fn results(&mut self, number: u64) -> Vec<String> {
        match self.next().await.expect("results") {
            Told::Results(results) if results.number == number => results.results,
            other => panic!("not the results of {number}: {other:?}"),
        }
    }
}
