//! An MCP server that lets a coding agent search and read the pages.

use std::sync::Arc;

use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, JsonObject,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
    ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData, ServiceExt as _};
use serde_json::json;

use super::pages;
use crate::exit::{self, Exit};

const INSTRUCTIONS: &str = "The documentation of Semel, an idempotency layer: idempotency keys for HTTP services, \
    agents' tools, jobs and streams. Search first, then read the page that fits.";

/// Serves until the client closes standard input.
pub(super) async fn serve() -> Result<(), Exit> {
    let failed = |message: String| Exit::failed(exit::UNEXPECTED, message);
    let transport = (tokio::io::stdin(), tokio::io::stdout());
    let service = Pages.serve(transport).await;
    let service = service.map_err(|error| failed(error.to_string()))?;
    let ended = service.waiting().await;
    ended.map(drop).map_err(|error| failed(error.to_string()))
}

struct Pages;

/// A tool that only reads, with one argument of text.
fn tool(
    name: &'static str,
    about: &'static str,
    argument: &'static str,
    meaning: &'static str,
) -> Tool {
    let schema = json!({
        "type": "object",
        "properties": {argument: {"type": "string", "description": meaning}},
        "required": [argument],
    });
    let schema: JsonObject = serde_json::from_value(schema).unwrap_or_default();
    let mut tool = Tool::new(name, about, Arc::new(schema));
    tool.annotations = Some(ToolAnnotations::new().read_only(true));
    tool
}

impl ServerHandler for Pages {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        ServerConfig::new(capabilities).with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(vec![
            tool(
                "search_docs",
                "Finds the pages of Semel's documentation that contain all of the words.",
                "query",
                "A few words, such as: crash policy hold",
            ),
            tool(
                "read_doc",
                "Reads one page of Semel's documentation, as Markdown.",
                "page",
                "The page's name, as search_docs gives it, such as: guarantees",
            ),
        ]))
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let argument = |name: &str| {
            let arguments = call.arguments.as_ref();
            let value = arguments.and_then(|arguments| arguments.get(name)?.as_str());
            value.map(str::to_owned).ok_or_else(|| {
                ErrorData::invalid_params(format!("the argument {name} is missing"), None)
            })
        };
        let answer = match &*call.name {
            "search_docs" => Ok(found(&argument("query")?)),
            "read_doc" => {
                let name = argument("page")?;
                let page = pages::find(&name).map(|page| page.text.into_owned());
                page.ok_or_else(|| format!("There is no page {name:?}; search_docs finds pages."))
            }
            _ => return Err(ErrorData::invalid_params("there is no such tool", None)),
        };
        let result = match answer {
            Ok(text) => CallToolResult::success(vec![ContentBlock::text(text)]),
            Err(text) => CallToolResult::error(vec![ContentBlock::text(text)]),
        };
        Ok(result.into())
    }
}

/// The result of a search, in words.
fn found(query: &str) -> String {
    let hits = pages::search(query);
    if hits.is_empty() {
        return "No page contains all of these words. Try fewer.".to_owned();
    }
    let lines = hits.iter().map(|hit| {
        format!(
            "- {}: {}\n  {}\n",
            hit.page.name, hit.page.title, hit.excerpt
        )
    });
    lines.collect()
}
