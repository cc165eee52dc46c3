//! The graph of normal dependencies, independent of cargo's types, so that tests can construct one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use anyhow::{Context as _, Result};
use cargo_metadata::{DependencyKind, Metadata};

use super::rules::{Rule, TEST_ONLY_CONDITION, Who, matches};

/// A package. Two versions of one package are two nodes, so the graph goes by id, not by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) ours: bool,
    pub(crate) published: bool,
    pub(crate) needs: Vec<String>,
}

/// All packages by id.
#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    pub(crate) nodes: BTreeMap<String, Node>,
}

/// A path that a rule forbids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) rule: &'static str,
    /// Package names from the bound one to the forbidden one.
    pub(crate) path: Vec<String>,
    pub(crate) why: &'static str,
}

impl Graph {
    /// Takes the normal dependencies out of cargo's answer.
    pub(crate) fn of(metadata: &Metadata) -> Result<Self> {
        let resolve = metadata
            .resolve
            .as_ref()
            .context("cargo resolved no dependencies")?;
        let ours: BTreeSet<_> = metadata.workspace_members.iter().collect();
        let mut nodes = BTreeMap::new();
        for node in &resolve.nodes {
            let package = &metadata[&node.id];
            let needs = node
                .deps
                .iter()
                .filter(|dep| dep.dep_kinds.iter().any(is_shipped));
            let node = Node {
                name: package.name.to_string(),
                ours: ours.contains(&node.id),
                // An empty list of registries is how `publish = false` arrives here.
                published: package
                    .publish
                    .as_ref()
                    .is_none_or(|places| !places.is_empty()),
                needs: needs.map(|dep| dep.pkg.repr.clone()).collect(),
            };
            nodes.insert(package.id.repr.clone(), node);
        }
        Ok(Self { nodes })
    }

    /// All violations of one rule; the shortest path to each forbidden package.
    pub(crate) fn check(&self, rule: &Rule) -> Vec<Violation> {
        let bound = self.nodes.iter().filter(|(_, node)| binds(rule, node));
        bound
            .flat_map(|(id, _)| self.violations_from(id, rule))
            .collect()
    }

    fn violations_from(&self, start: &str, rule: &Rule) -> Vec<Violation> {
        let mut came_from: BTreeMap<&str, &str> = BTreeMap::new();
        let mut queue = VecDeque::from([start]);
        let mut found = Vec::new();
        while let Some(id) = queue.pop_front() {
            let Some(node) = self.nodes.get(id) else {
                continue;
            };
            if id != start && matches(rule.never, &node.name) {
                let path = self.path(&came_from, start, id);
                found.push(Violation {
                    rule: rule.name,
                    path,
                    why: rule.why,
                });
                // Packages behind a forbidden one are not reported separately.
                continue;
            }
            for next in &node.needs {
                if next != start && !came_from.contains_key(next.as_str()) {
                    came_from.insert(next, id);
                    queue.push_back(next);
                }
            }
        }
        found
    }

    fn path(&self, came_from: &BTreeMap<&str, &str>, start: &str, end: &str) -> Vec<String> {
        let mut ids = vec![end];
        while let Some(id) = ids
            .last()
            .filter(|id| **id != start)
            .and_then(|id| came_from.get(id))
        {
            ids.push(id);
        }
        ids.iter()
            .rev()
            .map(|id| self.nodes[*id].name.clone())
            .collect()
    }
}

fn binds(rule: &Rule, node: &Node) -> bool {
    // A rule against a package does not bind that package itself.
    node.ours
        && match rule.who {
            Who::Package(name) => node.name == name,
            Who::Published => node.published && !matches(rule.never, &node.name),
            Who::Any => !matches(rule.never, &node.name),
        }
}

fn is_shipped(kind: &cargo_metadata::DepKindInfo) -> bool {
    let condition = kind
        .target
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default();
    kind.kind == DependencyKind::Normal && !condition.contains(TEST_ONLY_CONDITION)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deps::rules::RULES;

    fn node(name: &str, ours: bool, published: bool, needs: &[&str]) -> (String, Node) {
        let needs = needs.iter().map(ToString::to_string).collect();
        (
            name.to_owned(),
            Node {
                name: name.to_owned(),
                ours,
                published,
                needs,
            },
        )
    }

    fn check_all(nodes: impl IntoIterator<Item = (String, Node)>) -> Vec<Violation> {
        let graph = Graph {
            nodes: nodes.into_iter().collect(),
        };
        RULES.iter().flat_map(|rule| graph.check(rule)).collect()
    }

    #[test]
    fn runtime_below_the_core_is_reported_with_its_path() {
        let found = check_all([
            node("semel-core", true, true, &["cache", "bytes"]),
            node("cache", false, true, &["timer", "bytes"]),
            node("timer", false, true, &["tokio"]),
            node("tokio", false, true, &["mio"]),
            node("mio", false, true, &[]),
            node("bytes", false, true, &[]),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].rule, "core-without-io");
        assert_eq!(found[0].path, ["semel-core", "cache", "timer", "tokio"]);
    }

    #[test]
    fn prefix_pattern_matches_a_family() {
        let found = check_all([
            node("semel-core", true, true, &["sqlx-core"]),
            node("sqlx-core", false, true, &[]),
        ]);
        assert_eq!(found[0].path, ["semel-core", "sqlx-core"]);
    }

    #[test]
    fn core_must_not_use_workspace_crates() {
        let found = check_all([
            node("semel-core", true, true, &["semel-http"]),
            node("semel-http", true, true, &[]),
        ]);
        assert_eq!(found[0].rule, "core-at-the-bottom");
    }

    #[test]
    fn testkit_is_forbidden_in_shipped_crates_only() {
        let kit = node("semel-testkit", true, true, &[]);
        let tool = node("semel-bench", true, false, &["semel-testkit"]);
        assert_eq!(check_all([kit.clone(), tool]), []);

        let found = check_all([kit, node("semel", true, true, &["semel-testkit"])]);
        assert_eq!(found[0].rule, "no-testkit-in-a-shipped-crate");
    }

    #[test]
    fn crates_for_development_depend_on_no_product() {
        for (name, rule) in [
            (
                "semel-devservers",
                "servers-for-development-without-a-product",
            ),
            ("semel-httpclient", "test-client-without-a-product"),
        ] {
            let found = check_all([
                node(name, true, false, &["semel-core"]),
                node("semel-core", true, true, &[]),
            ]);
            assert_eq!(found[0].rule, rule);
        }
    }

    #[test]
    fn dependency_circle_terminates() {
        let found = check_all([
            node("semel-core", true, true, &["a"]),
            node("a", false, true, &["b"]),
            node("b", false, true, &["a", "semel-core"]),
        ]);
        assert_eq!(found, []);
    }
}
