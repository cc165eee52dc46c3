//! [`Suggestion`]: which arguments identify a tool's calls, guessed from its schema.
//!
//! What a model writes in its own words does not identify a call, unless it is what the call is
//! about. Ids, amounts, recipients and dates do.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::pointer::escape;

/// A rule for one tool, to be read by a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suggestion {
    /// The name of the tool.
    pub tool: String,
    /// The rule.
    pub rule: SuggestedRule,
}

/// What to write into the configuration. Arguments are JSON pointers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SuggestedRule {
    /// `identity`: only these identify a call.
    Identity(Vec<String>),
    /// `ignore`: all but these identify a call.
    Ignore(Vec<String>),
    /// All arguments identify a call.
    All,
}

impl Suggestion {
    /// The rule as TOML.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut text = format!("[tools.{}]\n", toml_string(&self.tool));
        // Writing into a `String` cannot fail.
        let _ = match &self.rule {
            SuggestedRule::Identity(paths) => writeln!(text, "identity = {}", toml_list(paths)),
            SuggestedRule::Ignore(paths) => writeln!(text, "ignore = {}", toml_list(paths)),
            SuggestedRule::All => writeln!(text, "key = \"derive\""),
        };
        text
    }
}

fn toml_list(paths: &[String]) -> String {
    let items: Vec<String> = paths.iter().map(|path| toml_string(path)).collect();
    format!("[{}]", items.join(", "))
}

/// A basic string of TOML, whose escapes are those of JSON but for DEL.
fn toml_string(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// What an argument is, by its name and type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// A different value on every attempt.
    Noise,
    /// How something is done, not what.
    Tuning,
    /// An amount, a quantity, a date.
    Measure,
    /// The id of something that exists.
    Id,
    /// Whom or what place it goes to.
    Destination,
    /// Why something is done.
    Explanation,
    /// A text that may be the very thing that is sent or written.
    Content,
    /// A short text that names a longer one.
    Title,
    /// Anything else.
    Other,
}

const NOISE: [&str; 8] = [
    "nonce",
    "timestamp",
    "request id",
    "trace id",
    "correlation id",
    "idempotency key",
    "client token",
    "request token",
];
const TUNING: [&str; 16] = [
    "timeout",
    "priority",
    "urgency",
    "severity",
    "importance",
    "tag",
    "label",
    "color",
    "locale",
    "language",
    "reminder",
    "notify",
    "verbose",
    "retries",
    "sentiment",
    "tone",
];
const MEASURE: [&str; 23] = [
    "amount", "price", "total", "cents", "quantity", "qty", "units", "date", "time", "start",
    "end", "due", "deadline", "when", "at", "until", "day", "month", "hour", "hours", "minutes",
    "duration", "sum",
];
const DESTINATION: [&str; 27] = [
    "to",
    "recipient",
    "cc",
    "bcc",
    "email",
    "channel",
    "chat",
    "room",
    "thread",
    "user",
    "assignee",
    "attendee",
    "project",
    "repo",
    "repository",
    "folder",
    "path",
    "file",
    "board",
    "queue",
    "team",
    "group",
    "account",
    "customer",
    "contact",
    "owner",
    "from",
];
const EXPLANATION: [&str; 14] = [
    "note",
    "memo",
    "reason",
    "description",
    "desc",
    "comment",
    "remark",
    "justification",
    "explanation",
    "detail",
    "context",
    "rationale",
    "caption",
    "purpose",
];
const CONTENT: [&str; 8] = [
    "body", "text", "content", "message", "html", "markdown", "reply", "answer",
];
const TITLE: [&str; 5] = ["subject", "title", "headline", "summary", "topic"];
/// Words in the name of a tool whose texts are what it changes.
const CHANGES: [&str; 8] = [
    "update", "edit", "set", "patch", "modify", "change", "rename", "move",
];

struct Argument {
    pointer: String,
    role: Role,
    is_required: bool,
    /// Whether the tool's own name says that this is what it writes.
    is_named_by_tool: bool,
}

