//! Access tokens: who has one, making one, revoking one, and who the caller is.
//! A token is shown once, in the answer that makes it. Those of the server's file
//! are listed here too, but changed only there.

use super::App;
use super::control::acting;
use super::input::{Object, parse};
use super::problem::{Answer, Problem, ProblemBody};
use super::submit::small_body;
use super::tasks::Items;
use crate::access::{Caller, Kept, secret};
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use utoipa::ToSchema;
use windlass::Timestamp;
use windlass::core::access::{AccessToken, Role};
use windlass::core::clock::{check_duration, duration_text};

/// What a token's holder may do.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[allow(dead_code)] // Only its schema is used.
pub(super) enum RoleWord {
    Viewer,
    Submitter,
    Worker,
    Operator,
    Admin,
}

/// A token without its secret.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Token)]
pub(super) struct TokenView {
    name: String,
    #[schema(value_type = RoleWord)]
    role: Role,
    /// How the token begins, after `wl_`: no secret.
    id: String,
    /// `store`, or `file` for those of `auth.tokens_file`
    kept: &'static str,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
    expired: bool,
}

impl TokenView {
    fn of(token: AccessToken, kept: Kept, now: Timestamp) -> TokenView {
        TokenView {
            expired: token.is_expired(now),
            name: token.name,
            role: token.role,
            id: token.id,
            kept: match kept {
                Kept::Store => "store",
                Kept::File => "file",
            },
            created_at: token.created_at,
            expires_at: token.expires_at,
        }
    }
}

/// A new token. This is the only time it is shown.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct NewTokenView {
    token: String,
    #[serde(flatten)]
    about: TokenView,
}

/// A token that somebody asks for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewToken {
    /// Stands in the audit list.
    #[schema(max_length = 100, pattern = "^[A-Za-z0-9_.@-]+$")]
    name: String,
    #[schema(value_type = RoleWord)]
    role: String,
    /// How long it is valid, e.g. `90d`; absent or null: until it is revoked.
    #[serde(default, with = "duration_text::optional")]
    #[schema(value_type = Option<String>, example = "90d")]
    expires_in: Option<Duration>,
}

/// Who the caller is.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Whoami {
    who: String,
    #[schema(value_type = RoleWord)]
    role: Role,
    /// The address the request came from.
    origin: String,
    /// `token`, or `off` for a server without sign-in
    auth: &'static str,
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
}

/// Tells who the caller is and what they may do
#[utoipa::path(
    get, path = "/v1/whoami", tag = "access",
    responses(
        (status = 200, body = Whoami),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn whoami(State(app): State<Arc<App>>, caller: Caller) -> Json<Whoami> {
    Json(Whoami {
        who: caller.who.to_string(),
        role: caller.role,
        origin: caller.origin.to_string(),
        auth: if app.terms.gate.asks() { "token" } else { "off" },
        expires_at: caller.expires_at,
    })
}

/// Lists access tokens, without their secrets
#[utoipa::path(
    get, path = "/v1/tokens", tag = "access",
    responses(
        (status = 200, body = Items<TokenView>),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn list(State(app): State<Arc<App>>) -> Answer<Json<Items<TokenView>>> {
    let now = app.engine.now();
    let of_store = app.reader().tokens().await?.into_iter();
    let of_store = of_store.map(|token| TokenView::of(token, Kept::Store, now));
    let of_file = app.terms.gate.of_file().into_iter();
    Ok(Items::of(of_file.map(|token| TokenView::of(token, Kept::File, now)).chain(of_store)))
}

/// Makes an access token
///
/// The token is in this answer and nowhere else.
#[utoipa::path(
    post, path = "/v1/tokens", tag = "access", request_body = NewToken,
    responses(
        (status = 201, body = NewTokenView),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Answer<(StatusCode, Json<NewTokenView>)> {
    let text = small_body(&headers, body, &app).await?;
    let Object(wanted): Object<NewToken> = parse(&text)?;
    let role: Role =
        wanted.role.parse().map_err(|e: windlass::Error| Problem::field("/role", e.message()))?;
    check_duration("expires_in", wanted.expires_in)
        .map_err(|e| Problem::field("/expires_in", e.message()))?;
    if app.terms.gate.of_file().iter().any(|token| token.name == wanted.name) {
        let detail = format!("the token `{}` is in the server's file of tokens", wanted.name);
        return Err(Problem::new(super::problem::ProblemCode::StateConflict, detail)
            .hint("choose another name"));
    }
    let now = app.engine.now();
    let expires_at = wanted.expires_in.map(|time| now.plus(time));
    let (secret, token) = secret::make(&wanted.name, role, now, expires_at)?;
    acting(&app, &caller).create_token(token.clone()).await?;
    refresh(&app).await;
    let about = TokenView::of(token, Kept::Store, now);
    Ok((StatusCode::CREATED, Json(NewTokenView { token: secret.expose().to_owned(), about })))
}

/// The change is written: should it not be heard of now, it is within a second.
async fn refresh(app: &App) {
    if let Err(error) = app.terms.gate.refresh(app.reader()).await {
        tracing::error!(%error, "tokens cannot be read again");
    }
}

/// Revokes an access token
///
/// It counts at once on this server, within a second on others.
#[utoipa::path(
    delete, path = "/v1/tokens/{name}", tag = "access", params(("name" = String, Path)),
    responses(
        (status = 204, description = "Revoked"),
        (status = "4XX", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
pub(super) async fn revoke(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(name): Path<String>,
) -> Answer<StatusCode> {
    if app.terms.gate.of_file().iter().any(|token| token.name == name) {
        let detail = format!("the token `{name:.100}` is in the server's file of tokens");
        return Err(Problem::new(super::problem::ProblemCode::StateConflict, detail)
            .hint("on the server: windlass token revoke NAME --tokens-file FILE"));
    }
    acting(&app, &caller).revoke_token(&name).await?;
    refresh(&app).await;
    Ok(StatusCode::NO_CONTENT)
}
