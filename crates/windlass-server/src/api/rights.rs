//! Which role a request needs, in one place: by its method and by the route it
//! matched, never by its raw path. What is not named here needs an operator to
//! change and a viewer to look, so a route that somebody forgets is closed.

use super::problem::{Problem, ProblemCode};
use crate::access::Caller;
use axum::http::Method;
use windlass::core::access::Role;

/// Anybody may ask whether the server lives.
const OPEN: [&str; 2] = ["/livez", "/readyz"];
const SUBMIT: [&str; 2] = ["/v1/tasks", "/v1/tasks/bulk"];
/// The worker protocol, over HTTP and as gRPC.
const WORKER: [&str; 2] = ["/v1/worker/", "/windlass.worker.v1."];
/// Whose holders give rights to others or decide where data goes.
const ADMIN: [&str; 3] = ["/v1/tokens", "/v1/sinks", "/v1/plan"];

/// The role a request needs; `None`: no token at all.
pub fn needed(method: &Method, route: &str) -> Option<Role> {
    let looks = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    Some(match route {
        _ if OPEN.contains(&route) && looks => return None,
        _ if ADMIN.iter().any(|start| route.starts_with(start)) => Role::Admin,
        _ if WORKER.iter().any(|start| route.starts_with(start)) => Role::Worker,
        _ if looks => Role::Viewer,
        _ if SUBMIT.contains(&route) && *method == Method::POST => Role::Submitter,
        _ => Role::Operator,
    })
}

/// Whether the caller has the role that is needed.
pub(super) fn check(caller: &Caller, needed: Role) -> Result<(), Problem> {
    if caller.role.includes(needed) {
        return Ok(());
    }
    let (who, role) = (&caller.who, caller.role);
    let detail = format!("this needs the role `{needed}`, and the token `{who}` is a `{role}`");
    Err(Problem::new(ProblemCode::Forbidden, detail).hint(
        "use a token with that role; an administrator makes one with `windlass token create`",
    ))
}

/// In a read-only server people look; programs submit and work as ever.
pub(super) fn check_read_only(method: &Method, needed: Role) -> Result<(), Problem> {
    let acts = !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
        && matches!(needed, Role::Operator | Role::Admin);
    if !acts {
        return Ok(());
    }
    let detail = "this server is read-only: nothing can be changed by hand";
    Err(Problem::new(ProblemCode::ReadOnly, detail)
        .hint("ui.mode = \"full\" in the server's configuration allows it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_of_routes() {
        let table = [
            ("GET", "/livez", None),
            ("POST", "/livez", Some(Role::Operator)),
            ("GET", "/", Some(Role::Viewer)),
            ("HEAD", "/metrics", Some(Role::Viewer)),
            ("GET", "/v1/tasks", Some(Role::Viewer)),
            ("POST", "/v1/tasks", Some(Role::Submitter)),
            ("POST", "/v1/tasks/bulk", Some(Role::Submitter)),
            ("POST", "/v1/tasks/{id}/cancel", Some(Role::Operator)),
            ("PATCH", "/v1/queues/{name}", Some(Role::Operator)),
            ("POST", "/v1/worker/lease", Some(Role::Worker)),
            ("POST", "/windlass.worker.v1.Worker/Lease", Some(Role::Worker)),
            ("GET", "/v1/tokens", Some(Role::Admin)),
            ("DELETE", "/v1/tokens/{name}", Some(Role::Admin)),
            ("DELETE", "/v1/forgotten", Some(Role::Operator)),
        ];
        for (method, route, expected) in table {
            let method: Method = method.parse().unwrap();
            assert_eq!(needed(&method, route), expected, "{method} {route}");
        }
    }
}
