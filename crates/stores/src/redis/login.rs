//! Why a server did not let us in. The client library tells that a login failed, and not what the
//! server said: a wrong password stays wrong, and a server that is busy or has too many clients
//! lets us in soon.

use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, RedisConnectionInfo, RedisError};
use semel_core::StoreErrorKind;

use super::error::classify;

/// Whether a connection came about and its login was refused.
pub(super) fn is_refused(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::AuthenticationFailed | ErrorKind::Server(_)
    )
}

/// Logs in once more, step by step; gives what the server says to the step that it refuses, if that
/// may pass. Anything else is better told by the library: a server that doesn't know `AUTH` repeats
/// the password.
pub(super) async fn passing_refusal(
    client: &Client,
    config: &AsyncConnectionConfig,
) -> Option<RedisError> {
    match log_in(client, config).await {
        Err(error) => (classify(&error).0 == StoreErrorKind::Unavailable).then_some(error),
        Ok(()) => {
            Some(std::io::Error::other("the server refused a login, and takes it by now").into())
        }
    }
}

async fn log_in(client: &Client, config: &AsyncConnectionConfig) -> Result<(), RedisError> {
    let info = client.get_connection_info().clone();
    let steps = steps(info.redis_settings());
    let plain = RedisConnectionInfo::default().set_skip_set_lib_name();
    let client = Client::open(info.set_redis_settings(plain))?;
    let mut connection = client
        .get_multiplexed_async_connection_with_config(config)
        .await?;
    for step in steps {
        step.exec_async(&mut connection).await?;
    }
    Ok(())
}

/// The commands of a login.
fn steps(login: &RedisConnectionInfo) -> Vec<Cmd> {
    let mut steps = Vec::new();
    if let Some(password) = login.password() {
        let mut auth = redis::cmd("AUTH");
        auth.arg(login.username()).arg(password);
        steps.push(auth);
    }
    if login.db() != 0 {
        let mut select = redis::cmd("SELECT");
        select.arg(login.db());
        steps.push(select);
    }
    steps
}
