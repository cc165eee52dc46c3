//! A client that says exactly what a test wants it to say, over standard input and output.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::support::Place;

pub(crate) struct Talk {
    pub(crate) process: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
    /// Answers that came before they were asked for.
    early: Vec<Value>,
    next: u64,
}

impl Talk {
    /// Starts a command, and a session with it.
    pub(crate) async fn start(place: &Place, words: &[String]) -> Self {
        Self::with(place, words, &[]).await
    }

    pub(crate) async fn with(place: &Place, words: &[String], env: &[(&str, &str)]) -> Self {
        let mut command = Command::from(place.command(words));
        command.envs(env.iter().copied());
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut process = command.spawn().expect("it starts");
        let input = process.stdin.take();
        let output = process.stdout.take().expect("its output");
        let mut talk = Self {
            process,
            input,
            output: BufReader::new(output).lines(),
            early: Vec::new(),
            next: 1,
        };
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "talk", "version": "1"}});
        talk.ask("initialize", &hello).await;
        talk.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await;
        talk
    }

    pub(crate) async fn say(&mut self, message: &Value) {
        let input = self.input.as_mut().expect("its input");
        input
            .write_all(format!("{message}\n").as_bytes())
            .await
            .expect("it reads");
    }

    /// Sends a request. → its id.
    pub(crate) async fn send(&mut self, method: &str, params: &Value) -> u64 {
        let id = self.next;
        self.next += 1;
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.say(&message).await;
        id
    }

    /// The next message; nothing where it says no more.
    pub(crate) async fn hear(&mut self) -> Option<Value> {
        let line = self.output.next_line().await.ok()??;
        Some(serde_json::from_str(&line).expect("JSON"))
    }

    /// The answer to a request.
    pub(crate) async fn answer(&mut self, id: u64) -> Value {
        if let Some(at) = self.early.iter().position(|early| early["id"] == id) {
            return self.early.swap_remove(at);
        }
        loop {
            let message = self.hear().await.expect("an answer before the end");
            if message.get("method").is_some() {
                continue;
            }
            if message["id"] == id {
                return message;
            }
            self.early.push(message);
        }
    }

    pub(crate) async fn ask(&mut self, method: &str, params: &Value) -> Value {
        let id = self.send(method, params).await;
        self.answer(id).await
    }

    /// Calls a tool. → its result.
    pub(crate) async fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let answer = self
            .ask("tools/call", &json!({"name": tool, "arguments": arguments}))
            .await;
        answer["result"].clone()
    }

    /// What the built-in tool says of a key.
    pub(crate) async fn status(&mut self, tool: &str, key: &str) -> String {
        let asked = json!({"tool": tool, "idempotencyKey": key});
        let status = self.call("semel_status", &asked).await;
        status["structuredContent"]["state"]
            .as_str()
            .expect("a state")
            .to_owned()
    }

    /// Leaves, and waits for it to end.
    pub(crate) async fn leave(mut self) -> std::process::ExitStatus {
        drop(self.input.take());
        self.process.wait().await.expect("it ends")
    }
}

pub(crate) fn code(result: &Value) -> &str {
    result["_meta"]["semel/code"].as_str().unwrap_or_default()
}

pub(crate) fn is_replay(result: &Value) -> bool {
    result["_meta"]["semel/replayed"] == true
}