/// Guesses the rule for a tool.
pub(crate) fn suggest(tool: &str, schema: &Map<String, Value>) -> Suggestion {
    let tool_words = words(tool);
    let arguments = read_arguments(&tool_words, schema);
    let has = |roles: &[Role]| {
        let mut found = arguments.iter();
        found.any(|argument| roles.contains(&argument.role))
    };
    let is_change = tool_words
        .iter()
        .any(|word| CHANGES.contains(&word.as_str()));
    let has_measure = has(&[Role::Measure]);
    let is_specific = has_measure || has(&[Role::Other]);
    let title_counts = !is_specific && !has(&[Role::Id]);
    let has_title = title_counts && has(&[Role::Title]);
    let content_counts = !is_specific && !has_title;
    let nothing_else = !is_specific && !has(&[Role::Id, Role::Destination]);
    let counts = |argument: &Argument| match argument.role {
        Role::Noise => false,
        Role::Tuning => is_change,
        Role::Measure | Role::Id | Role::Destination | Role::Other => true,
        Role::Title => is_change || title_counts || argument.is_named_by_tool,
        Role::Content => is_change || content_counts || argument.is_named_by_tool,
        Role::Explanation => {
            argument.is_named_by_tool || nothing_else && !has(&[Role::Title, Role::Content])
        }
    };
    let names = |wanted: &dyn Fn(&Argument) -> bool| -> Vec<String> {
        let wanted = arguments.iter().filter(|argument| wanted(argument));
        wanted.map(|argument| argument.pointer.clone()).collect()
    };
    let left_out = names(&|argument| !counts(argument));
    let rule = if has_measure && !is_change {
        // Models add and drop optional arguments; with an amount or a date, the rest is enough.
        SuggestedRule::Identity(names(&|argument| {
            counts(argument) && (argument.role != Role::Other || argument.is_required)
        }))
    } else if left_out.is_empty() || left_out.len() == arguments.len() {
        SuggestedRule::All
    } else {
        SuggestedRule::Ignore(left_out)
    };
    Suggestion {
        tool: tool.to_owned(),
        rule,
    }
}

fn read_arguments(tool_words: &[String], schema: &Map<String, Value>) -> Vec<Argument> {
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|all| all.iter().any(|one| one == name));
    let properties = schema.get("properties").and_then(Value::as_object);
    let properties = properties.into_iter().flatten();
    let mut arguments: Vec<Argument> = properties
        .map(|(name, schema)| {
            let of_name = words(name);
            let last = of_name.last().cloned().unwrap_or_default();
            let is_required = is_required(name);
            Argument {
                pointer: format!("/{}", escape(name)),
                role: role(&of_name, schema, is_required),
                is_required,
                is_named_by_tool: tool_words.contains(&last),
            }
        })
        .collect();
    arguments.sort_by(|one, other| one.pointer.cmp(&other.pointer));
    arguments
}

fn role(words: &[String], schema: &Value, is_required: bool) -> Role {
    let last = words.last().map_or("", String::as_str);
    let is_one_of = |list: &[&str]| list.contains(&last);
    let joined = words.join(" ");
    let kind = schema
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or("string");
    let format = schema.get("format").and_then(Value::as_str).unwrap_or("");
    let is_closed = ["enum", "const", "pattern"]
        .iter()
        .any(|name| schema.get(name).is_some());
    let is_text = kind == "string" && !is_closed && format.is_empty();
    let is_number = matches!(kind, "number" | "integer");
    if NOISE.iter().any(|noise| joined.ends_with(noise)) {
        Role::Noise
    } else if matches!(last, "id" | "uuid" | "number" | "reference" | "ref") {
        Role::Id
    } else if is_one_of(&TUNING) {
        Role::Tuning
    } else if is_one_of(&MEASURE) || format.starts_with("date") || (is_number && is_required) {
        Role::Measure
    } else if is_text && is_one_of(&EXPLANATION) {
        Role::Explanation
    } else if is_text && is_one_of(&CONTENT) {
        Role::Content
    } else if is_text && is_one_of(&TITLE) {
        Role::Title
    } else if words
        .iter()
        .any(|word| DESTINATION.contains(&word.as_str()))
    {
        Role::Destination
    } else {
        Role::Other
    }
}

