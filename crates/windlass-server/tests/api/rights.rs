//! Every route, every role, every sort of token, against the table that people
//! read. The table must name exactly the routes that the server has, so a new
//! route without a row fails here.

use crate::place::{Got, Place};
use reqwest::Method;
use std::collections::BTreeMap;
use std::time::Duration;
use windlass::core::access::{AccessToken, Role};
use windlass_server::access::secret;
use windlass_server::api;
use windlass_server::config::AuthConfig;

const TABLE: &str = include_str!("../../../../docs/reference/access.md");

/// Routes that are not in the OpenAPI document.
const BESIDE: [&str; 6] = [
    "GET /",
    "GET /metrics",
    "GET /v1/openapi.json",
    "POST /windlass.worker.v1.Worker/Lease",
    "POST /windlass.worker.v1.Worker/Report",
    "POST /windlass.worker.v1.Worker/Session",
];

/// `GET /v1/tasks` and the least role that may, `None` for everybody.
fn table() -> BTreeMap<String, Option<Role>> {
    let rows = TABLE.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        let route = cells.next()?.strip_suffix('`')?.to_owned();
        let role = match cells.next()?.trim_end_matches(" |") {
            "everybody" => None,
            role => Some(role.parse().unwrap_or_else(|_| panic!("{line}"))),
        };
        route.contains(" /").then_some((route, role))
    });
    rows.collect()
}

fn routes() -> Vec<String> {
    let document = serde_json::to_value(api::document()).unwrap();
    let mut routes: Vec<String> = BESIDE.map(str::to_owned).into();
    for (path, methods) in document["paths"].as_object().unwrap() {
        routes.extend(
            methods.as_object().unwrap().keys().map(|m| format!("{} {path}", m.to_uppercase())),
        );
    }
    routes.sort();
    routes
}

struct Tokens {
    /// One for each role, and one more that is revoked or expired.
    good: Vec<(Role, String)>,
    bad: Vec<(String, String)>,
}

async fn tokens(place: &Place) -> Tokens {
    let now = place.engine.now();
    let (mut good, mut bad) = (vec![], vec![]);
    for role in Role::ALL {
        good.push((role, place.token(&format!("good-{role}"), role.as_str()).await));
        let (revoked, token) = secret::make(&format!("revoked-{role}"), role, now, None).unwrap();
        place.engine.create_token(token.clone()).await.unwrap();
        place.engine.revoke_token(&token.name).await.unwrap();
        bad.push((format!("revoked {role}"), revoked.expose().to_owned()));
        let (expired, token) = secret::make(&format!("expired-{role}"), role, now, None).unwrap();
        let expires_at = Some(now);
        place.engine.create_token(AccessToken { expires_at, ..token }).await.unwrap();
        bad.push((format!("expired {role}"), expired.expose().to_owned()));
        let mut wrong = good.last().unwrap().1.clone();
        wrong.replace_range(20..21, if &wrong[20..21] == "A" { "B" } else { "A" });
        bad.push((format!("wrong {role}"), wrong));
    }
    bad.push(("of another shape".to_owned(), "letmein".to_owned()));
    bad.push(("empty".to_owned(), String::new()));
    Tokens { good, bad }
}

async fn ask(place: &Place, route: &str, token: Option<&str>) -> Got {
    let (method, path) = route.split_once(' ').unwrap();
    // Names that do not exist: only whether the gate opens is asked for here.
    let path = path.replace("{id}", "tsk_0000000000000").replace("{name}", "nobody");
    let method: Method = method.parse().unwrap();
    let request = place.client.request(method, place.url(&path)).timeout(Duration::from_secs(60));
    let request = match token {
        Some(token) => request.bearer_auth(token),
        None => request,
    };
    Got::of(request.send().await.unwrap()).await
}

#[test]
fn the_table_names_every_route() {
    let named: Vec<String> = table().into_keys().collect();
    assert_eq!(named, routes(), "docs/reference/access.md and the routes differ");
}

#[tokio::test]
async fn every_route_for_every_role_and_every_token() {
    let place = Place::signed_in(AuthConfig::default(), api::Page::On, &[]).await;
    let tokens = tokens(&place).await;
    let (mut cells, mut allowed) = (0, 0);
    for (route, needed) in table() {
        let mut refused = vec![("none".to_owned(), None)];
        refused.extend(tokens.bad.iter().map(|(what, token)| (what.clone(), Some(token.as_str()))));
        for (what, token) in refused {
            let got = ask(&place, &route, token).await;
            cells += 1;
            match needed {
                Some(_) => {
                    got.problem(401, "unauthenticated");
                    assert_eq!(got.header("www-authenticate"), "Bearer", "{route}: {what}");
                }
                None => assert!(got.status.is_success(), "{route}: {what}: {}", got.text),
            }
        }
        for (role, token) in &tokens.good {
            let got = ask(&place, &route, Some(token)).await;
            cells += 1;
            if needed.is_none_or(|needed| role.includes(needed)) {
                allowed += 1;
                let status = got.status.as_u16();
                assert!(![401, 403].contains(&status), "{route}: {role}: {}", got.text);
                assert!(status < 500, "{route}: {role}: {}", got.text);
            } else {
                got.problem(403, "forbidden");
                let told = format!("needs the role `{}`", needed.unwrap());
                assert!(got.detail().contains(&told), "{route}: {role}: {}", got.text);
            }
        }
    }
    let per_route = 1 + tokens.bad.len() + tokens.good.len();
    assert_eq!(cells, table().len() * per_route);
    assert!(allowed > table().len() && allowed < 5 * table().len(), "{allowed}");
}

#[tokio::test]
async fn addresses_that_do_not_exist_tell_strangers_nothing() {
    let place = Place::signed_in(AuthConfig::default(), api::Page::On, &[]).await;
    for route in ["GET /v1/nothing", "POST /v1/tasks/", "GET /v1//tasks", "DELETE /v1/tasks"] {
        ask(&place, route, None).await.problem(401, "unauthenticated");
    }
    place.get("/v1/nothing").await.problem(404, "not-found");
}
