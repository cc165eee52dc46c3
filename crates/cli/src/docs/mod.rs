//! `semel docs`: the documentation that is part of the program, for people and, with `--mcp`, for
//! coding agents.
//!
//! | file | is |
//! |---|---|
//! | `pages` | the pages, their titles, and the search in them |
//! | `server` | an MCP server with the two tools `search_docs` and `read_doc` |

mod pages;
mod server;

use clap::Args;

use crate::exit::{self, Exit};
use crate::{out, runtime};

/// Shows the documentation that is part of the program.
///
/// Without arguments it lists the pages.
#[derive(Args)]
#[command(after_help = "\
Examples:
  semel docs
  semel docs guarantees
  semel docs --search 'in doubt'
  claude mcp add semel-docs -- semel docs --mcp")]
pub(crate) struct Docs {
    /// The page to print, such as `guarantees` or `stores/redis`.
    page: Option<String>,
    /// Lists the pages that contain these words, the best first.
    #[arg(long, value_name = "WORDS", conflicts_with = "page")]
    search: Option<String>,
    /// Serves the pages as tools of the Model Context Protocol, on standard input and output.
    #[arg(long, conflicts_with_all = ["page", "search"])]
    mcp: bool,
}

impl Docs {
    pub(crate) fn run(self) -> Exit {
        if self.mcp {
            return runtime::block_on(server::serve()).into();
        }
        match (&self.page, &self.search) {
            (Some(name), _) => match pages::find(name) {
                Some(page) => out::write(format_args!("{}", page.text)),
                None => {
                    let message = format!(
                        "there is no page {name:?}\n    fix: `semel docs` lists the pages, `semel docs \
                         --search WORDS` finds one"
                    );
                    return Exit::failed(exit::NOT_FOUND, message);
                }
            },
            (None, Some(words)) => {
                let found = pages::search(words);
                if found.is_empty() {
                    return Exit::failed(
                        exit::NOT_FOUND,
                        format!(
                            "no page contains all of the words {words:?}\n    fix: try fewer words"
                        ),
                    );
                }
                for hit in found {
                    out::write(format_args!(
                        "{}  {}\n    {}\n",
                        hit.page.name, hit.page.title, hit.excerpt
                    ));
                }
            }
            (None, None) => {
                for page in pages::all() {
                    out::write(format_args!("{:<32} {}\n", page.name, page.title));
                }
            }
        }
        Exit::Ok
    }
}
