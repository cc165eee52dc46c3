//! Observe mode: reports how calls that look like retries differ.

use std::collections::BTreeSet;

use semel::Mode;
use semel::core::Fingerprint;

use super::Gateway;
use crate::call::{Call, Caller};
use crate::identity::Sketch;
use crate::rewordings::{Seen, declared_name};
use crate::tools::Catalog;

impl Gateway {
    /// In observe mode, logs in which arguments a call differs from one that it seems to repeat.
    /// Only names that the tool declares reach the log.
    pub(crate) fn report_rewording(&self, call: &Call, caller: &Caller, catalog: &Catalog) {
        if self.settings.policy.mode != Mode::Observe {
            return;
        }
        let (Some(names), Some(arguments)) =
            (catalog.argument_names(&call.tool), call.arguments_value())
        else {
            return;
        };
        let secret = self.semel.engine().secret();
        let conversation = call.conversation(caller, &self.settings.conversation);
        let origin = Fingerprint::builder(secret)
            .part(b"mcp-origin")
            .part(call.tool.as_bytes())
            .part(caller.principal.as_bytes())
            .part(conversation.unwrap_or_default().as_bytes())
            .part(caller.path.as_bytes())
            .part(caller.credentials.as_bytes())
            .finish();
        let seen = Seen {
            origin,
            at: self.now(),
            sketch: Sketch::new(&arguments, "", secret),
        };
        let differs = self.rewordings.note(seen, self.settings.window);
        let differs = differs.iter().map(|pointer| declared_name(pointer, &names));
        for argument in differs.collect::<BTreeSet<String>>() {
            let times = self.rewordings.count(&call.tool, &argument);
            tracing::info!(
                tool = call.tool,
                argument,
                times,
                "observe mode: a call looks like an earlier one in other words"
            );
        }
    }
}
