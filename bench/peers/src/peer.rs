//! `axum-idempotent` as its documentation sets it up: answers kept in a session, keys from the
//! header.

use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::routing::post;
use axum_idempotent::{IdempotentLayer, IdempotentOptions};
use futures_util::future::BoxFuture;
use ruts::store::moka::MokaStore;
use ruts::store::{Error, SessionMap, SessionStore, Ttl};
use ruts::{CookieOptions, Id, Session, SessionLayer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tower_cookies::CookieManagerLayer;

use crate::defects::{StoreIs, Subject};

/// The peer, on a store in memory.
pub(crate) struct Peer;

impl Subject for Peer {
    fn wrap(&self, app: Router, store: StoreIs) -> BoxFuture<'static, Router> {
        Box::pin(async move {
            match store {
                StoreIs::Up => wrap(app, MokaStore::builder().build()),
                StoreIs::Down => wrap(app, Down),
            }
        })
    }
}

/// The peer around an application; `/session` starts a session, without which it keeps nothing.
pub(crate) fn wrap<T: SessionStore>(app: Router, store: T) -> Router {
    let options = IdempotentOptions::new(24 * 3600).use_idempotency_key_header(None, false);
    let cookies = CookieOptions::build()
        .name("session")
        .max_age(24 * 3600)
        .path("/");
    app.layer(IdempotentLayer::<T>::new(options))
        .route("/session", post(start_session::<T>))
        .layer(SessionLayer::new(Arc::new(store)).with_cookie_options(cookies))
        .layer(CookieManagerLayer::new())
}

async fn start_session<T: SessionStore>(session: Session<T>) -> String {
    let day = Ttl::new(24 * 3600).unwrap_or(Ttl::ZERO);
    match session.set(STARTED, &true, day, None).await {
        Ok(()) => "started".to_owned(),
        Err(error) => error.to_string(),
    }
}

const STARTED: &str = "started";

/// A store that is down, but for the start of the session: that was yesterday.
#[derive(Clone)]
struct Down;

fn down<T>() -> Result<T, Error> {
    Err(Error::Backend("down".to_owned()))
}

type Hot = Option<std::marker::PhantomData<()>>;

impl SessionStore for Down {
    async fn get<T>(&self, _: &Id, _: &str) -> Result<Option<T>, Error>
    where
        T: Send + Sync + DeserializeOwned,
    {
        down()
    }

    async fn get_all(&self, _: &Id) -> Result<Option<SessionMap>, Error> {
        down()
    }

    fn set<T>(
        &self,
        _: &Id,
        field: &str,
        _: &T,
        _: Ttl,
        _: Hot,
    ) -> impl Future<Output = Result<(), Error>> + Send
    where
        T: Send + Sync + Serialize,
    {
        let answer = if field == STARTED { Ok(()) } else { down() };
        std::future::ready(answer)
    }

    async fn set_and_rename<T>(
        &self,
        _: &Id,
        _: &Id,
        _: &str,
        _: &T,
        _: Ttl,
        _: Hot,
    ) -> Result<(), Error>
    where
        T: Send + Sync + Serialize,
    {
        down()
    }

    async fn rename_session_id(&self, _: &Id, _: &Id) -> Result<bool, Error> {
        down()
    }

    async fn remove(&self, _: &Id, _: &str) -> Result<bool, Error> {
        down()
    }

    async fn delete(&self, _: &Id) -> Result<bool, Error> {
        down()
    }

    async fn expire_field(&self, _: &Id, _: &str, _: Ttl) -> Result<bool, Error> {
        down()
    }
}
