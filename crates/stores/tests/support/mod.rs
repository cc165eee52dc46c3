//! What several tests of the Redis store need.

/// Sends a command behind the store's back, to whichever server takes it.
pub(crate) async fn send(url: &str, cmd: &redis::Cmd) {
    for server in servers(url).await {
        let client = redis::Client::open(server).expect("a URL");
        let connection = client.get_multiplexed_async_connection().await;
        let mut connection = connection.expect("a server");
        // A replica, or a master without the key's slot, refuses.
        if cmd.exec_async(&mut connection).await.is_ok() {
            return;
        }
    }
    panic!("no server took the command");
}

/// The servers that a URL names, or that its sentinels name.
async fn servers(url: &str) -> Vec<String> {
    let (scheme, rest) = url.split_once("://").expect("a URL");
    let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
    let hosts: Vec<String> = hosts
        .split(',')
        .map(|host| format!("redis://{host}"))
        .collect();
    if scheme != "redis+sentinel" {
        return hosts;
    }
    let client = redis::Client::open(&*hosts[0]).expect("a URL");
    let connection = client.get_multiplexed_async_connection().await;
    let mut connection = connection.expect("a sentinel");
    let (host, port): (String, u16) = redis::cmd("SENTINEL")
        .arg("GET-MASTER-ADDR-BY-NAME")
        .arg(path)
        .query_async(&mut connection)
        .await
        .expect("a master");
    vec![format!("redis://{host}:{port}")]
}