/// The words of a name such as `sendMail` or `send_mails`, in lower case and without a plural `s`.
pub(crate) fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        let begins = !c.is_alphanumeric() || (c.is_uppercase() && was_lower);
        if begins && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        was_lower = c.is_lowercase() || c.is_numeric();
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    for word in &mut words {
        let is_plural = word.len() > 3 && word.ends_with('s') && !word.ends_with("ss");
        let keeps = ["cents", "units", "hours", "minutes", "retries"].contains(&word.as_str());
        if is_plural && !keeps {
            word.pop();
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(tool: &str, properties: &Value, required: &[&str]) -> SuggestedRule {
        let schema = json!({"type": "object", "properties": properties, "required": required});
        suggest(tool, schema.as_object().unwrap()).rule
    }

    fn texts(names: &[&str]) -> Value {
        let names = names.iter();
        names
            .map(|name| ((*name).to_owned(), json!({"type": "string"})))
            .collect()
    }

    fn list(paths: &[&str]) -> Vec<String> {
        paths.iter().map(|path| (*path).to_owned()).collect()
    }

    #[test]
    fn money_and_dates_are_identity_and_prose_is_not() {
        let mut pay = texts(&["to", "note", "currency"]);
        pay["amount"] = json!({"type": "number"});
        let found = of("pay", &pay, &["to", "amount"]);
        assert_eq!(found, SuggestedRule::Identity(list(&["/amount", "/to"])));
        let mut event = texts(&["title", "description", "attendees"]);
        event["start"] = json!({"type": "string", "format": "date-time"});
        let found = of("create_event", &event, &["title", "start"]);
        assert_eq!(
            found,
            SuggestedRule::Identity(list(&["/attendees", "/start"]))
        );
    }

    #[test]
    fn text_that_the_call_is_about_counts() {
        let ignored = |paths: &[&str]| SuggestedRule::Ignore(list(paths));
        let mail = texts(&["to", "subject", "body"]);
        assert_eq!(of("send_mail", &mail, &["to"]), ignored(&["/body"]));
        let chat = texts(&["channel", "text"]);
        assert_eq!(of("post_message", &chat, &[]), SuggestedRule::All);
        let note = texts(&["contact_id", "note", "reason"]);
        assert_eq!(of("addNote", &note, &[]), ignored(&["/reason"]));
        let comment = texts(&["ticket_id", "body"]);
        assert_eq!(of("add_comment", &comment, &[]), SuggestedRule::All);
        let close = texts(&["ticket_id", "comment"]);
        assert_eq!(of("close_ticket", &close, &[]), ignored(&["/comment"]));
        let file = texts(&["path", "content"]);
        assert_eq!(of("write_file", &file, &[]), SuggestedRule::All);
        let shell = texts(&["command", "description", "timeout"]);
        let found = of("run_command", &shell, &["command"]);
        assert_eq!(found, ignored(&["/description", "/timeout"]));
        assert_eq!(of("log", &texts(&["reason"]), &[]), SuggestedRule::All);
    }

    #[test]
    fn a_change_counts_what_it_changes() {
        let mut deal = texts(&["deal_id", "stage", "title", "reason"]);
        deal["amount"] = json!({"type": "number"});
        let found = of("update_deal", &deal, &["deal_id"]);
        assert_eq!(found, SuggestedRule::Ignore(list(&["/reason"])));
    }

    #[test]
    fn suggestion_is_toml_that_can_be_pasted() {
        let suggestion = |rule| Suggestion {
            tool: "pay\"".to_owned(),
            rule,
        };
        let text = suggestion(SuggestedRule::Identity(list(&["/a", "/b"]))).to_toml();
        assert_eq!(text, "[tools.\"pay\\\"\"]\nidentity = [\"/a\", \"/b\"]\n");
        let text = suggestion(SuggestedRule::All).to_toml();
        assert!(text.ends_with("key = \"derive\"\n"), "{text}");
    }

    #[test]
    fn names_are_split_into_words() {
        assert_eq!(words("sendMails"), ["send", "mail"]);
        assert_eq!(words("order.create_2"), ["order", "create", "2"]);
        assert_eq!(words("ticketID"), ["ticket", "id"]);
        assert_eq!(words("address-cents"), ["address", "cents"]);
    }
}
